"""The values that the parts of the server share: how programs run, what they loaded, what is refused."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from weft.core.chips import Chip
from weft.core.records import Dim3, SharedSymbol
from weft.model.occupancy import LaunchShape
from weft.vm.launch_spec import DeviceRun
from weft.vm.program import Program
from weft.vm.runtime.watch import Instrumentation

from .images import Image
from .program import notes_folder
from .protocol import Code


@dataclass(frozen=True)
class KernelCode:
    """A kernel as PTX and machine code: what an estimate of its time needs."""

    ptx: str
    entry: str
    cubin: bytes
    shared: tuple[SharedSymbol, ...] = ()


class Clock(Protocol):
    """Estimates launches: the time that events hold, instead of the host's."""

    def watch(self, code: KernelCode) -> Instrumentation:
        """Return the probe that counts a launch. Raises Unsupported for a kernel without an estimate."""

    def nanoseconds(self, code: KernelCode, shape: LaunchShape, outcome: DeviceRun) -> float:
        """Return the estimate of a launch that the probe watched."""


@dataclass(frozen=True)
class Options:
    """How programs run."""

    chip: Chip
    memory_bytes: int
    watch: Instrumentation
    threads: int
    max_steps: int
    mode: str = "hardware"
    raises: bool = True
    """Whether a finding that a GPU would fault on becomes the context's error."""
    keep_going: bool = False
    notes: Path = field(default_factory=notes_folder)
    """Where the PTX of cubins is that the program compiled."""
    clock: Clock | None = None
    """None: events hold the host's time."""
    others: tuple[Chip, ...] = ()
    """Further devices."""

    @property
    def devices(self) -> tuple["Options", ...]:
        """Return the options of each device."""
        return tuple(replace(self, chip=chip, others=()) for chip in (self.chip, *self.others))

    @property
    def sm(self) -> int:
        """Return the chip's compute capability as one number: 89."""
        return int(self.chip.architecture.target.removeprefix("sm_"))


@dataclass
class Module:
    """A loaded image and the addresses of its variables."""

    image: Image
    names: tuple[str, ...]
    blob: bytes
    """As the program loaded it: a library is loaded on each device that uses it."""
    variables: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    managed: frozenset[str] = frozenset()
    """Variables that the host has at the same address."""


@dataclass
class Function:
    """A kernel of a loaded module."""

    name: str
    title: str
    """The name as its source spells it, for messages."""
    module: Module
    program: Program
    registers: int
    """0 until they are known: of PTX alone when something needs them."""
    local_bytes: int = 0
    asked: bool = False
    """Whether ptxas was asked for the registers."""
    shared: tuple[SharedSymbol, ...] = ()
    code: KernelCode | None = None
    instructions: dict[Dim3, int] = field(default_factory=dict)
    """Warp instructions of the last launch, by grid."""


class Refused(Exception):
    """What a GPU would have done and the virtual GPU cannot. `code` is the answer with --keep-going."""

    def __init__(self, what: str, why: str, code: Code = Code.NOT_SUPPORTED) -> None:
        super().__init__(what, why)
        self.what, self.why, self.code = what, why, code
