"""How the judgement of a kernel can end: one enumeration for every command, the store, reports and workers."""

from enum import StrEnum


class Status(StrEnum):
    """The result of judging a kernel; the first problem decides."""

    PASSED = "PASSED"
    COMPILE_ERROR = "COMPILE_ERROR"
    RESOURCE_ERROR = "RESOURCE_ERROR"
    """The kernel requires more shared memory or threads than the GPU has."""
    LAUNCH_ERROR = "LAUNCH_ERROR"
    UNSAFE = "UNSAFE"
    """The virtual GPU or a checker has findings."""
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    TIMEOUT = "TIMEOUT"
    """The loop budget, the CPU time limit or the wall-clock limit ended it."""
    UNSUPPORTED = "UNSUPPORTED"
    """The virtual GPU does not support something in the kernel: neither pass nor fail."""
    REJECTED = "REJECTED"
    """Not judged: it is not a valid candidate, or it does not support the request."""
    CRASHED = "CRASHED"
    """The supervised child died or sent an invalid answer."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    LOST = "LOST"
    """Something outside the candidate ended the child: whether the candidate is right or wrong is not known."""

    @property
    def decided(self) -> bool:
        """Return whether the status means that the kernel is right or wrong."""
        return self not in (Status.UNSUPPORTED, Status.REJECTED, Status.LOST)

    @property
    def cacheable(self) -> bool:
        """Return whether the status depends only on the request, not on the machine or the time."""
        return self not in (Status.TIMEOUT, Status.CRASHED, Status.OUT_OF_MEMORY, Status.LOST)


CACHEABLE = frozenset(status.value for status in Status if status.cacheable)
"""The texts of cacheable statuses; a text that is not a status is not cacheable."""
