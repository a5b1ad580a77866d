"""Many opcodes of one row in one kernel: every modifier on every engine, without a compilation for each."""

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ptx.harness import check_body, edge_values, random_values
from tests.ptx.opcodes import every_opcode
from weft.ptx.isa import lookup
from weft.ptx.isa.form import Form

APPROXIMATE = frozenset({"ex2", "lg2", "sin", "cos", "tanh", "rsqrt"})
_KERNEL = 24
"""Opcodes per kernel."""
_MOST_EDGES = 40


def _sources(opcode: str) -> tuple[tuple[str, str], ...]:
    found = lookup(opcode)
    assert found is not None, opcode
    row, mods = found
    needed = row.operands[: row.required]
    return tuple((spec.name, row.operand_type(spec.name, mods)) for spec in needed if not spec.written)


def exact_groups(rows: list[Form]) -> list[tuple[str, ...]]:
    """Return every opcode of the rows that must agree bit for bit, in groups with the same sources."""
    by_sources: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        if row.name not in APPROXIMATE:
            for opcode in every_opcode(row):
                by_sources.setdefault((row.name, _sources(opcode)), []).append(opcode)
    groups = []
    for opcodes in by_sources.values():
        unique = tuple(dict.fromkeys(opcodes))
        groups += [unique[at : at + _KERNEL] for at in range(0, len(unique), _KERNEL)]
    return groups


def approximate_opcodes(rows: list[Form]) -> list[str]:
    """Return the opcodes whose engines may differ by one unit in the last place."""
    return [opcode for row in rows if row.name in APPROXIMATE for opcode in every_opcode(row)]


def one_per_name(rows: list[Form]) -> list[str]:
    """Return the longest opcode of every row's name and type, for the checks of guards and divergence."""
    chosen = {(row.name, row.text.rpartition(" d")[0][-8:]): max(every_opcode(row), key=len) for row in rows}
    return sorted(chosen.values())


def columns(opcode: str, count: int) -> dict[str, npt.NDArray[Any]]:
    """Return `count` random operands, after all pairs of edge values if there are two operands."""
    rng = np.random.default_rng(3)
    sources = _sources(opcode)
    values = {name: random_values(ptx_type, count, rng) for name, ptx_type in sources}
    edges = [edge_values(ptx_type) for _, ptx_type in sources]
    if len(sources) == 1:
        values = {name: np.concatenate([edges[0], values[name]]) for name in values}
    elif len(sources) == 2 and all(len(edge) <= _MOST_EDGES for edge in edges):
        pairs = list(product(*edges))
        for at, name in enumerate(values):
            first = np.array([pair[at] for pair in pairs], edges[at].dtype)
            values[name] = np.concatenate([first, values[name]])
    return values


def check_together(opcodes: tuple[str, ...], count: int = 1000) -> None:
    """Run all opcodes on the same operands, on every engine, and compare bit for bit."""
    sources = _sources(opcodes[0])
    values = columns(opcodes[0], count)
    outputs, lines = {}, []
    for number, opcode in enumerate(opcodes):
        found = lookup(opcode)
        assert found is not None
        row, mods = found
        result = row.operands[0].name
        outputs[f"{result}{number}"] = row.operand_type(result, mods)
        listed = ", ".join(f"%{name}" for name, _ in sources)
        lines.append(f"{opcode} %{result}{number}, {listed};")
    inputs = {name: (ptx_type, values[name]) for name, ptx_type in sources}
    try:
        check_body("\n  ".join(lines), inputs, outputs)
    except AssertionError as error:
        raise AssertionError(f"{error} among {dict(zip(outputs, opcodes, strict=True))}") from error
