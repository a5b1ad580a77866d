"""The opcodes of a row of the instruction table, and operands for them."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ptx.harness import random_values
from weft.ptx import isa
from weft.ptx.isa.form import Form


def _spelled(row: Form, chosen: tuple[str | None, ...]) -> str:
    return ".".join([row.name, *(part for part in chosen if part)])


def every_opcode(row: Form) -> list[str]:
    """Return the product of all modifiers."""
    slots = [[*sorted(slot.choices), *([None] if slot.optional else [])] for slot in row.slots]
    return [_spelled(row, chosen) for chosen in product(*slots)]


def each_choice(row: Form) -> list[str]:
    """Return opcodes in which every modifier of every slot occurs at least once."""
    slots = [[*sorted(slot.choices), *([None] if slot.optional else [])] for slot in row.slots]
    longest = max(len(values) for values in slots)
    return [_spelled(row, tuple(values[at % len(values)] for values in slots)) for at in range(longest)]


def rows_of(chapter: str) -> list[Form]:
    """Return the rows of one chapter."""
    return [row for row in isa.ROWS if row.chapter == chapter]


def operands(opcode: str, count: int, seed: int = 1) -> dict[str, npt.NDArray[Any]]:
    """Return random values for every operand that the opcode reads."""
    found = isa.lookup(opcode)
    assert found is not None, opcode
    row, mods = found
    rng = np.random.default_rng(seed)
    return {
        spec.name: random_values(row.operand_type(spec.name, mods), count, rng)
        for spec in row.operands[: row.required]
        if not spec.written
    }


def cases(opcode: str, names: str, values: list[tuple[int, ...]]) -> dict[str, npt.NDArray[Any]]:
    """Return integer operands given by hand, one tuple of them per lane, in the form of `check`."""
    found = isa.lookup(opcode)
    assert found is not None, opcode
    row, mods = found
    columns = {}
    for name, column in zip(names, zip(*values, strict=True), strict=True):
        width = int(row.operand_type(name, mods).strip("bsufx").partition("x")[0])
        width *= 2 if row.operand_type(name, mods).endswith("x2") else 1
        columns[name] = np.array([value & ((1 << width) - 1) for value in column], f"uint{width}")
    return columns
