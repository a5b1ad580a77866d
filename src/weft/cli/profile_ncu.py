"""`weft profile --ncu` and `--metrics`: compare Weft's numbers with ncu's, and print a list of metrics."""

from pathlib import Path
from typing import Any

from weft.profile.kernel_profile import KernelProfile
from weft.profile.ncu_compare import Compared, Comparison, Verdict
from weft.profile.ncu_metric_list import Answer, answer
from weft.profile.ncu_values import Relation, ncu_values

from .tables import print_table


def show_comparison(profile: KernelProfile, report: Path, found: Comparison) -> int:
    """Print every metric that both have, and a summary line. Return the exit code."""
    for launch in found.launches:
        print(f"{launch.entry} · launch {launch.number} of {report}: {launch.kernel}")
        if launch.refused:
            print(f"not compared: {launch.refused}")
            continue
        rows = [
            [
                row.metric,
                _number(row.weft),
                _number(row.ncu.value),
                _signed(row.difference),
                _cell(row.verdict, row.why),
            ]
            for row in launch.rows
        ]
        print_table(["metric", "Weft", "ncu", "difference", "explanation"], rows)
        for note in launch.notes:
            print(f"note: {note}")
        if launch.only_measured:
            print(
                f"note: metrics of the report that Weft does not count: {len(launch.only_measured)} (--json names them)"
            )
    for note in found.notes:
        print(f"note: {note}")
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in Verdict)
    print(f"{report} against {profile.target} on {profile.chip.title}: {counts}")
    return status(found)


def status(found: Comparison) -> int:
    """Return 1 if a metric differs and no rule explains it, 3 if a launch could not be compared or none was, else 0."""
    if found.count(Verdict.DIFFERS):
        return 1
    return 3 if not found.launches or any(launch.refused for launch in found.launches) else 0


def comparison_record(report: Path, found: Comparison) -> dict[str, Any]:
    """Return the JSON record."""
    return {
        "report": str(report),
        "counts": {str(verdict): found.count(verdict) for verdict in Verdict},
        "launches": [_compared(launch) for launch in found.launches],
        "notes": found.notes,
    }


def _compared(launch: Compared) -> dict[str, Any]:
    return {
        "entry": launch.entry,
        "kernel": launch.kernel,
        "number": launch.number,
        "refused": launch.refused or None,
        "metrics": [
            {
                "metric": row.metric,
                "weft": row.weft,
                "ncu": row.ncu.value,
                "unit": row.ncu.unit,
                "difference": row.difference,
                "verdict": str(row.verdict),
                "why": row.why,
            }
            for row in launch.rows
        ],
        "notes": launch.notes,
        "only_measured": launch.only_measured,
    }


def answers(profile: KernelProfile, metrics: tuple[str, ...]) -> list[tuple[str, list[Answer]]]:
    """Return the metrics of every launch, in order."""
    found = []
    for launch in profile.launches:
        values = ncu_values(launch, profile.chip)
        found.append((launch.entry, [answer(metric, values) for metric in metrics]))
    return found


def show_answers(profile: KernelProfile, metrics: tuple[str, ...]) -> None:
    """Print a table for each launch."""
    counted = set()
    for number, (entry, found) in enumerate(answers(profile, metrics), 1):
        print(f"launch {number}: {entry} · {profile.target} · {profile.chip.title}")
        rows = [[each.metric, _value(each), each.why] for each in found]
        counted |= {each.metric for each in found if each.said is not None}
        print_table(["metric", "Weft", "note"], rows)
    print(f"{len(counted)} of {len(metrics)} have a value here, the others need ncu on a GPU · modelled, not measured")


def answers_record(profile: KernelProfile, metrics: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the JSON record."""
    return [
        {
            "entry": entry,
            "metrics": [
                {
                    "metric": each.metric,
                    "value": each.said.value if each.said else None,
                    "relation": str(each.said.relation) if each.said else None,
                    "why": each.why,
                }
                for each in found
            ],
        }
        for entry, found in answers(profile, metrics)
    ]


def _value(found: Answer) -> str:
    if found.said is None:
        return "–"
    bound = found.said.relation in (Relation.AT_LEAST, Relation.AT_LEAST_COLD)
    return f"{'≥ ' if bound else ''}{_number(found.said.value)}"


def _cell(verdict: Verdict, why: str) -> str:
    return f"{verdict}: {why}" if why else str(verdict)


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"


def _signed(value: float) -> str:
    return "0" if not value else f"{'+' if value > 0 else ''}{_number(value)}"
