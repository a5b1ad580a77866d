"""A rung with one line changed, explained at one small workload."""

import re
from pathlib import Path

from weft.attention.shapes import Shape
from weft.diagnose.diagnose import explain
from weft.diagnose.records import Case, Diagnosis
from weft.judge.judge import check
from weft.judge.select import find_candidate
from weft.kernels.ladder import RUNGS
from weft.tasks.task import Workload

TILES_AND_A_BIT = Shape("tiles_and_a_bit", 1, 1, 1, 6, 48, 8)
"""Two KV tiles of 32 keys, the last one short; two blocks of 4 queries, the second short."""
SMALL_BLOCKS = {"BLOCK_M = 16": "BLOCK_M = 4", "WARPS = 4": "WARPS = 2"}
"""Levers of the edited kernels: a quarter of the instructions to follow."""


def text_of(rung: str, old: str, new: str) -> str:
    """Return the rung's source with `new` instead of `old`, which occurs once."""
    text = RUNGS[rung].path.read_text()
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {rung}"
    return text.replace(old, new)


def write(folder: Path, rung: str, old: str, new: str) -> Path:
    text = text_of(rung, old, new)
    for usual, small in SMALL_BLOCKS.items():
        text = re.sub(rf"(// weft: define +){usual}$", rf"\g<1>{small}", text, flags=re.MULTILINE)
    file = folder / f"{rung}_edited{RUNGS[rung].path.suffix}"
    file.write_text(text)
    return file


def line_of(file: Path, part: str) -> int:
    """Return the number of the only line that contains `part`."""
    (number,) = [number for number, line in enumerate(file.read_text().splitlines(), 1) if part in line]
    return number


def explained(
    target: Path,
    *,
    task: str | None = None,
    shape: Shape = TILES_AND_A_BIT,
    mask: str = "none",
    regime: str = "unit_normal",
) -> Diagnosis:
    candidate, supports = find_candidate(str(target), task=task)
    workload = Workload(shape, supports.dtypes[0], mask, regime, 0, supports.encodings[0])
    verdict = check(candidate, supports.task, workload)
    return explain(Case(candidate, supports.task, supports.task.draw(workload), verdict, verdict))
