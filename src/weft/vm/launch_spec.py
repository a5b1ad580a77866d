"""A launch and its result, for both the reference interpreter and the JIT."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.core.records import Dim3, Finding, Visits


@dataclass(frozen=True)
class LaunchSpec:
    """One kernel launch. `params` is the parameter block as `Layout` lays it out."""

    entry: str
    grid: Dim3
    block: Dim3
    params: bytes
    shared_bytes: int = 0
    """Dynamic shared memory."""
    mode: str = "hardware"
    """Tensor-core arithmetic: `hardware` or `ieee`."""
    max_steps: int = 1 << 32
    """Loop budget that ends infinite loops: backward branches of all warps that one host thread runs."""
    registers: int = 0
    """Per thread, as the compiler allocated them; 0: not known."""
    sms: int = 1
    """Multiprocessors of the GPU."""


@dataclass(frozen=True)
class DeviceRun:
    """The result of a launch apart from its memory."""

    findings: tuple[Finding, ...] = ()
    printed: str = ""
    """What vprintf wrote, in CTA order."""
    instructions: int = 0
    """Warp instructions executed."""
    counters: Mapping[str, int] = field(default_factory=dict)
    visits: Visits | None = None
    """None: the reference interpreter does not count."""
    conditions: Mapping[int, int] = field(default_factory=dict)
    """Handle → value of conditions that cudaGraphSetConditional set."""
