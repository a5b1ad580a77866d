"""The records of a diagnosis: the case, the first divergence in it, and the conclusions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.core.records import Diagnostic, Finding, Place, Run
from weft.engines.kernel_file import KernelFile
from weft.judge.candidate import Candidate
from weft.judge.verdict import Verdict
from weft.ptx.module import Function
from weft.repair.repair import Repair
from weft.repair.source_fix import SourceFix
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.backward_problem import BackwardProblem
from weft.tasks.recipe_problem import RecipeProblem
from weft.tasks.task import Problem, Task

from .taps import Key, Maker, Site, Taps

STRAY = ("M101", "M102")
"""Findings of accesses outside their buffers."""


def name_of(key: Key) -> str:
    """Return a stage's name: `scores of KV tile 1`, `o`."""
    stage, tile = key
    return stage if tile is None else f"{stage} of KV tile {tile}"


@dataclass(frozen=True)
class Divergence:
    """The first stage, in the order a kernel computes them, that differs beyond its own tolerance."""

    stage: str
    tile: int | None
    """KV tile; None for q, o and lse."""
    keys: range
    """The keys of the tile; all keys where there is none."""
    index: tuple[int, ...]
    """The first wrong element: (batch, head, row, column), column = key for products, scores, masked and p; m, l and
    lse have none. For k and v the row is the key within the tile; for products, scores, masked and p the column is.
    """
    site: Site | None
    """The thread and line that computed it (or used it unchanged from an input); None where it was not observed."""
    heads: str
    """(batch, head) pairs concerned, as readable ranges."""
    rows: str
    columns: str
    """Empty where the stage has none."""
    share: float
    """The share of wrong elements among the observed ones, in this stage and tile."""
    wrong: npt.NDArray[np.bool_]
    """Which elements; the shape of the stage."""
    observed: npt.NDArray[np.bool_]
    actual: Array
    """The stage as the kernel held it, NaN where it was not observed."""
    expected: Array
    tolerance: Array
    arithmetic: tuple[str, ...]
    """How the first wrong element should be computed, and the kernel's value, line by line."""
    used: Site | None = None
    """The thread and line that used it as this stage."""
    operand: str = ""
    """If an operand of it is wrong and `site` computed that: the operand in words."""

    @property
    def name(self) -> str:
        """`scores of KV tile 1`, `o`."""
        return name_of((self.stage, self.tile))


@dataclass(frozen=True)
class LaunchJudgement:
    """One launch of several, run alone on the reference's inputs for it."""

    number: int
    entry: str
    place: Place
    """Its launch line."""
    right: bool | None
    """None: it could not be judged alone."""
    message: str
    wrong: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """Elements of its output arrays that differ from the reference, in the arrays' own layout."""


