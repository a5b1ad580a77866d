"""The first wrong stage of a backward pass: S, P, dP, delta, dS, dQ, dK or dV."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from weft.attention.backward import STAGES, UNDERFLOW
from weft.attention.dtypes import Array, ulp
from weft.core.errors import WeftError
from weft.core.records import Dim3, inlining_chain
from weft.engines.kernel_file import KernelFile
from weft.tasks.backward_problem import BackwardProblem

from .arithmetic import ARITHMETIC
from .backward_follow import GRADIENTS, BackwardAlgebra, BackwardBoard, BackwardProvenance
from .board import Sheet
from .compare import Mask, differs
from .divergence import first_index, heads_of
from .nodes import Nodes
from .ranges import ranges
from .record import RecordingGPU
from .records import Case, Divergence
from .spelling import own_site
from .tags import Sizes
from .taps import Site, own_line

MOST_SCORES = 1024
"""Every CTA of every launch is recorded: shrink a case first."""
CONSUMERS: Mapping[str, tuple[str, ...]] = {
    "scores": ("p",), "p": ("ds", "dv"), "dp": ("ds",), "delta": ("ds",), "ds": ("dq", "dk")
}  # fmt: skip
"""A stage that differs while everything computed from it is right is only stored in another form: no error."""
FORMULAS: Mapping[str, str] = {
    "scores": "Σ_d q·k · scale", "p": "exp(scores - LSE)", "dp": "Σ_d do·v", "delta": "Σ_d do·o",
    "ds": "p · (dp - delta)", "dq": "scale · Σ_keys ds·k", "dk": "scale · Σ_queries ds·q", "dv": "Σ_queries p·do",
}  # fmt: skip


@dataclass(frozen=True)
class ComparedStage:
    """One stage in one launch, as observed and as expected."""

    sheet: Sheet
    actual: Array
    expected: Array
    tolerance: Array
    observed: Mask
    wrong: Mask


@dataclass(frozen=True)
class BackwardStages:
    """What a recording shows."""

    seen: tuple[str, ...]
    """The stages that were observed."""
    first: Divergence | None = None
    right: tuple[str, ...] = ()
    """The stages before it that were observed and agree."""


def with_backward_stages(case: Case, problem: BackwardProblem) -> tuple[Case, tuple[str, ...]]:
    """Add the first divergence and what was seen; also return the stages before it that are right."""
    kernel, shape = case.kernel, problem.workload.shape
    assert kernel is not None
    if shape.b * shape.hq * shape.sq * shape.skv > MOST_SCORES:
        return replace(case, not_recorded=f"more than {MOST_SCORES} scores are too many to record: shrink the case"), ()
    try:
        found = wrong_stage(kernel, problem)
    except WeftError as error:  # what cannot be recorded is not observed
        return replace(case, not_recorded=str(error)), ()
    return replace(case, stages_seen=found.seen, divergence=found.first), found.right


def wrong_stage(kernel: KernelFile, problem: BackwardProblem) -> BackwardStages:
    """Record all CTAs of all launches and return the first wrong stage."""
    provenance = _recorded(kernel, problem)
    compared = _compared(provenance.board, problem)
    seen = tuple(stage for stage in STAGES if any(name == stage for name, _ in compared))
    found = _first_wrong(compared)
    if found is None:
        return BackwardStages(seen)
    before = seen[: seen.index(found[0])]
    wrong = {name for (name, _), each in compared.items() if each.wrong.any()}
    first = _divergence(found, compared[found], provenance.nodes, kernel, problem)
    return BackwardStages(seen, first, tuple(stage for stage in before if stage not in wrong))


class EveryCta(RecordingGPU):
    """Records every CTA: those of dK and dV read what all of delta's wrote."""

    def _linear(self, grid: Dim3) -> list[int]:
        return list(range(grid[0] * grid[1] * grid[2]))


def _recorded(kernel: KernelFile, problem: BackwardProblem) -> BackwardProvenance:
    sizes = Sizes(problem.workload.shape)
    rows, words = sizes.q_rows, sizes.words
    board = BackwardBoard(sizes, np.full((rows, words), ~np.uint64(0)), block_n=problem.workload.shape.skv)
    provenance = BackwardProvenance(Nodes(sizes), BackwardAlgebra(sizes), board, ARITHMETIC)
    provenance.seed_all(problem.arrays)
    gpu = EveryCta(kernel.gpu, provenance, (0, 0), whole=False)
    kernel.run(gpu, {name: array.copy() for name, array in problem.arrays.items()})
    return provenance


