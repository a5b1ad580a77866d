"""Verdicts that passed → for each shape, the workload that came nearest to the limit of a gate, and its errors.

Errors of different regimes have different units, so all figures of one row belong to one workload.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft.attention.error_report import ErrorReport
from weft.attention.gates import GateResult
from weft.attention.shapes import SHAPES
from weft.core.finding_json import number_record
from weft.tasks.task import Workload

from .verdict import Verdict

OWN_SIZES = "the kernel's own sizes"
"""The row of workloads at sizes where the kernel takes another branch."""


@dataclass(frozen=True)
class ShapeErrors:
    """The passed workloads of one shape, by the one that came nearest to a limit."""

    shape: str
    passed: int
    """Number of workloads that passed."""
    worst: Workload
    error: ErrorReport
    """Error of `worst` relative to the float64 reference."""
    gate: GateResult | None
    """The gate of `worst` that is nearest to its limit; None if the task has none."""

    def to_record(self) -> dict[str, Any]:
        """Return it in its JSON form; the workload's own verdict has all its figures."""
        gate = self.gate
        return {
            "shape": self.shape,
            "passed": self.passed,
            "worst": str(self.worst),
            "max": number_record(self.error.max),
            "mean": number_record(self.error.mean),
            "bad_share": number_record(self.error.bad_share),
            "gate": "" if gate is None else gate.gate,
            "gate_error": None if gate is None else number_record(gate.error),
            "gate_limit": None if gate is None else number_record(gate.limit),
        }


def row_of(verdict: Verdict) -> str:
    """Return the row of a verdict in a table by shape: its shape, or one row for all the kernel's own boundaries."""
    name = verdict.workload.shape.name
    return name if name in SHAPES else OWN_SIZES


def shape_errors(verdicts: Iterable[Verdict]) -> tuple[ShapeErrors, ...]:
    """Return the errors of each shape with a passed workload, in the order of the verdicts."""
    rows: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.passed and not verdict.extra and verdict.error is not None:
            rows.setdefault(row_of(verdict), []).append(verdict)
    return tuple(_errors(name, passed) for name, passed in rows.items())


def _errors(name: str, passed: list[Verdict]) -> ShapeErrors:
    worst = max(passed, key=lambda verdict: max(map(_used, verdict.gates), default=0.0))
    assert worst.error is not None
    return ShapeErrors(name, len(passed), worst.workload, worst.error, max(worst.gates, key=_used, default=None))


def _used(gate: GateResult) -> float:
    """Return the error divided by its limit; 0 where both are 0."""
    return gate.error / gate.limit if gate.limit > 0 else 0.0
