"""A result as plain data, for JSON."""

from .run import BenchResult, Row
from .statistics import CONFIDENCE, Interval


def record(result: BenchResult) -> dict[str, object]:
    """Everything, samples included: whoever doubts a conclusion can draw it again."""
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


def _row(row: Row) -> dict[str, object]:
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
