"""`weft list`: list the kernels, shapes, regimes and tasks that Weft includes."""

import json
from typing import Annotated

import typer

from weft.attention.regimes import REGIMES
from weft.attention.shapes import SHAPES
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS

from .tables import print_table


def list_all(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> int:
    """List the kernels of the ladder, the named shapes, the regimes and the tasks that `weft check` judges."""
    shapes = {name: [s.b, s.hq, s.hkv, s.sq, s.skv, s.d] for name, s in SHAPES.items()}
    tasks = {name: task.what for name, task in TASKS.items()}
    if as_json:
        rungs = {
            name: {"task": rung.task, "also": rung.also, "idea": rung.idea, "dtypes": rung.dtypes}
            for name, rung in RUNGS.items()
        }
        print(json.dumps({"rungs": rungs, "shapes": shapes, "regimes": list(REGIMES), "tasks": tasks}, indent=2))
        return 0
    print_table(
        ["rung", "task", "types", "idea"],
        [[name, " ".join((rung.task, *rung.also)), " ".join(rung.dtypes), rung.idea] for name, rung in RUNGS.items()],
    )
    print_table(["task", "what"], [[name, what] for name, what in tasks.items()])
    print_table(
        ["shape", "B", "HQ", "HKV", "SQ", "SKV", "D"], [[name, *map(str, sizes)] for name, sizes in shapes.items()]
    )
    print("regimes " + " ".join(REGIMES))
    print(f"{len(RUNGS)} rungs, {len(SHAPES)} shapes, {len(REGIMES)} regimes, {len(TASKS)} tasks")
    return 0
