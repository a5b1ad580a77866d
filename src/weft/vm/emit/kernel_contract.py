"""The parts of a kernel that memory, synchronisation and matrix instructions need in addition to registers."""

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
    """At a bar.warp.sync: the lanes that meet, if some may be at another one (i32 mask; 0: they met before)."""

    @abstractmethod
    def imported(self, name: str) -> Value:
        """Return a pointer to a runtime function that takes no warp (tensor-core arithmetic)."""

    @abstractmethod
    def repeats(self, ins: Instruction) -> bool:
        """Return whether a test of an mbarrier is repeated without any change as long as it fails."""

    @abstractmethod
    def site(self) -> Value:
        """Return the current instruction as a number for reports: its PTX line."""

    @abstractmethod
    def position(self, ins: Instruction) -> int:
        """Return the position of `ins` in the kernel's body; unlike its line, it differs between inlined copies."""

    @abstractmethod
    def buffer(self, role: str, size_bytes: int) -> Value:
        """Return stack memory for passing several registers to the runtime; one per role and size."""

    @abstractmethod
    def address(self, ins: Instruction, name: str, space: str) -> Value:
        """Return a memory operand: i64 for global and generic, i32 for shared and local; lifted to the lanes."""

    @abstractmethod
    def constants(self) -> list[tuple[Value, int]]:
        """Return the device address (i64) and size in bytes of every `.const` variable of the module."""

    @abstractmethod
    def space_of(self, ins: Instruction) -> str:
        """Return the window that an instruction names: global, shared, local, param or generic (const is in global)."""
