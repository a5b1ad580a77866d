"""A diagnosis as text and as JSON."""

import math
from collections.abc import Iterator

from weft.core.finding_json import finding_record
from weft.core.finding_text import excerpt
from weft.core.records import Place
from weft.diagnose.conclusion import cure_of, known_as, place_of, sentence, stage_of
from weft.diagnose.records import Diagnosis, Divergence, name_of
from weft.diagnose.shown import case_line, row_excerpt, verify_command, where_wrong
from weft.diagnose.suspects import suspects
from weft.tasks.task import Workload

SHOWN_FINDINGS = 5
SHOWN_WARNINGS = 3
WORTH_SAYING = 0.5
"""Explanations of a lower rank are only in --json, unless there is no other."""
_MARGIN = 13


def text(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the lines of the text, the most important first."""
    path = diagnosis.case.candidate.path
    if diagnosis.healthy:
        warned = ", with warnings" if diagnosis.other_findings else ""
        yield f"{path}: nothing to diagnose: {diagnosis.judged} workloads passed in {diagnosis.seconds:.1f} s{warned}"
        for finding in diagnosis.other_findings[:SHOWN_FINDINGS]:
            yield from _row("warning", str(finding))
        return
    yield f"{place_of(diagnosis) or path}: {diagnosis.verdict.status}: {sentence(diagnosis)}"
    yield from excerpt(place_of(diagnosis))
    yield from _row("case", case_line(diagnosis))
    if not diagnosis.verdict.passed and not diagnosis.causes:
        yield from _row("verdict", diagnosis.verdict.message)
    if diagnosis.proven_right:
        yield from _row("right", _grouped(diagnosis.proven_right))
    if diagnosis.case.lost is not None:
        yield from _row(
            "lost at", f"{name_of(diagnosis.case.lost)}: not observed, or only in part; all before it is right"
        )
    if diagnosis.first is not None:
        yield from _divergence(diagnosis.first)
    taps = diagnosis.case.taps
    for fact in taps.facts if taps is not None else ():
        message = "; ".join(fact.message.split("; ")[:2])
        yield from _row("dataflow", f"{message} ({fact.count} elements of O)")
    for launch in diagnosis.launches:
        yield from _row("launch alone", f"{launch.entry}: {launch.message}")
    yield from _findings(diagnosis)
    for number, signature in enumerate(diagnosis.signatures):
        if number == 0 or signature.rank >= WORTH_SAYING:
            said = "" if signature.message == sentence(diagnosis) else f": {signature.message}"
            yield from _row("known as", f"{known_as(signature)}{said}")
    if diagnosis.not_observed:
        yield from _row("not observed", f"{', '.join(diagnosis.not_observed)}: {diagnosis.not_observed_because}")
    if diagnosis.case.not_parsed:
        yield from _row("not traced", f"the lines that this one is computed from: {diagnosis.case.not_parsed}")
    for warning in diagnosis.case.compiler_says[:SHOWN_WARNINGS]:
        yield from _row("compiler", str(warning))
    for number, suspect in enumerate(suspects(diagnosis)):
        yield from _row("inspect" if number == 0 else "", f"line {suspect.place.line}: {suspect.evidence}")
    if cure := cure_of(diagnosis):
        yield from _row("cure", cure)
    if diagnosis.fix is not None:
        yield from _row("fix", f"{diagnosis.fix.diff}\npasses {diagnosis.fix.workloads} workloads with all checkers")
    yield from _row("verify", verify_command(diagnosis))


def record(diagnosis: Diagnosis) -> dict[str, object]:
    """Return the diagnosis as one JSON object."""
    verdict, first = diagnosis.verdict, diagnosis.first
    taps = diagnosis.case.taps
    return {
        "kernel": str(diagnosis.case.candidate.path),
        "status": str(verdict.status),
        "healthy": diagnosis.healthy,
        "message": "" if diagnosis.healthy else sentence(diagnosis),
        "place": _place(place_of(diagnosis)),
        "inspect": [{"place": _place(each.place), "evidence": each.evidence} for each in suspects(diagnosis)],
        "computed_from": [_place(at) for at in diagnosis.origins],
        "ran_only_here": list(diagnosis.ran_only_here),
        "repairs": [{"place": _place(each.place), "edit": each.words} for each in diagnosis.repairs],
        "partly": [
            {"place": _place(each.place), "edit": each.words, "corrected": each.corrected} for each in diagnosis.partly
        ],
        "fix": None if diagnosis.fix is None else {"diff": diagnosis.fix.diff, "workloads": diagnosis.fix.workloads},
        "not_traced_because": diagnosis.case.not_parsed,
        "compiler_says": [str(each) for each in diagnosis.case.compiler_says],
        "stage": stage_of(diagnosis),
        "cure": "" if diagnosis.healthy else cure_of(diagnosis),
        "failed_first": _workload(diagnosis.case.first_verdict.workload),
        "workload": _workload(verdict.workload),
        "proven_right": diagnosis.proven_right,
        "not_observed": diagnosis.not_observed,
        "not_observed_because": diagnosis.not_observed_because,
        "lost_at": diagnosis.case.lost,
        "first": None if first is None else _divergence_record(first),
        "facts": [{"code": fact.code, "message": fact.message, "count": fact.count} for fact in taps.facts]
        if taps is not None
        else [],
        "launches": [
            {"entry": launch.entry, "line": launch.place.line, "right": launch.right, "message": launch.message}
            for launch in diagnosis.launches
        ],
        "causes": [finding_record(finding) for finding in diagnosis.causes],
        "other_findings": [finding_record(finding) for finding in diagnosis.other_findings],
        "signatures": [
            {
                "name": signature.name,
                "message": signature.message,
                "cure": signature.cure,
                "rank": signature.rank,
                "explained": signature.explained,
                "place": _place(signature.place),
                "stage": signature.stage,
                "cure_at": _place(signature.cure_place),
            }
            for signature in diagnosis.signatures
        ],
        "verify": verify_command(diagnosis),
        "workloads_judged": diagnosis.judged,
        "seconds": diagnosis.seconds,
    }


def _row(name: str, content: str) -> Iterator[str]:
    for number, line in enumerate(content.splitlines() or [""]):
        yield f"  {name if number == 0 else '':<{_MARGIN}}{line}"


def _grouped(stages: tuple[str, ...]) -> str:
    """q · k (KV tile 0) · v (KV tile 0) → `q · k, v (KV tile 0)`."""
    groups: dict[str, list[str]] = {}
    for stage in stages:
        name, _, tiles = stage.partition(" ")
        groups.setdefault(tiles, []).append(name)
    return " · ".join(f"{', '.join(names)} {tiles}".strip() for tiles, names in groups.items())


def _divergence(first: Divergence) -> Iterator[str]:
    yield from _row("first wrong", where_wrong(first))
    if first.site is not None:
        yield from _row("made by", str(first.site))
    if first.used is not None and first.site is not None and first.used.place != first.site.place:
        yield from _row("used at", str(first.used))
    yield from _table(first)
    yield from _row("one element", "\n".join(first.arithmetic))


def _table(first: Divergence) -> Iterator[str]:
    """Yield the expected and the actual row around the first wrong element; wrong elements are marked."""
    shown = row_excerpt(first)
    cells = [
        (shown.label, [f"{n}{'*' if wrong else ''}" for n, wrong in zip(shown.numbers, shown.wrong, strict=True)]),
        ("expected", [f"{value:.5g}" for value in shown.expected]),
        ("actual", ["?" if value is None else f"{value:.5g}" for value in shown.actual]),
    ]
    for label, row in cells:
        yield f"  {label:<{_MARGIN}}" + "".join(f"{cell:>11}" for cell in row)


def _findings(diagnosis: Diagnosis) -> Iterator[str]:
    for name, findings in (("cause", diagnosis.causes), ("also found", diagnosis.other_findings)):
        for finding in findings[:SHOWN_FINDINGS]:
            yield from _row(name, str(finding))
        if len(findings) > SHOWN_FINDINGS:
            yield from _row("", f"and {len(findings) - SHOWN_FINDINGS} more: weft check shows all")


def _place(place: Place | None) -> dict[str, object] | None:
    return None if place is None else {"file": place.file, "line": place.line, "column": place.column}


def _workload(work: Workload) -> dict[str, object]:
    shape = work.shape
    return {
        "shape": {"name": shape.name, **{axis: getattr(shape, axis) for axis in ("b", "hq", "hkv", "sq", "skv", "d")}},
        "dtype": work.dtype,
        "mask": work.mask,
        "regime": work.regime,
        "seed": work.seed,
        "encoding": work.encoding,
    }


def _divergence_record(first: Divergence) -> dict[str, object]:
    site = first.site
    return {
        "stage": first.stage,
        "tile": first.tile,
        "keys": [first.keys.start, first.keys.stop],
        "index": first.index,
        "heads": first.heads,
        "rows": first.rows,
        "columns": first.columns,
        "share": first.share,
        "place": _place(site.place) if site is not None else None,
        "cta": site.cta if site is not None else None,
        "warp": site.warp if site is not None else None,
        "lane": site.lane if site is not None else None,
        "expected": _json_number(float(first.expected[first.index])),
        "actual": _json_number(float(first.actual[first.index])),
        "expected_row": [_json_number(float(x)) for x in first.expected[first.index[:-1]]],
        "actual_row": [_json_number(float(x)) for x in first.actual[first.index[:-1]]],
        "arithmetic": first.arithmetic,
    }


def _json_number(value: float) -> float | str:
    """JSON has neither NaN nor infinity."""
    return value if math.isfinite(value) else str(value)
