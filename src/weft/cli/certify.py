"""`weft certify`: test a gate with wrong implementations: a task's own list, or the mutants of a kernel file."""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.judge.certify import Certificate, GateTrial
from weft.judge.certify import certify as certify_tight
from weft.judge.loose import certify_loose
from weft.judge.select import Choice, find_candidate, workloads
from weft.mutate.equivalent import Build
from weft.mutate.trial import MutantTrial, survivors, try_source
from weft.tasks.registry import TASKS, find_task

from .tables import print_table
from .terminal import bar

POLICIES = ("tight", "loose")


def certify(
    task: Annotated[str, typer.Argument(help=f"{', '.join(TASKS)}, or a Python file that defines TASK.")] = "",
    source_mutants: Annotated[
        str, typer.Option(metavar="KERNEL", help="Test one-line mutants of this kernel file or rung instead.")
    ] = "",
    of_task: Annotated[str, typer.Option("--task", help="The task that the kernel of --source-mutants computes.")] = "",
    count: Annotated[int, typer.Option(min=1, help="Number of source mutants, spread evenly over the classes.")] = 48,
    seed: Annotated[int, typer.Option(min=0, help="Seed that selects the source mutants.")] = 0,
    shapes: Annotated[
        str, typer.Option(help="Shapes on which source mutants are judged (default: a quick choice).")
    ] = "",
    regimes: Annotated[str, typer.Option(help="As in weft check.")] = "",
    masks: Annotated[str, typer.Option(help="As in weft check.")] = "",
    policy: Annotated[
        str, typer.Option(help="tight: the gate of `weft check`; loose: an example of a bad gate.")
    ] = "tight",
    dtype: Annotated[str, typer.Option(help="Type of the output: f16, bf16, f32 (default: the task's first).")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Test a task's gate: it must reject every wrong implementation and accept every correct one.

    With --source-mutants the wrong implementations are your kernel with one line changed. Your tests would miss
    those that survive.

    Exit codes: 0 the gate holds, 1 it accepted a wrong or rejected a correct implementation, 2 usage error.
    """
    if bool(task) == bool(source_mutants):
        raise UsageError("give the task whose gate to test, or --source-mutants and a kernel file")
    if source_mutants:
        chosen = Choice(_names(shapes), _names(regimes), _names(masks), seeds=(0,))
        return _certify_source(source_mutants, of_task or None, chosen, count=count, seed=seed, as_json=as_json)
    if policy not in POLICIES:
        raise UsageError(f"policy {policy!r}{did_you_mean(policy, POLICIES)}: use one of {', '.join(POLICIES)}")
    found = find_task(task)
    gate = certify_tight if policy == "tight" else certify_loose
    with bar(f"the gate of {found.name}") as tell:
        certificate = gate(found, dtype, progress=tell)
    if as_json:
        print(json.dumps({"policy": policy, **_record(certificate)}, indent=2))
    else:
        _show(certificate)
    return 0 if certificate.holds else 1


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _show(certificate: Certificate) -> None:
    rows = [
        (trial.name, trial.what, trial.killed_by or "SURVIVED", trial.workload or "") for trial in certificate.mutants
    ]
    print_table(["mutant", "what is wrong", "killed by", "workload"], rows)
    for mutant, why in certificate.excluded:
        print(f"excluded: {mutant.name} ({mutant.what}): {why}")
    if certificate.survivors:
        print(f"survivors: {', '.join(trial.name for trial in certificate.survivors)}")
    for trial in certificate.wrongly_killed:
        print(f"correct, but rejected: {trial.name} by {trial.killed_by} on {trial.workload}")
    if not certificate.holds:
        print(f"weft: the gate of {certificate.task} does not hold for {certificate.dtype}", file=sys.stderr)
    print(certificate)


def _record(certificate: Certificate) -> dict[str, object]:
    return {
        "task": certificate.task,
        "dtype": certificate.dtype,
        "holds": certificate.holds,
        "mutants": [_trial(trial) for trial in certificate.mutants],
        "right": [_trial(trial) for trial in certificate.right],
        "excluded": {mutant.name: why for mutant, why in certificate.excluded},
    }


def _trial(trial: GateTrial) -> dict[str, str | None]:
    return {
        "name": trial.name,
        "what": trial.what,
        "killed_by": trial.killed_by or None,
        "workload": str(trial.workload) if trial.workload else None,
    }


def _certify_source(kernel: str, task: str | None, choice: Choice, *, count: int, seed: int, as_json: bool) -> int:
    """Return the exit code: 0 if no mutant survived, 1 otherwise."""
    candidate, supports = find_candidate(kernel, task=task)
    judged = len(list(workloads(supports, choice)))
    with tempfile.TemporaryDirectory() as folder, bar(f"mutants of {kernel}") as tell:
        trials = try_source(
            candidate, supports, folder=Path(folder), count=count, seed=seed, choice=choice, progress=tell
        )
    if as_json:
        print(json.dumps(_mutants_record(kernel, supports.task.name, judged, trials), indent=2))
    else:
        _show_mutants(kernel, judged, trials)
    return 1 if survivors(trials) else 0


def _show_mutants(kernel: str, judged: int, trials: Sequence[MutantTrial]) -> None:
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
    """Return the text before and after the mutation, each as one line."""
    before, after = (" ⏎ ".join(map(str.strip, text.split("\n"))) for text in (trial.mutant.before, trial.mutant.after))
    return before, after


def _mutants_record(kernel: str, task: str, judged: int, trials: Sequence[MutantTrial]) -> dict[str, object]:
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
