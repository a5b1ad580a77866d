"""How judging a kernel can end: one enumeration for every command, the store, reports and workers."""

from enum import StrEnum


class Status(StrEnum):
    """The first thing that is wrong decides."""

    PASSED = "PASSED"
    COMPILE_ERROR = "COMPILE_ERROR"
    RESOURCE_ERROR = "RESOURCE_ERROR"
    """More shared memory or threads than the GPU has."""
    LAUNCH_ERROR = "LAUNCH_ERROR"
    UNSAFE = "UNSAFE"
    """Findings of the virtual GPU or of a checker."""
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    TIMEOUT = "TIMEOUT"
    """The loop budget, the CPU time or the wall-clock limit ended it."""
    UNSUPPORTED = "UNSUPPORTED"
    """The virtual GPU does not know something in the kernel: neither pass nor fail."""
    REJECTED = "REJECTED"
    """Not judged: it is not what a candidate may be, or it does not support what was asked."""
    CRASHED = "CRASHED"
    """The supervised child died or sent an answer that makes no sense."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    LOST = "LOST"
    """Something outside the candidate ended the child: this says nothing about the candidate."""

    @property
    def decided(self) -> bool:
        """Whether it says that the kernel is right or wrong."""
        return self not in (Status.UNSUPPORTED, Status.REJECTED, Status.LOST)

    @property
    def cacheable(self) -> bool:
        """Whether it follows from the request alone, not from the machine or the moment."""
        return self not in (Status.TIMEOUT, Status.CRASHED, Status.OUT_OF_MEMORY, Status.LOST)


CACHEABLE = frozenset(status.value for status in Status if status.cacheable)
"""The texts of cacheable statuses; a text that is no status is not cacheable."""
