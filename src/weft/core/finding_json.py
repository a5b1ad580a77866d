"""Findings as plain data and back: the only JSON format, documented in docs/reference/verdict_json.md."""

import math
from collections.abc import Mapping
from typing import Any

from .finding_codes import FINDING_CODES, Severity
from .records import Dim3, Finding, Place, Suppressed, inlining_chain


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON record."""
    row = FINDING_CODES[finding.code]
    return {
        "code": finding.code,
        "title": row.name,
        "tool": row.tool,
        "severity": str(finding.level),
        "message": finding.message,
        "cure": finding.remedy,
        "cure_at": _line_record(finding.cure_place),
        "name": finding.name,
        **_place_record(finding.place),
        "ptx_line": finding.ptx_line,
        "cta": list(finding.cta),
        "warp": finding.warp,
        "lanes": finding.lanes,
        "address": finding.address,
        "count": finding.count,
        "other": _other_record(finding),
    }


def suppressed_record(suppressed: Suppressed) -> dict[str, Any]:
    """Return the record of a finding that the source allows, with its reason."""
    return {**finding_record(suppressed.finding), "reason": suppressed.reason}


def finding_of(record: Mapping[str, Any]) -> Finding:
    """Read what `finding_record` wrote. Raises ValueError, KeyError or TypeError, because a child may send any data."""
    code, severity = str(record["code"]), Severity(record["severity"])
    if code not in FINDING_CODES:
        raise ValueError(f"no finding has the code {code!r}")
    row, other = FINDING_CODES[code], record["other"]
    at = record.get("cure_at")  # older records have none
    apart = None if other is None else other.get("cta")  # older records have none
    return Finding(
        code,
        str(record["message"]),
        ptx_line=_integer(record["ptx_line"]),
        place=_place_of(record),
        cta=_cta(record["cta"]),
        warp=_integer(record["warp"]),
        lanes=_integer(record["lanes"]),
        address=_integer(record["address"]),
        count=_integer(record["count"]),
        severity="" if severity is row.severity else severity,
        cure="" if record["cure"] == row.cure else str(record["cure"]),
        name=str(record["name"]),
        other=None if other is None else _place_of(other),
        other_warp=-1 if other is None or other["warp"] is None else _integer(other["warp"]),
        other_lanes=0 if other is None else _integer(other["lanes"]),
        other_cta=None if apart is None else _cta(apart),
        cure_place=None if at is None else Place(str(at["file"]), _integer(at["line"])),
    )


def suppressed_of(record: Mapping[str, Any]) -> Suppressed:
    """Read what `suppressed_record` wrote."""
    return Suppressed(finding_of(record), str(record["reason"]))


def number_record(value: float) -> float | str:
    """Return a number, or its name as text, because JSON has neither infinity nor NaN."""
    return float(value) if math.isfinite(value) else str(float(value))


def _other_record(finding: Finding) -> dict[str, Any] | None:
    if finding.other is None and finding.other_warp < 0:
        return None
    warp = finding.other_warp if finding.other_warp >= 0 else None
    cta = list(finding.other_cta) if finding.other_cta is not None else None
    return {**_place_record(finding.other), "cta": cta, "warp": warp, "lanes": finding.other_lanes}


def _cta(record: Any) -> Dim3:
    x, y, z = record
    return _integer(x), _integer(y), _integer(z)


def _line_record(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {"file": place.file, "line": place.line}


def _place_record(place: Place | None) -> dict[str, Any]:
    """Return the line, and the calls it was inlined into, from the inside outwards."""
    if place is None:
        return {"file": None, "line": None, "column": None, "inlined_at": []}
    here, *calls = ({"file": at.file, "line": at.line, "column": at.column} for at in inlining_chain(place))
    return {**here, "inlined_at": calls}


def _place_of(record: Mapping[str, Any]) -> Place | None:
    if record["file"] is None:
        return None
    place = None
    for at in reversed([record, *record["inlined_at"]]):
        place = Place(str(at["file"]), _integer(at["line"]), _integer(at["column"]), place)
    return place


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} in a finding is not an integer")
    return value
