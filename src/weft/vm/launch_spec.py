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
    fixed_registers: bool = False
    """Whether `setmaxnreg` has no effect, because ptxas ignored it."""
    sms: int = 1
    """Multiprocessors of the GPU."""
    cluster: Dim3 = (0, 0, 0)
    """CTAs per cluster in x, y and z, as the launch asks for them; zeros: as the kernel requires, or one."""


def pool_registers(launch: LaunchSpec, bounded: bool) -> int:
    """Return the registers of a thread at the start, as the hardware allocates them, of which `setmaxnreg` distributes
    the sum; 0: it has no effect, because the number is not known, or the kernel has no bound by which ptxas knows it.
    """
    return -(-launch.registers // 8) * 8 if bounded and not launch.fixed_registers else 0


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
