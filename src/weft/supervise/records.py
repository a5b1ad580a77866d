"""Requests to the supervisor and its answers: frozen values."""

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
"""Limit of findings in a failure's record; all are counted."""


@dataclass(frozen=True)
class CandidateSource:
    """A candidate: the text of its device code with launch lines. Nothing else of a candidate runs."""

    text: str
    language: str = "cuda"
    """`cuda` or `ptx`. Triton is Python and is refused."""
    launch: str = ""
    """Launch lines of a PTX text."""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Macros that override those of the launch lines."""

    @property
    def digest(self) -> str:
        """Return the candidate's digest, of everything that it consists of."""
        macros = (part for name in sorted(self.defines) for part in (name, self.defines[name]))
        return parts_digest((self.text, self.language, self.launch, *macros))


@dataclass(frozen=True)
class ScoreOn:
    """The workload whose cost is the score. It is judged before it is profiled."""

    shape: str = "mission"
    dtype: str = "f16"
    mask: str = "none"
    regime: str = "unit_normal"
    seed: int = 0
    encoding: str = "plain"


@dataclass(frozen=True)
class Request:
    """Everything that a verdict depends on."""

    source: CandidateSource
    task: str = "sdpa"
    rung: str | None = None
    """The rung whose arithmetic the gates expect, and whose table lists what it supports; None: any that fits."""
    choice: Choice = field(default_factory=Choice)
    """Workloads. A named axis must be supported: a candidate cannot choose what it is judged on."""
    score: ScoreOn | None = field(default_factory=ScoreOn)
    chip: str = "l4"
    clock_ghz: float | None = None
    debug_build: bool = True
    """Judge initialisation once more in the -G build of a candidate that passed, as `weft check` does."""
    diagnose: bool = False
    """Diagnose a candidate that fails."""
    max_steps: int = MAX_STEPS
    """Limit of loop iterations per launch."""
    isolation: int = 0
    """The lowest isolation level that is accepted: with less, nothing of it runs."""
    within_limits: bool = False
    """Whether the judge's selection omits what the launch lines do not support, instead of rejecting the candidate. For
    a user's file, never for a search: there a candidate would choose what it is judged on."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of one evaluation."""

    wall_seconds: float = 120.0
    """Time that the supervisor waits for the child in total; the time of judging does not count."""
    cpu_seconds: int = 600
    memory_bytes: int = 8 << 30
    """Limit of address space: the virtual GPU reserves more than it uses."""
    file_bytes: int = 64 << 20
    open_files: int = 256
    threads: int = 1
    """Threads that run CTAs."""


@dataclass(frozen=True)
class Canonical:
    """Whether a candidate compiles, and the digest of its code."""

    status: Status
    digest: str | None = None
    """Digest of its PTX without names, line information and white space, and of its launches."""
    message: str = ""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    status: Status
    message: str = ""
    """Message of the failure, or a note about a pass."""
    judged: int = 0
    """Number of judged workloads: all that were planned, or those up to the first failure."""
    planned: int = 0
    failure: Verdict | None = None
    """The first verdict that is not PASSED, if there is one."""
    profile: Profile | None = None
    """Profile of the score workload, if it passed. Modelled, not measured."""
    diagnosis: str = ""
    isolation: int = 0
    """The isolation level of the evaluation: docs/reference/isolation.md."""
    signal: int = 0
    """Signal that ended the child."""
    stderr: str = ""
    """The end of the standard error of a child that died."""
    seconds: float = 0.0
    scope: Scope = field(default_factory=Scope, compare=False)
    """What the verdict covers, for a request within limits; it is not stored."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    def record(self) -> dict[str, Any]:
        """Return plain data for the store, without seconds: the same candidate gives the same record."""
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
        """Read the result of `record`. Stores of Weft 0.1 have the key `outcome` and another form of failures."""
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
