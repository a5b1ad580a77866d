"""`weft replay`: judge a bundle again on this machine and print what differs."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from weft.bundle.answer import ReplayTerms, answer, environment
from weft.bundle.compare import Replay, compare, verdict_text
from weft.bundle.file import read

from .tables import print_table
from .terminal import bar, paint


def replay(
    file: Annotated[Path, typer.Argument(help="A file that `weft bundle` wrote.")],
    trust_task: Annotated[
        bool, typer.Option("--trust-task", help="Run the Python code of the bundle's task with your permissions.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit of the kernel, all workloads together.")] = 600.0,
    require_isolation: Annotated[
        int, typer.Option(min=0, max=3, help="Refuse to run below this isolation level; weft doctor --try shows it.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Judge a bundle's kernel again, in a child process, and print what differs.

    Exit codes: 0 the verdict is the same, 1 it is different, 2 the file is invalid or may not run.
    """
    found = read(file)
    assert found.answer is not None
    with bar(f"judging {found.name}") as tell:
        here = answer(found, ReplayTerms(seconds, trust_task, require_isolation), tell)
    result = compare(found.answer, here, found.environment, environment())
    if as_json:
        print(json.dumps(_record(result), indent=2))
    else:
        _show(found.name, result)
    return 0 if result.same else 1


def _show(name: str, result: Replay) -> None:
    if result.differences:
        rows = [[each.what, each.there, each.here] for each in result.differences]
        print_table(["what differs", "in the bundle", "here"], rows)
    same, both = result.bits
    code = "same PTX" if result.there.ptx == result.here.ptx else "different PTX"
    bits = f"{same} of {both} workloads with the same bits"
    verdict = "the same verdict" if result.same else "DIFFERENT verdict"
    print(f"{name}: {paint(verdict, 'good' if result.same else 'bad')}: {verdict_text(result.here)} · {code} · {bits}")


def _record(result: Replay) -> dict[str, object]:
    same, both = result.bits
    return {
        "same_verdict": result.same,
        "same_ptx": result.there.ptx == result.here.ptx,
        "same_bits": same,
        "compared": both,
        "there": verdict_text(result.there),
        "here": verdict_text(result.here),
        "differences": [dataclasses.asdict(each) for each in result.differences],
    }
