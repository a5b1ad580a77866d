"""Verdicts as plain data and back: the JSON format of `--json`, agents, the store, reports and bundles.

docs/reference/verdict_json.md documents every field; raise VERSION when one changes its meaning.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.attention.error_report import Block, ErrorReport
from weft.attention.gates import GateResult
from weft.attention.shapes import Shape
from weft.core.finding_json import finding_of, finding_record, number_record, suppressed_of, suppressed_record
from weft.core.records import Finding
from weft.core.status import Status
from weft.coverage.records import Coverage
from weft.tasks.task import Workload

from .scope import Scope
from .shape_errors import shape_errors
from .verdict import Sample, Verdict, conclude

VERSION = 1


def check_record(
    verdicts: Mapping[str, Iterable[Verdict]],
    planned: Mapping[str, int],
    covered: Mapping[str, Coverage],
    *,
    scopes: Mapping[str, Scope],
    hidden_seeds: Sequence[int] = (),
) -> dict[str, Any]:
    """Return what `weft check --json` prints: the verdicts on each target and the conclusion from them."""
    targets = {name: _target(rows, planned[name], covered[name], scopes[name]) for name, rows in verdicts.items()}
    return {"version": VERSION, "hidden_seeds": list(hidden_seeds), "targets": targets}


def _target(verdicts: Iterable[Verdict], planned: int, coverage: Coverage, scope: Scope) -> dict[str, Any]:
    rows = list(verdicts)
    found = conclude(rows, planned)
    return {
        "status": str(found.status),
        "message": found.message,
        "judged": found.judged,
        "planned": found.planned,
        "errors": [errors.to_record() for errors in shape_errors(rows)],
        "verdicts": [verdict_record(row) for row in rows],
        "coverage": coverage.to_record(),
        **scope.record(),
    }


def verdict_record(verdict: Verdict, *, timed: bool = True, findings: int | None = None) -> dict[str, Any]:
    """Return a verdict in its JSON form.

    Without `timed` the same candidate always gives the same record. `findings` limits how many are spelled out;
    `findings_in_all` counts them.
    """
    shown: tuple[Finding, ...] = verdict.findings[:findings]
    record = {
        "version": VERSION,
        "status": str(verdict.status),
        "message": verdict.message,
        "workload": workload_record(verdict.workload),
        "debug_build": verdict.debug_build,
        "large_sizes": verdict.large_sizes,
        "limit": verdict.limit,
        "findings": [finding_record(finding) for finding in shown],
        "findings_in_all": len(verdict.findings),
        "suppressed": [suppressed_record(item) for item in verdict.suppressed],
        "gates": [_gate_record(gate) for gate in verdict.gates],
        "error": _error_record(verdict.error),
        "parts": {name: _error_record(part) for name, part in verdict.parts.items()},
        "samples": [
            {"index": list(each.index), "out": number_record(each.out), "expected": number_record(each.expected)}
            for each in verdict.samples
        ],
        "not_judged": list(verdict.not_judged),
        "order_dependent": list(verdict.order_dependent),
        "ctas_left_out": verdict.ctas_left_out,
    }
    return {**record, "seconds": verdict.seconds} if timed else record


def verdict_of(record: Mapping[str, Any]) -> Verdict:
    """Read what `verdict_record` wrote. Raises ValueError, KeyError or TypeError for anything else."""
    if record["version"] != VERSION:
        raise ValueError(f"a verdict of version {record['version']}; this Weft reads version {VERSION}")
    return Verdict(
        workload_of(record["workload"]),
        Status(record["status"]),
        str(record["message"]),
        tuple(_gate_of(gate) for gate in record["gates"]),
        None if record["error"] is None else _error_of(record["error"]),
        parts={str(name): _error_of(part) for name, part in record["parts"].items()},
        not_judged=tuple(str(name) for name in record["not_judged"]),
        order_dependent=tuple(str(name) for name in record.get("order_dependent", ())),  # older records have none
        samples=tuple(
            Sample(tuple(int(i) for i in each["index"]), float(each["out"]), float(each["expected"]))
            for each in record["samples"]
        ),
        findings=tuple(finding_of(finding) for finding in record["findings"]),
        suppressed=tuple(suppressed_of(item) for item in record["suppressed"]),
        ctas_left_out=int(record["ctas_left_out"]),
        debug_build=bool(record["debug_build"]),
        large_sizes=bool(record.get("large_sizes", False)),  # older records have none
        limit=bool(record.get("limit", False)),
        seconds=float(record.get("seconds", 0.0)),
    )


def workload_record(workload: Workload) -> dict[str, Any]:
    """Return a workload in its JSON form."""
    shape = workload.shape
    return {
        "text": str(workload),
        "shape": shape.name,
        "sizes": {axis.name: getattr(shape, axis.name) for axis in dataclasses.fields(shape) if axis.name != "name"},
        "dtype": workload.dtype,
        "mask": workload.mask,
        "encoding": workload.encoding,
        "regime": workload.regime,
        "seed": workload.seed,
    }


def workload_of(record: Mapping[str, Any]) -> Workload:
    """Read what `workload_record` wrote."""
    shape = Shape(str(record["shape"]), **{str(name): int(size) for name, size in record["sizes"].items()})
    names = {axis: str(record[axis]) for axis in ("dtype", "mask", "regime", "encoding")}
    return Workload(shape, seed=int(record["seed"]), **names)


def _gate_record(gate: GateResult) -> dict[str, Any]:
    return {
        "gate": gate.gate,
        "passed": gate.passed,
        "error": number_record(gate.error),
        "limit": number_record(gate.limit),
        "where": dataclasses.asdict(gate.worst),
    }


def _gate_of(record: Mapping[str, Any]) -> GateResult:
    block = Block(**{str(name): int(value) for name, value in record["where"].items()})
    return GateResult(
        str(record["gate"]), bool(record["passed"]), block, float(record["error"]), float(record["limit"])
    )


def _error_record(error: ErrorReport | None) -> dict[str, Any] | None:
    if error is None:
        return None
    figures = {name: getattr(error, name) for name in _FIGURES}
    return {
        **{name: number_record(value) for name, value in figures.items()},
        "sign_flips": error.sign_flips,
        "worst": list(error.worst),
    }


def _error_of(record: Mapping[str, Any]) -> ErrorReport:
    figures = {name: float(record[name]) for name in _FIGURES}
    return ErrorReport(**figures, sign_flips=int(record["sign_flips"]), worst=tuple(int(i) for i in record["worst"]))


_FIGURES = ("max", "mean", "bias", "rel_l2", "cosine", "rmse", "bad_share")
