"""What `weft check --json` wrote → a page of its verdicts and findings: nothing is run again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.core.errors import UsageError
from weft.judge.verdict import Status
from weft.kernels.ladder import RUNGS
from weft.tasks.task import PLAIN

from .kernel_source import LANGUAGES
from .records import KernelReport, Named, SourceFinding, SourceView, WorkloadResult

NOT_HERE = "this page was made of a file; `weft report KERNEL` runs the kernel"


def check_report(file: Path) -> KernelReport:
    """Of a file with one kernel; raises UsageError for anything else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        ((target, rows),) = found.items()
        return _report(str(target), [dict(row) for row in rows])
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} is not what `weft check KERNEL --json` writes for one kernel: {error!r}") from error


def _report(target: str, rows: list[dict[str, Any]]) -> KernelReport:
    wrong = [row for row in rows if row["status"] != Status.PASSED and not _open(row)]
    first = wrong[0] if wrong else max(rows, key=_ratio)
    judged = [row for row in rows if not row["debug_build"]]
    passed = sum(row["status"] == Status.PASSED for row in judged)
    facts = [
        Named("workloads", f"{passed} of {len(judged)} passed"),
        Named("first failing" if wrong else "closest to a limit", _label(first)),
    ]
    for name, gate in first["gates"].items():
        facts.append(Named(f"gate “{name}”", f"{gate['error']:.3g} of {gate['limit']:.3g}"))
    if first["max_error"] is not None:
        facts.append(Named("worst error against float64", f"{first['max_error']:.3g}"))
    return KernelReport(
        target=target,
        status=str(Status(first["status"])) if wrong else str(Status.PASSED),
        passed=not wrong,
        sentence=str(first["message"]) if wrong else f"{passed} of {len(judged)} workloads passed",
        facts=tuple(facts),
        commands=(Named("again", f"weft check {target}"), Named("the whole page", f"weft report {target}")),
        results=tuple(_result(row) for row in rows),
        source=_source(target, rows),
        no_map=NOT_HERE,
        no_cost=NOT_HERE,
    )


def _open(row: Mapping[str, Any]) -> bool:
    """A -G build that could not be judged."""
    return bool(row["debug_build"]) and row["status"] == Status.UNSUPPORTED


def _ratio(row: Mapping[str, Any]) -> float:
    return max((gate["error"] / gate["limit"] for gate in row["gates"].values() if gate["limit"]), default=0.0)


def _label(row: Mapping[str, Any]) -> str:
    coded = "" if row["encoding"] == PLAIN else f"{row['encoding']} → "
    built = " (-G build)" if row["debug_build"] else ""
    return f"{row['shape']} {coded}{row['dtype']} {row['mask']} {row['regime']} seed {row['seed']}{built}"


def _result(row: Mapping[str, Any]) -> WorkloadResult:
    line = f"{row['shape']} · {row['dtype']} · {row['mask']}" + (" · -G" if row["debug_build"] else "")
    status = Status(row["status"])
    return WorkloadResult(
        line, str(row["regime"]), _label(row), str(status), str(row["message"]), status is Status.PASSED
    )


def _source(target: str, rows: list[dict[str, Any]]) -> SourceView | None:
    """With the findings, each line and code once; None if the file is not here any more."""
    path = RUNGS[target].path if target in RUNGS else Path(target)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found: dict[object, SourceFinding] = {}
    for finding in (finding for row in rows for finding in row["findings"]):
        here = finding["file"] is not None and Path(finding["file"]).name == path.name
        line = int(finding["line"]) if here else None
        place = f"{Path(finding['file']).name}:{finding['line']}" if finding["file"] else f"PTX {finding['ptx_line']}"
        level = str(finding["severity"])
        if level not in ("error", "warning", "info"):
            raise ValueError(f"no severity: {level}")
        made = SourceFinding(str(finding["code"]), level, str(finding["message"]), str(finding["cure"]), line, place)
        found.setdefault((made.code, place, level), made)
    return SourceView(path.name, LANGUAGES.get(path.suffix, "cuda"), text, tuple(found.values()))
