"""The content of a bundle: the request, the environment, and the answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.core.errors import WeftError
from weft.core.status import Status
from weft.judge.select import Choice
from weft.judge.verdict import Verdict
from weft.supervise.records import CandidateSource, Request, ScoreOn


class BrokenBundle(WeftError):
    """The file is not a bundle, or is damaged."""


@dataclass(frozen=True)
class Answer:
    """A verdict and the bits of the outputs. Nothing in it depends on the time."""

    status: Status
    message: str
    judged: int
    """Number of judged workloads: all that were planned, or those up to the first failure."""
    planned: int
    failure: Verdict | None
    """The first failing verdict; None if all passed."""
    ptx: str
    """Digest of the canonical PTX and of how it is launched; empty if it does not compile."""
    outputs: Mapping[str, Mapping[str, str]]
    """Workload → output → digest of its bits."""
    estimate: tuple[float, float] | None = None
    """EST in cycles, for a candidate of a search. Modelled, not measured."""

    @property
    def failed_on(self) -> str:
        """Return the workload that failed; empty if none did."""
        return self.failure.label if self.failure is not None else ""

    @property
    def verdict(self) -> tuple[str, str, int, int]:
        """Return the part that must be the same in a replay."""
        return self.status, self.failed_on, self.judged, self.planned


@dataclass(frozen=True)
class Bundle:
    """A kernel, its workloads, the environment and the answer."""

    name: str
    """The kernel's name where the bundle was written. Never a path."""
    source: CandidateSource
    task: str
    """A task of Weft, or the name of the task in `task_text`."""
    task_text: str
    """The Python file of the user's task; empty for a task of Weft."""
    choice: Choice
    chip: str
    rung: str | None
    score: ScoreOn | None
    debug_build: bool
    max_steps: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions and CPU with which the answer was found."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """The run and the candidate, if the kernel is from a search."""
    answer: Answer | None = None

    def request(self, task: str) -> Request:
        """Return the request for the supervisor; `task` is a name, or the file of the text."""
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
