"""What the chapters on memory, synchronisation and matrices need of the kernel beyond reading and writing registers."""

from abc import abstractmethod

from weft.ptx.module import Instruction

from ..ir import Value
from .emitter import Emitter


class KernelContract(Emitter):
    """An emitter inside a kernel: it has a warp record, call sites, buffers and addresses."""

    warp: Value
    mode: str
    """Tensor-core arithmetic: `hardware` or `ieee`."""
    arch: str
    param_bytes: int
    """Size of the kernel's parameters."""
    met: Value | None = None
    """At a bar.warp.sync: the lanes that meet, where some may stand at another one (i32 mask; 0: they met before)."""

    @abstractmethod
    def imported(self, name: str) -> Value:
        """Pointer to a runtime function that takes no warp (tensor-core arithmetic)."""

    @abstractmethod
    def site(self) -> Value:
        """The current instruction as a number for reports: its PTX line."""

    @abstractmethod
    def position(self, ins: Instruction) -> int:
        """Which item of the kernel's body `ins` is; unlike its line, this differs between inlined copies."""

    @abstractmethod
    def buffer(self, role: str, size_bytes: int) -> Value:
        """Stack memory for passing several registers to the runtime; one per role and size."""

    @abstractmethod
    def address(self, ins: Instruction, name: str, space: str) -> Value:
        """A memory operand: i64 for global and generic, i32 for shared and local; lifted to the current lanes."""

    @abstractmethod
    def constants(self) -> list[tuple[Value, int]]:
        """Device address (i64) and size in bytes of every `.const` variable of the module."""

    @abstractmethod
    def space_of(self, ins: Instruction) -> str:
        """The window a memory instruction names: global, shared, local, param or generic (const is in global)."""
