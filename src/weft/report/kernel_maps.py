"""Error maps: of the output that failed first, of the output of the smallest case, and of the first wrong stage."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.error_report import difference
from weft.core.errors import WeftError
from weft.diagnose.compare import BY_KEY, differs
from weft.diagnose.diagnose import NEVER_ENDS, RAN
from weft.diagnose.outlines import outlines
from weft.diagnose.records import Diagnosis
from weft.diagnose.shown import case_line
from weft.diagnose.tolerance import Tolerance
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.verdict import Verdict
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.declared import algorithms_of
from weft.tasks.task import Declared, Problem, Task, Workload

from .records import ErrorMap

MOST_CELLS = 72_000
"""Limit of cells of a map, all slices together."""
MOST_ROWS, MOST_COLUMNS = 512, 256
"""Limits of rows and columns of a slice."""
MOST_SLICES = 64
MOST_EXACT = 8_192
"""Limit of elements of a slice up to which the values of the worst slice are kept in addition to the error."""


def maps_of(
    candidate: Candidate, task: Task, verdict: Verdict, diagnosis: Diagnosis | None
) -> tuple[tuple[ErrorMap, ...], str]:
    """Return the maps, or the reason why there is none."""
    if verdict.status not in RAN:
        return (), f"the kernel left no output: {verdict.status}"
    if any(finding.code in NEVER_ENDS for finding in verdict.findings):
        return (), "the kernel does not end"
    try:
        found = [_whole(candidate, task, verdict)]
    except WeftError as error:
        return (), f"the kernel could not be run again: {error}"
    if diagnosis is not None and not diagnosis.healthy:
        if diagnosis.verdict.workload != verdict.workload:
            found += _smallest(diagnosis)
        found += _first_stage(diagnosis)
    return tuple(found), ""


def _blank(name: str, about: str) -> ErrorMap:
    return ErrorMap(name, about, "query", "column", (), np.zeros((0, 0, 0)))


@dataclass(frozen=True)
class Yardstick:
    """What an output is compared with."""

    expected: Array
    limits: Array | None
    name: str


def _yardstick(task: Task, problem: Problem, declared: Declared, out: Array) -> Yardstick:
    """Return the yardstick of the tight gate: the kernel's algorithm, per element; for other tasks their reference."""
    first = task.outputs[0].name
    attention = isinstance(problem, AttentionProblem) and problem.has_stages and problem.is_dense and first == "o"
    if not attention or out.shape != problem.workload.shape.q:
        return Yardstick(task.reference(problem)[first], None, "compared with the reference in float64")
    assert isinstance(problem, AttentionProblem)
    tried = []
    for algorithm in algorithms_of(declared, problem.workload.encoding, problem.workload.dtype):
        expected = problem.emulated(algorithm).o
        limits = Tolerance(problem, algorithm, {("o", None): expected}).of("o", None)
        wrong = differs(out.astype(np.float64), expected.astype(np.float64), limits)
        tried.append((int(wrong.sum()), Yardstick(expected, limits, "compared with its algorithm, emulated")))
    return min(tried, key=lambda each: each[0])[1]


def _about(work: Workload) -> str:
    shape = work.shape
    sizes = f"B={shape.b} HQ={shape.hq} HKV={shape.hkv} SQ={shape.sq} SKV={shape.skv} D={shape.d}"
    return f"{sizes} · {work}"


def _whole(candidate: Candidate, task: Task, verdict: Verdict) -> ErrorMap:
    """Return the map of the workload, which runs again."""
    problem = task.draw(verdict.workload)
    kernel = candidate.load(problem)
    inputs: Mapping[str, Array] = {name: array.copy() for name, array in problem.arrays.items()}
    _, arrays = kernel.run(VirtualGPU(kernel.gpu), inputs)
    first = task.outputs[0].name
    state = "as it failed first" if not verdict.passed else "closest to its limit"
    declared = candidate.declared_at(kernel, problem)
    held = _yardstick(task, problem, declared, arrays[first])
    blank = _blank(f"{first.upper()} {state}", f"{_about(verdict.workload)} · {held.name}")
    block_m = declared.macros.get("BLOCK_M", "")
    rows = verdict.workload.shape.sq
    if str(block_m).isdigit() and arrays[first].shape[-2:-1] == (rows,):
        blank = replace(blank, tiles=tuple(range(int(block_m), rows, int(block_m))))
    return error_map(blank, arrays[first], held.expected, limits=held.limits)


