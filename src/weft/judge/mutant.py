"""A wrong implementation of a task, as the certificate of a gate keeps it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from weft.attention.reference import Attended

from .problem import Problem

Implementation = Callable[[Problem], Attended]
ANY_TASK = ("sdpa", "fp8_sdpa")


@dataclass(frozen=True)
class Mutant:
    """One way of being wrong.

    One that breaks O is judged as a kernel that returns no LSE, so that the LSE's gate cannot kill it in O's stead.
    """

    name: str
    what: str
    run: Implementation
    tasks: tuple[str, ...] = ANY_TASK
    breaks: Literal["o", "lse"] = "o"
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Type of the output → why no gate can tell it from a right kernel there."""

    def applies(self, task: str, dtype: str) -> bool:
        return task in self.tasks and dtype not in self.excluded