@dataclass(frozen=True)
class Case:
    """Everything known about a failing kernel; recognisers receive it."""

    candidate: Candidate
    task: Task
    problem: Problem
    """The smallest failing problem. An AttentionProblem for the attention tasks: see `attention`."""
    verdict: Verdict
    """The verdict on `problem`."""
    first_verdict: Verdict
    """The verdict on the workload that failed first, before it was shrunk."""
    kernel: KernelFile | None = None
    """None: it could not be loaded."""
    run: Run | None = None
    """The run, with the findings of all checkers; None if nothing ran."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """The arrays after the run, by their names in the launch lines: inputs, workspaces, outputs."""
    algorithm: Algorithm | None = None
    """The algorithm of `taps`: with the kernel's own tiles."""
    taps: Taps | None = None
    expected: Mapping[Key, Array] = field(default_factory=dict)
    """Every stage of `algorithm`, keyed and shaped as taps."""
    divergence: Divergence | None = None
    made_right: frozenset[Maker] = frozenset()
    """Instructions whose results were observed as stages, and are right."""
    lost: Key | None = None
    """The first stage and tile before the divergence that were not observed and that no later stage shows to be right:
    from there on the kernel's values could not be followed.
    """
    stages_seen: tuple[str, ...] = ()
    """The stages of a backward pass that were observed; those of other tasks are in `taps`."""
    lost_place: Place | None = None
    """The line that computes the observed part of that stage."""
    launches: tuple[LaunchJudgement, ...] = ()
    """Empty for a kernel of one launch."""
    not_recorded: str = ""
    """Why the kernel could not be recorded; empty if it was, or if nothing was to be recorded."""
    compiler_says: tuple[Diagnostic, ...] = ()
    """The compiler's warnings about the kernel's files."""
    functions: tuple[Function, ...] = field(default=(), repr=False)
    """The functions of the compiled kernel, in the order of its texts."""
    not_parsed: str = ""
    """Why there are no `functions`; empty if there are, or if they were not needed."""

    @property
    def staged(self) -> AttentionProblem | None:
        """The problem if it is an attention problem whose stages can be compared with an emulation, else None."""
        return self.problem if isinstance(self.problem, AttentionProblem) and self.problem.has_stages else None

    @property
    def attention(self) -> AttentionProblem | None:
        """The same, if scores are logits and the arrays dense: for recognisers that compute outputs."""
        return self.staged if self.staged is not None and self.staged.is_plain else None

    @property
    def recipe(self) -> RecipeProblem | None:
        """The problem if it is one of the FP8 recipe, whose stages are codes, else None."""
        return self.problem if isinstance(self.problem, RecipeProblem) else None

    @property
    def backward(self) -> BackwardProblem | None:
        """The problem if it is a backward pass, else None."""
        return self.problem if isinstance(self.problem, BackwardProblem) else None

    @property
    def o(self) -> Array | None:
        """The output, if the kernel ran; dense unless its shape is wrong."""
        o, problem = self.arrays.get("o"), self.staged
        if o is None or problem is None or o.shape != self.task.output("o").shape(problem.workload.shape):
            return o
        return problem.unpacked({"o": o})["o"]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the checkers."""
        return self.run.findings if self.run is not None else self.verdict.findings


def is_harmless(case: Case) -> bool:
    """Whether every stage and result is right in spite of the findings: then the indices of what was used are right."""
    return bool(case.findings) and case.taps is not None and case.divergence is None and case.lost is None


@dataclass(frozen=True)
class Signature:
    """A known mistake that matches the error."""

    name: str
    """A short key such as `scale_twice` or `missing_rescale`."""
    message: str
    """One sentence: what is wrong, with the numbers that show it."""
    cure: str
    rank: float
    """0 to 1, orders the signatures of a case: a fixed value for each kind of evidence, minus the share of the error
    that is not explained. It is no probability. Below 0.5 the signature shows where the error is, not why.
    """
    explained: float | None = None
    """The share of the error that the mistake explains: 1 - ‖observed - with the mistake‖ / ‖observed - right‖, over O,
    or over the stage where that was observed. None where a finding or the dataflow shows the mistake without a fit.
    """
    place: Place | None = None
    """The place, if it is not that of the first divergence."""
    stage: str = ""
    """The wrong stage, if it is not the first divergence's; also `quantiser`, `launch` or `build`."""
    cure_place: Place | None = None
    """The line of the cure, if it is not the line of the mistake: a barrier is missing after it."""


@dataclass(frozen=True)
class Diagnosis:
    """The conclusions about a case."""

    case: Case
    proven_right: tuple[str, ...]
    """Stages, with their tiles, that were observed upstream of the first divergence and agree."""
    not_observed: tuple[str, ...]
    """Stages that were not observed at all."""
    not_observed_because: str = ""
    """Why; empty if all were observed."""
    causes: tuple[Finding, ...] = ()
    """Findings of the checkers upstream of the first divergence: they are the cause."""
    other_findings: tuple[Finding, ...] = ()
    """Findings downstream of it, and those that do not count."""
    signatures: tuple[Signature, ...] = ()
    """By rank, the highest first."""
    strayed: tuple[Place, ...] = ()
    """For an access outside its buffer: lines that compute the wrong index, nearest first."""
    repairs: tuple[Repair, ...] = ()
    """Edits with which the kernel passes, the likeliest first; empty also where none were tested."""
    partly: tuple[Repair, ...] = ()
    """Where none makes it pass: edits that correct a part of the wrong elements and no other harm, the most first."""
    fix: SourceFix | None = None
    """The first of `repairs` as a change of the source, judged on all workloads."""
    origins: tuple[Place, ...] = ()
    """Lines that the line to inspect depends on, nearest first."""
    ran_only_here: tuple[int, ...] = ()
    """Lines that ran in the workload that failed first, and in none of those that passed before it."""
    judged: int = 1
    """The number of workloads judged until one failed, or in total."""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        return self.case.verdict

    @property
    def first(self) -> Divergence | None:
        return self.case.divergence

    @property
    def launches(self) -> tuple[LaunchJudgement, ...]:
        return self.case.launches

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong: the kernel passed and no recogniser matches."""
        return self.verdict.passed and not self.signatures
