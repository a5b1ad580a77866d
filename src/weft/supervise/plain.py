"""Findings and verdicts as plain data, and findings back."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from weft.core.finding_codes import FINDING_CODES, Severity
from weft.core.records import Finding, Place
from weft.judge.verdict import Verdict

SHOWN_FINDINGS = 20
"""Of a verdict's record; all are counted."""


def finding_record(finding: Finding) -> dict[str, Any]:
    """As JSON has it."""
    return dataclasses.asdict(finding)


def finding_of(record: Mapping[str, Any]) -> Finding:
    """Raises ValueError, KeyError or TypeError for what is no finding: a child may send anything."""
    x, y, z = record["cta"]
    finding = Finding(
        **{
            **record,
            "place": _place(record["place"]),
            "other": _place(record["other"]),
            "cta": (int(x), int(y), int(z)),
        }
    )
    if finding.code not in FINDING_CODES or finding.severity not in ("", *Severity):
        raise ValueError(f"no finding has the code {finding.code!r} and the severity {finding.severity!r}")
    for number in (finding.ptx_line, finding.warp, finding.lanes, finding.address, finding.count, finding.other_lanes):
        if not isinstance(number, int):
            raise TypeError(f"{number!r} in a finding is no integer")
    return finding


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """What a reader, or a proposer that repairs, needs of a failure. Without times, so that it is always the same."""
    work = verdict.workload
    return {
        "workload": {
            "text": str(work),
            "shape": work.shape.name,
            "dtype": work.dtype,
            "mask": work.mask,
            "regime": work.regime,
            "seed": work.seed,
            "encoding": work.encoding,
        },
        "status": verdict.status.value,
        "message": verdict.message,
        "debug_build": verdict.debug_build,
        "gates": [
            {
                "gate": gate.gate,
                "passed": gate.passed,
                "error": _number(gate.error),
                "limit": _number(gate.limit),
                "where": str(gate.worst),
            }
            for gate in verdict.gates
        ],
        "samples": [
            {"index": list(sample.index), "out": _number(sample.out), "expected": _number(sample.expected)}
            for sample in verdict.samples
        ],
        "findings": [str(finding) for finding in verdict.findings[:SHOWN_FINDINGS]],
        "findings_in_all": len(verdict.findings),
    }


def _place(record: Mapping[str, Any] | None) -> Place | None:
    if record is None:
        return None
    return Place(str(record["file"]), int(record["line"]), int(record["column"]), _place(record["inlined_at"]))


def _number(value: float) -> float | str:
    """JSON has neither infinity nor NaN."""
    return float(value) if math.isfinite(value) else str(value)
