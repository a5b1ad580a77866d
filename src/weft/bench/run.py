"""One workload: times contenders, judges their outputs, compares with the baseline, and notes what limits it."""

from collections.abc import Sequence
from dataclasses import dataclass

from weft.engines.cuda_device import CudaDevice
from weft.tasks.task import Problem

from .contender import Contender
from .measure import BenchSettings, Cache, Measured, measure
from .statistics import CONFIDENCE, Comparison, Interval, check_samples, compare, find_drift, interval


@dataclass(frozen=True)
class BenchRow:
    """One contender."""

    name: str
    detail: str
    time_ms: Interval
    against: Comparison | None
    """Comparison with the baseline; None for the baseline itself."""
    wrong: str
    """What is wrong with its outputs; empty if they are right."""
    samples_ms: tuple[float, ...]


@dataclass(frozen=True)
class BenchResult:
    """The results of a workload with one state of the cache."""

    gpu: str
    arch: str
    workload: str
    cache: Cache
    rows: tuple[BenchRow, ...]
    """The baseline first."""
    clocks_mhz: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether all outputs were right."""
        return not any(row.wrong for row in self.rows)


def bench(
    device: CudaDevice, contenders: Sequence[Contender], problems: Sequence[Problem], settings: BenchSettings
) -> BenchResult:
    """Time contenders, the baseline first, on several draws of one workload. Raises BadTiming if the timer failed."""
    measured = measure(device, contenders, problems, settings)
    rows = []
    for contender in contenders:
        times = measured.times_ms[contender.name]
        check_samples(times)
        baseline = contenders[0].name
        against = None if contender.name == baseline else compare(times, measured.times_ms[baseline])
        wrong = [contender.judge(problems[each.problem], each.outputs) for each in measured.kept[contender.name]]
        rows.append(
            BenchRow(contender.name, contender.detail, interval(times), against, next(filter(None, wrong), ""), times)
        )
    return BenchResult(
        device.name,
        device.arch,
        _without_seed(problems[0]),
        settings.cache,
        tuple(rows),
        measured.clocks_mhz,
        tuple(_notes(measured)),
    )


def _without_seed(problem: Problem) -> str:
    return str(problem.workload).rpartition(" seed ")[0]


def _notes(measured: Measured) -> list[str]:
    notes = [measured.clocks_missing] if measured.clocks_missing else []
    for name, rounds in measured.host_bound.items():
        if rounds:
            notes.append(f"{name}: in {rounds} rounds the GPU waited for the host; those times include host overhead")
    change = find_drift(measured.clocks_mhz)
    if change is not None:
        notes.append(f"the clock drifted by {100 * change:+.1f} %: absolute times are not reliable, ratios still are")
    for name, times in measured.times_ms.items():
        change = find_drift(times)
        if change is not None:
            notes.append(f"{name} drifted by {100 * change:+.1f} % in time from the first third to the last")
    if measured.clock_reasons:
        notes.append(f"the clock was limited by: {', '.join(measured.clock_reasons)}")
    return notes


def record(result: BenchResult) -> dict[str, object]:
    """Return everything, samples included, so that a conclusion can be computed again."""
    return {
        "gpu": result.gpu,
        "arch": result.arch,
        "workload": result.workload,
        "l2": str(result.cache),
        "confidence": CONFIDENCE,
        "rows": [_row(row) for row in result.rows],
        "clocks_mhz": list(result.clocks_mhz),
        "notes": list(result.notes),
    }


def _row(row: BenchRow) -> dict[str, object]:
    against = row.against
    return {
        "name": row.name,
        "detail": row.detail,
        "time_ms": _interval(row.time_ms),
        "answer": str(against.answer) if against else "baseline",
        "ratio": _interval(against.ratio) if against else None,
        "right": not row.wrong,
        "wrong": row.wrong,
        "samples_ms": list(row.samples_ms),
    }


def _interval(found: Interval) -> dict[str, float]:
    return {"median": found.median, "low": found.low, "high": found.high}