def _compared(board: BackwardBoard, problem: BackwardProblem) -> dict[tuple[str, int], ComparedStage]:
    """Return every observed stage of every launch."""
    gold, dtype = problem.gold, problem.workload.dtype
    errors = problem.call.stage_errors(gold, dtype)
    rounding = {name: ulp(getattr(gold, name), dtype) + UNDERFLOW for name in ("p", "ds")}
    tolerance = {**errors, **{name: 2 * errors[name] + rounding[name] for name in rounding}, **problem.limits}
    # Scores may be exponents of 2, and those of a kernel with the wrong exponential are right in either unit.
    unit = math.log(2) if all(abs(unit - math.log(2)) < 1e-3 for unit in board.units) and board.units else 1.0
    visible = np.broadcast_to(problem.forward.mask, gold.p.shape)
    found: dict[tuple[str, int], ComparedStage] = {}
    for stage, launch in sorted(board.by_launch):
        if stage not in STAGES:
            continue
        sheet, expected = board.by_launch[stage, launch], getattr(gold, stage)
        actual = sheet.values.reshape(expected.shape) * (unit if stage == "scores" else 1.0)
        observed = (sheet.event != 0).reshape(expected.shape)
        if stage == "scores":  # a mask may be applied before or after them
            observed = observed & visible
        allowed = np.broadcast_to(tolerance[stage], expected.shape)
        if observed.any():
            wrong = differs(actual, expected, allowed) & observed
            if stage == "scores":
                wrong &= differs(sheet.values.reshape(expected.shape), expected, allowed)
            if stage in ("dp", "delta"):  # one of them may be negated before they are added
                wrong &= differs(-actual, expected, allowed)
            found[stage, launch] = ComparedStage(sheet, actual, expected, allowed, observed, wrong)
    return found


def _first_wrong(compared: Mapping[tuple[str, int], ComparedStage]) -> tuple[str, int] | None:
    """Return the earliest stage, and the first launch with it, that differs and makes what follows it wrong."""

    def matters(stage: str, launch: int) -> bool:
        if not compared[stage, launch].wrong.any():
            return False
        same = launch if stage != "delta" else None  # a separate launch computes it for the others
        users = [key for key in compared if key[0] in CONSUMERS.get(stage, ()) and same in (None, key[1])]
        return not users or any(matters(*key) for key in users)

    ordered = sorted(compared, key=lambda key: (STAGES.index(key[0]), key[1]))
    return next((key for key in ordered if matters(*key)), None)


def _divergence(
    key: tuple[str, int], found: ComparedStage, nodes: Nodes, kernel: KernelFile, problem: BackwardProblem
) -> Divergence:
    stage, _ = key
    index = first_index(found.wrong)
    flat = int(np.ravel_multi_index(index, found.wrong.shape))
    where = np.nonzero(found.wrong)
    actual, wanted = float(found.actual[index]), float(found.expected[index])
    label = f"{stage}[{', '.join(map(str, index))}]"
    site = own_site(_site(found.sheet, flat, nodes, kernel, stored=_is_multiple(stage, found)), kernel)
    return Divergence(
        stage=stage,
        tile=None,
        keys=range(problem.workload.shape.skv),
        index=index,
        site=site,
        heads=heads_of(where[0], where[1]),
        rows=ranges(where[2]),
        columns="" if found.wrong.ndim < 4 else ranges(where[3]),
        share=float(found.wrong.sum() / found.observed.sum()),
        wrong=found.wrong,
        observed=found.observed,
        actual=np.where(found.observed, found.actual, math.nan),
        expected=found.expected,
        tolerance=found.tolerance,
        arithmetic=(f"{label} should be {FORMULAS[stage]} = {wanted:.6g}", f"the kernel has {actual:.6g}"),
    )


def _is_multiple(stage: str, found: ComparedStage) -> bool:
    """Whether a gradient is the right one times a constant: its sum is right, and what it is scaled with is not."""
    if stage not in GRADIENTS:
        return False
    actual, expected = (x[found.observed] for x in (found.actual, found.expected))
    norm = float((expected * expected).sum())
    if not np.isfinite(actual).all() or norm == 0.0:
        return False
    factor = float((actual * expected).sum()) / norm
    allowed = (1 + abs(factor)) * found.tolerance[found.observed]
    return not differs(actual, factor * expected, allowed).any()


def _site(sheet: Sheet, flat: int, nodes: Nodes, kernel: KernelFile, *, stored: bool) -> Site:
    """Return who computed an element, or who used or `stored` it.

    The line is the kernel's own: functions that a CUDA kernel calls, such as a sum of a warp, compute several stages.
    """
    node = 0 if stored else int(sheet.node.reshape(-1)[flat])
    made = int(nodes.event_of[node]) if node else 0
    number = made or int(sheet.event.reshape(-1)[flat])
    lane = int(nodes.lane_of[node]) if made else int(sheet.lane.reshape(-1)[flat])
    event = nodes.events[number]
    chain = tuple(inlining_chain(event.place))
    place = own_line(event.place) if kernel.source.is_triton or not chain else chain[-1]
    return Site(place, event.ptx_line, event.opcode, event.launch, event.cta, event.warp, lane)
