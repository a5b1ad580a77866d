"""`weft certify --source-mutants`: a kernel file with one slip of the pen at a time, and what its judge would miss."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weft.judge.select import Choice, find_candidate, workloads
from weft.mutate.equivalent import Build
from weft.mutate.trial import MutantTrial, survivors, try_source

from .tables import print_table
from .terminal import bar


def certify_source(kernel: str, task: str | None, choice: Choice, *, count: int, seed: int, as_json: bool) -> int:
    """Exit code: 0 nothing survived, 1 something did."""
    candidate, supports = find_candidate(kernel, task=task)
    judged = len(list(workloads(supports, choice)))
    with tempfile.TemporaryDirectory() as folder, bar(f"mutants of {kernel}") as tell:
        trials = try_source(
            candidate, supports, folder=Path(folder), count=count, seed=seed, choice=choice, progress=tell
        )
    if as_json:
        print(json.dumps(_record(kernel, supports.task.name, judged, trials), indent=2))
    else:
        _show(kernel, judged, trials)
    return 1 if survivors(trials) else 0


def _show(kernel: str, judged: int, trials: Sequence[MutantTrial]) -> None:
    missed = survivors(trials)
    if missed:
        print("your tests would miss these:")
        print_table(
            ["line", "class", "is", "would be"],
            [(trial.mutant.line, trial.mutant.klass, *_change(trial)) for trial in missed],
        )
    counted = [trial for trial in trials if trial.counts]
    same = sum(trial.equivalent for trial in trials)
    refused = sum(trial.build is Build.REFUSED for trial in trials)
    left = f"{same} equivalent, {refused} refused by the compiler"
    killed = len(counted) - len(missed)
    print(f"{kernel}: {killed} of {len(counted)} mutants killed on {judged} workloads; {left}")


def _change(trial: MutantTrial) -> tuple[str, str]:
    """Both on one line each, however many a mutant has."""
    before, after = (" ⏎ ".join(map(str.strip, text.split("\n"))) for text in (trial.mutant.before, trial.mutant.after))
    return before, after


def _record(kernel: str, task: str, judged: int, trials: Sequence[MutantTrial]) -> dict[str, object]:
    counted = [trial for trial in trials if trial.counts]
    return {
        "kernel": kernel,
        "task": task,
        "workloads": judged,
        "total": len(counted),
        "killed": len(counted) - len(survivors(trials)),
        "equivalent": sum(trial.equivalent for trial in trials),
        "refused": sum(trial.build is Build.REFUSED for trial in trials),
        "survivors": [trial.mutant.id for trial in survivors(trials)],
        "mutants": [
            {
                "id": trial.mutant.id,
                "line": trial.mutant.line,
                "class": trial.mutant.klass,
                "operator": trial.mutant.operator,
                "before": trial.mutant.before,
                "after": trial.mutant.after,
                "outcome": _outcome(trial),
                "status": str(trial.killed_by.status) if trial.killed_by else None,
                "killed_by": trial.killed_by.message if trial.killed_by else None,
                "workload": str(trial.killed_by.workload) if trial.killed_by else None,
                "seconds": round(trial.seconds, 2),
            }
            for trial in trials
        ],
    }


def _outcome(trial: MutantTrial) -> str:
    if trial.build is Build.REFUSED:
        return "refused"
    if trial.equivalent:
        return "equivalent"
    return "survived" if trial.survived else "killed"
