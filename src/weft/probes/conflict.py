"""The result of racecheck's second pass: two accesses that nothing orders."""

from dataclasses import dataclass
from typing import Literal

from weft.core.finding_codes import Severity


@dataclass(frozen=True)
class Actor:
    """One side of a conflict."""

    site: int
    cta: int
    warp: int
    lanes: int
    record: int


@dataclass(frozen=True)
class CopyStep:
    """What a copy in flight lacks before an access to its bytes."""

    name: Literal["commit", "wait", "left", "barrier"]
    """The end of its group, a wait, a wait that does not leave its group in flight, or a barrier behind the wait."""
    wait: int = 0
    """The site of the wait: for `left` and `barrier`."""
    pending: int = 0
    """The groups that the wait leaves in flight."""


@dataclass(frozen=True)
class Conflict:
    """Two instructions that race, at the first pair of warps that shows it."""

    code: str
    severity: Severity
    earlier: Actor
    later: Actor
    address: int
    size_bytes: int
    """The length of the first run of bytes concerned."""
    count: int
    """The number of pairs of warps."""
    behind: Actor
    """Which of the two the other should wait for: the barrier belongs after it."""
    replicas: bool = False
    """Whether threads store one element of a Triton tensor that several of them hold (`replicas.py`)."""

    owner: int = -1
    """The CTA whose shared memory it is; -1: global memory."""
    agent: Literal["", "bulk", "wgmma"] = ""
    """The kind of asynchronous operation that the earlier access belongs to."""

    lacks: CopyStep | None = None
    """R104: the step that is missing, if it is known."""

    @property
    def across(self) -> bool:
        """Whether it is between two CTAs."""
        return self.earlier.cta != self.later.cta
