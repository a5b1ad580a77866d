"""Every row has a rule, and marks move with the bytes of values, in both algebras alike."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.probes.test_taint_rules import OneWarp, instruction
from weft.core.errors import Unsupported
from weft.probes.taint_bits import ALL_BITS
from weft.probes.taint_labels import Taint
from weft.ptx import isa
from weft.ptx.isa.facts import Access, Facts
from weft.ptx.isa.form import Form, form
from weft.ptx.module import WIDTH, Reg
from weft.shadow.marks import Algebra, Marks, Shadow
from weft.shadow.rules import blend, rule_for

MIXED = 99


class Names(Algebra):
    """Marks name a value, as the nodes of a diagnosis do."""

    dtype = np.dtype(np.int32)
    predicates = False

    def one(self, marks: Marks) -> Marks:
        highest = marks.max(axis=-1)
        several = ((marks != highest[..., None]) & (marks != 0)).any(axis=-1)
        return np.where(several, MIXED, highest).astype(np.int32)

    def both(self, a: Marks, b: Marks) -> Marks:
        return np.where((b == 0) | (a == b), a, np.where(a == 0, b, MIXED)).astype(np.int32)


ALGEBRAS = {"names": Names(), "labels": Taint(np.zeros(0, bool), frozenset({1}))}


def _first(row: Form) -> SimpleNamespace:
    """Return an instruction of the row with the first choice of every modifier."""
    mods = {slot.name: min(slot.choices) for slot in row.slots if not slot.optional}
    return SimpleNamespace(form=row, facts=row.facts, mods=mods, opcode=row.text, line=1)


@pytest.mark.parametrize("row", isa.ROWS, ids=lambda row: row.text)
@pytest.mark.parametrize("algebra", ALGEBRAS.values(), ids=ALGEBRAS)
def test_every_row_has_a_rule(row: Form, algebra: Algebra) -> None:
    rule = rule_for(_first(row), algebra)  # type: ignore[arg-type]
    moves = row.facts.accesses or row.facts.control or row.facts.group or row.facts.multiplies
    assert rule is not blend or not moves


def test_every_row_of_arithmetic_states_what_it_computes() -> None:
    """A floating-point result without a computation would be followed as if it were its operand."""
    makes = [row for row in isa.ROWS if row.chapter in ("floating", "half", "integer") and row.name != "testp"]
    assert {row.name for row in makes if not row.facts.computes} == {"copysign"}  # it is its operand, but for the sign


def test_an_access_without_a_rule_is_refused() -> None:
    """A new kind of memory instruction must not be followed as if it computed a value."""
    facts = Facts(accesses=(Access("load", "a", "column", "d"),))
    row = form("memory", facts, "9.7", "ldcolumn.b32 d, [a]")
    with pytest.raises(Unsupported, match="following values through ldcolumn"):
        rule_for(_first(row), Names())  # type: ignore[arg-type]


def moved(opcode: str, values: dict[str, int], marked: dict[str, list[int]], algebra: Algebra) -> list[int]:
    """Return the marks of the bytes of d, the lowest first, given values and marks of the sources' bytes."""
    ins, types = instruction(opcode)
    warp = OneWarp({**types, "%cc": "pred"})
    shadow = Shadow(algebra)
    for name, value in values.items():
        warp.file[f"%{name}"][:] = value
    for name, marks in marked.items():
        size = WIDTH[types[f"%{name}"]] // 8
        own = np.array(marks + [0] * (size - len(marks)))
        if isinstance(algebra, Taint):
            own = np.where(own != 0, ALL_BITS | np.uint64(1) << own.astype(np.uint64), np.uint64(0))
        shadow.write(warp, Reg(f"%{name}"), np.tile(own, (32, 1)).astype(algebra.dtype))  # type: ignore[arg-type]
    rule_for(ins, algebra)(shadow, warp, ins)  # type: ignore[arg-type]
    found = shadow.read(warp, Reg("%d"), WIDTH[types["%d"]] // 8)[0]  # type: ignore[arg-type]
    if isinstance(algebra, Taint):
        found = np.array([(int(label) & ~int(ALL_BITS)).bit_length() - 1 if label else 0 for label in found])
    return [int(mark) for mark in found]


@pytest.mark.parametrize("algebra", ALGEBRAS.values(), ids=ALGEBRAS)
@pytest.mark.parametrize(
    ("opcode", "values", "marked", "expected"),
    [
        ("mov.b32", {}, {"a": [1, 2, 3, 4]}, [1, 2, 3, 4]),
        # Two codes of 8 bits become two halves, each of one code (PTX ISA, cvt).
        ("cvt.rn.f16x2.e4m3x2", {}, {"a": [1, 2]}, [1, 1, 2, 2]),
        ("cvt.rn.satfinite.e4m3x2.f32", {}, {"a": [1] * 4, "b": [2] * 4}, [2, 1]),
        ("cvt.rn.f16x2.f32", {}, {"a": [1] * 4, "b": [2] * 4}, [2, 2, 1, 1]),
        ("cvt.u16.u32", {}, {"a": [1, 2, 3, 4]}, [1, 2]),
        ("cvt.u32.u8", {}, {"a": [1]}, [1, 0, 0, 0]),
        ("prmt.b32", {"c": 0x7042}, {"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]}, [3, 5, 1, 8]),
        ("shl.b32", {"b": 16}, {"a": [1, 2, 3, 4]}, [0, 0, 1, 2]),
        ("shr.u32", {"b": 8}, {"a": [1, 2, 3, 4]}, [2, 3, 4, 0]),
        ("and.b32", {"b": 0x00FF00FF}, {"a": [1, 2, 3, 4]}, [1, 0, 3, 0]),
        ("or.b32", {}, {"a": [1, 2, 0, 0], "b": [0, 0, 3, 4]}, [1, 2, 3, 4]),
        ("xor.b32", {"b": 0x80000000}, {"a": [1, 1, 1, 1]}, [1, 1, 1, 1]),
        ("bfe.u32", {"b": 8, "c": 16}, {"a": [1, 2, 3, 4]}, [2, 3, 0, 0]),
        ("bfi.b32", {"c": 8, "e": 8}, {"a": [5, 6, 7, 8], "b": [1, 2, 3, 4]}, [1, 5, 3, 4]),
        ("selp.b32", {"c": 0}, {"a": [1] * 4, "b": [2] * 4}, [2, 2, 2, 2]),
        ("add.u32", {}, {"a": [0, 3, 0, 0]}, [3, 3, 3, 3]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_marks_move_with_bytes(
    opcode: str, values: dict[str, int], marked: dict[str, list[int]], expected: list[int], algebra: Algebra
) -> None:
    assert moved(opcode, values, marked, algebra) == expected
