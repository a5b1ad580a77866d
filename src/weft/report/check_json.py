"""The output of `weft check --json` → a page with its verdicts and findings. Nothing runs again."""

import json
from pathlib import Path
from typing import Any

from weft.core.errors import UsageError
from weft.coverage.records import Coverage
from weft.judge.verdict import Verdict, conclude
from weft.judge.verdict_json import verdict_of
from weft.kernels.ladder import RUNGS

from .kernel_report import nearest, result_of
from .kernel_source import source_view
from .records import KernelReport, Named

NOT_HERE = "this page was written from a JSON file; `weft report KERNEL` runs the kernel"


def check_report(file: Path) -> KernelReport:
    """Return the page of a file with one kernel; raise UsageError for anything else."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        ((target, rows),) = found["targets"].items()
        verdicts = [verdict_of(row) for row in rows["verdicts"]]
        coverage = Coverage.from_record(rows["coverage"])
        return _report(str(target), verdicts, int(rows["planned"]), coverage)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} is not the output of `weft check KERNEL --json` for one kernel: {error!r}") from error


def _report(target: str, verdicts: list[Verdict], planned: int, coverage: Coverage) -> KernelReport:
    found = conclude(verdicts, planned)
    first = found.failure or nearest(verdicts)
    passed = sum(verdict.passed for verdict in verdicts if not verdict.extra)
    facts = [
        Named("workloads", f"{passed} of {found.judged} passed"),
        Named("closest to a limit" if found.passed else "first failing", first.label),
    ]
    for gate in first.gates:
        facts.append(Named(f"gate “{gate.gate}”", f"{gate.error:.3g} of {gate.limit:.3g}"))
    if first.error is not None:
        facts.append(Named("worst error against float64", f"{first.error.max:.3g}"))
    path = RUNGS[target].path if target in RUNGS else Path(target)
    return KernelReport(
        target=target,
        status=str(found.status),
        message=found.message,
        passed=found.passed,
        sentence=f"{passed} of {found.judged} workloads passed" if found.passed else found.message,
        facts=tuple(facts),
        commands=(Named("again", f"weft check {target}"), Named("the complete page", f"weft report {target}")),
        results=tuple(result_of(verdict) for verdict in verdicts),
        source=source_view(path, verdicts, None, None, coverage),
        no_map=NOT_HERE,
        no_cost=NOT_HERE,
    )