def _smallest(diagnosis: Diagnosis) -> list[ErrorMap]:
    case = diagnosis.case
    if case.attention is None or case.o is None or case.o.shape != case.attention.gold.o.shape:
        return []
    assert case.kernel is not None  # it ran
    declared = case.candidate.declared_at(case.kernel, case.problem)
    held = _yardstick(case.task, case.problem, declared, case.o)
    blank = _blank("O, smallest failing case", f"{case_line(diagnosis)} · {held.name}")
    made = error_map(blank, case.o, held.expected, limits=held.limits)
    heads = case.o.shape[1]
    lines = outlines(case, case.taps.at("o") if case.taps else None, divmod(made.first_slice, heads))
    return [replace(made, tiles=lines.tiles, warps=lines.warps, warp_columns=lines.warp_columns)]


def _first_stage(diagnosis: Diagnosis) -> list[ErrorMap]:
    case, first = diagnosis.case, diagnosis.first
    if first is None or first.stage == "o" or first.expected.ndim not in (3, 4):
        return []
    by_key = first.stage in BY_KEY
    of_keys = first.stage in ("k", "v")
    name = f"{first.name}, first wrong stage"
    blank = replace(
        _blank(name, f"{case_line(diagnosis)}; grey: not observed"),
        row_name="key" if of_keys else "query",
        column_name="key" if by_key else "column",
        first_row=first.keys.start if of_keys else 0,
        first_column=first.keys.start if by_key else 0,
    )
    made = error_map(blank, first.actual, first.expected, observed=first.observed, limits=first.tolerance)
    if case.attention is None or of_keys:
        return [made]
    tap = case.taps.at(first.stage, first.tile) if case.taps is not None else None
    lines = outlines(case, tap, divmod(made.first_slice, first.expected.shape[1]))
    return [replace(made, tiles=lines.tiles, warps=lines.warps, warp_columns=lines.warp_columns)]


def error_map(
    blank: ErrorMap, actual: Array, expected: Array, *, observed: Array | None = None, limits: Array | None = None
) -> ErrorMap:
    """Add the slices, the error and, for few elements, the values to `blank`, which has the name.

    With `limits`, one for each element, the error is in units of the limits.
    """
    labels = _labels(actual.shape)
    out, want = (_three_axes(array.astype(np.float64)) for array in (actual, expected))
    error = np.abs(difference(out, want))
    allowed = None if limits is None else _three_axes(np.broadcast_to(limits, actual.shape))
    if allowed is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(error == 0, 0.0, error / allowed)
    if observed is not None:
        error = np.where(_three_axes(observed), error, np.nan)
    worst = np.nanmax(np.where(np.isnan(error), -1.0, error), axis=(1, 2))
    kept = np.sort(np.argsort(-worst, kind="stable")[:MOST_SLICES])
    made = replace(
        blank,
        slices=tuple(labels[i] for i in kept),
        error=error[kept],
        first_slice=int(np.argmax(worst[kept])),
        relative=allowed is not None,
    )
    made = _pooled(made)
    if error[0].size > MOST_EXACT or made.error.shape != error[kept].shape:
        return made
    at = kept[made.first_slice]
    return replace(made, actual=out[at], expected=want[at], limits=None if allowed is None else allowed[at])


def _labels(shape: tuple[int, ...]) -> tuple[str, ...]:
    lead = shape[:-2] if len(shape) != 3 else shape[:2]
    if len(lead) == 2:
        return tuple(f"batch {b} head {h}" for b in range(lead[0]) for h in range(lead[1]))
    return tuple(f"slice {', '.join(map(str, index))}" if index else "all" for index in np.ndindex(*lead))


def _three_axes(array: Array) -> Array:
    """Return (b, h, rows, columns) as (slices, rows, columns); (b, h, rows) has one column."""
    if array.ndim == 3:
        array = array[..., None]
    while array.ndim < 2:
        array = array[None]
    return array.reshape(prod(array.shape[:-2]), *array.shape[-2:])


def _pooled(made: ErrorMap) -> ErrorMap:
    """Return the worst error of each cell, with the fewest elements per cell that the page's size allows."""
    count, rows, columns = made.error.shape
    down, across = ceil(rows / MOST_ROWS), ceil(columns / MOST_COLUMNS)
    while count * ceil(rows / down) * ceil(columns / across) > MOST_CELLS:
        if rows / down >= columns / across or across >= columns:
            down += 1
        else:
            across += 1
    if down == across == 1:
        return made
    padded = np.full((count, ceil(rows / down) * down, ceil(columns / across) * across), -1.0)
    padded[:, :rows, :columns] = np.where(np.isnan(made.error), -1.0, made.error)
    cells = padded.reshape(count, padded.shape[1] // down, down, padded.shape[2] // across, across).max(axis=(2, 4))
    return replace(made, error=np.where(cells < 0, np.nan, cells), rows_per_cell=down, columns_per_cell=across)
