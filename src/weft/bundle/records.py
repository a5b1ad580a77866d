"""What a bundle holds: what was asked, where it was answered, and the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.core.errors import WeftError
from weft.core.status import Status
from weft.judge.select import Choice
from weft.judge.verdict import Verdict
from weft.supervise.records import CandidateSource, Request, ScoreOn


class BrokenBundle(WeftError):
    """The file is no bundle, or a damaged one."""


@dataclass(frozen=True)
class Answer:
    """A verdict and the bits behind it. Nothing of it depends on when it was found."""

    status: Status
    message: str
    judged: int
    """Workloads that were judged: all that were planned, or those up to the first failure."""
    planned: int
    failure: Verdict | None
    """The verdict that decided against it; None if there is none."""
    ptx: str
    """Digest of the canonical PTX and of how it is launched; empty if it does not compile."""
    outputs: Mapping[str, Mapping[str, str]]
    """Workload → output → digest of its bits."""
    estimate: tuple[float, float] | None = None
    """EST in cycles, of a candidate of a search. Modelled, not measured."""

    @property
    def failed_on(self) -> str:
        """The workload that failed; empty if none did."""
        return self.failure.label if self.failure is not None else ""

    @property
    def verdict(self) -> tuple[str, str, int, int]:
        """What must be the same when it is repeated."""
        return self.status, self.failed_on, self.judged, self.planned


@dataclass(frozen=True)
class Bundle:
    """A judgement, whole."""

    name: str
    """What the kernel was called where the bundle was made. Never a path."""
    source: CandidateSource
    task: str
    """A task of Weft's, or the name of the task in `task_text`."""
    task_text: str
    """The Python file of a task of one's own; empty for one of Weft's."""
    choice: Choice
    chip: str
    rung: str | None
    score: ScoreOn | None
    debug_build: bool
    max_steps: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions and CPU under which the answer was found."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """The run and the candidate of a search, if it is one's."""
    answer: Answer | None = None

    def request(self, task: str) -> Request:
        """What the supervisor is asked; `task` is a name, or the file of the text."""
        return Request(
            self.source,
            task=task,
            rung=self.rung,
            choice=self.choice,
            score=self.score,
            chip=self.chip,
            debug_build=self.debug_build,
            diagnose=False,
            max_steps=self.max_steps,
            within_limits=self.score is None,
        )
