"""What the supervisor is asked and what it answers: frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.core.status import Status
from weft.engines.kernel_file import MAX_STEPS
from weft.judge.scope import Scope
from weft.judge.select import Choice
from weft.judge.verdict import Verdict
from weft.judge.verdict_json import verdict_of, verdict_record
from weft.store.keys import parts_digest

from .counted import Profile

SHOWN_FINDINGS = 20
"""Of a failure's record; all are counted."""


@dataclass(frozen=True)
class CandidateSource:
    """A candidate: the text of its device code with launch lines. Nothing else of a candidate is ever run."""

    text: str
    language: str = "cuda"
    """Or `ptx`. Triton is Python: it is refused."""
    launch: str = ""
    """Launch lines that stand beside a PTX text."""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Macros that override those of the launch lines."""

    @property
    def digest(self) -> str:
        """The candidate's name: of all that it consists of."""
        macros = (part for name in sorted(self.defines) for part in (name, self.defines[name]))
        return parts_digest((self.text, self.language, self.launch, *macros))


@dataclass(frozen=True)
class ScoreOn:
    """The workload whose cost is the score. It is judged before it is counted."""

    shape: str = "mission"
    dtype: str = "f16"
    mask: str = "none"
    regime: str = "unit_normal"
    seed: int = 0
    encoding: str = "plain"


@dataclass(frozen=True)
class Request:
    """Everything that decides a verdict."""

    source: CandidateSource
    task: str = "sdpa"
    rung: str | None = None
    """The rung whose arithmetic the gates expect, and whose table says what it supports; None: any that fits."""
    choice: Choice = field(default_factory=Choice)
    """Workloads. An axis that is named must be supported: a candidate cannot choose what it is judged on."""
    score: ScoreOn | None = field(default_factory=ScoreOn)
    chip: str = "l4"
    clock_ghz: float | None = None
    debug_build: bool = True
    """Judge initialisation once more in the -G build of a candidate that passed, as `weft check` does."""
    diagnose: bool = False
    """Say why a failing one fails."""
    max_steps: int = MAX_STEPS
    """Loop iterations that a launch may run."""
    isolation: int = 0
    """The least level under which it may be judged: where there is less, nothing of it runs."""
    within_limits: bool = False
    """Whether the judge's own selection leaves out what its launch lines do not take, instead of rejecting it. For a
    user's file, never for a search: there a candidate would choose what it is judged on."""


@dataclass(frozen=True)
class Limits:
    """What one evaluation may take of the machine."""

    wall_seconds: float = 120.0
    """That the supervisor waits for the child in all; its own judging does not count."""
    cpu_seconds: int = 600
    memory_bytes: int = 8 << 30
    """Of address space: the virtual GPU reserves more than it uses."""
    file_bytes: int = 64 << 20
    open_files: int = 256
    threads: int = 1
    """That run CTAs."""


@dataclass(frozen=True)
class Canonical:
    """Whether a candidate compiles, and what its code is known by."""

    status: Status
    digest: str | None = None
    """Of its PTX without names, line information and white space, and of how it is launched."""
    message: str = ""


@dataclass(frozen=True)
class Evaluation:
    """What is known of a candidate in the end."""

    status: Status
    message: str = ""
    """Of the failure, or a note next to a pass."""
    judged: int = 0
    """Workloads that were judged: all that were planned, or those up to the first failure."""
    planned: int = 0
    failure: Verdict | None = None
    """The first verdict that is not PASSED, if it came to one."""
    profile: Profile | None = None
    """Of the score workload, if it passed. Modelled, not measured."""
    diagnosis: str = ""
    isolation: int = 0
    """The level under which it was found: docs/reference/isolation.md."""
    signal: int = 0
    """That ended the child."""
    stderr: str = ""
    """The end of what a child that died had to say."""
    seconds: float = 0.0
    scope: Scope = field(default_factory=Scope, compare=False)
    """What the verdict covers, of a request within limits; it is not stored."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    def record(self) -> dict[str, Any]:
        """Plain data for the store. Seconds are not part of it: the same candidate gives the same record."""
        return {
            "status": self.status.value,
            "message": self.message,
            "judged": self.judged,
            "planned": self.planned,
            "failure": verdict_record(self.failure, timed=False, findings=SHOWN_FINDINGS) if self.failure else None,
            "profile": self.profile.record() if self.profile is not None else None,
            "diagnosis": self.diagnosis,
            "isolation": self.isolation,
            "signal": self.signal,
            "stderr": self.stderr,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Evaluation":
        """Read what `record` gave. Stores of Weft 0.1 say `outcome`, and their failures have another spelling."""
        failure = record["failure"]
        return cls(
            status=Status(record["status"] if "status" in record else record["outcome"]),
            message=record["message"],
            judged=record["judged"],
            planned=record["planned"],
            failure=verdict_of(failure) if failure is not None and "version" in failure else None,
            profile=Profile.from_record(record["profile"]) if record["profile"] is not None else None,
            diagnosis=record["diagnosis"],
            isolation=record["isolation"],
            signal=record["signal"],
            stderr=record["stderr"],
        )
