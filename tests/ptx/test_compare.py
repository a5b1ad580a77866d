"""Comparison and selection: every form on every engine, and known results (PTX ISA 9.7.6 and 9.7.7)."""

from itertools import groupby
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.in_turn import one_in
from tests.ptx.harness import check, check_body, random_values
from tests.ptx.opcodes import each_choice, every_opcode, operands, rows_of
from weft.ptx.isa import lookup
from weft.ptx.isa.form import Form

ROWS = rows_of("compare")
SELECTIONS = [opcode for row in ROWS if row.name in ("selp", "slct") for opcode in every_opcode(row)]
COMPARISONS = [row for row in ROWS if row.name in ("set", "setp")]
OPCODES = [*SELECTIONS, *(opcode for row in COMPARISONS for opcode in each_choice(row))]
FLOATS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("opcode", one_in(4, SELECTIONS))
def test_selections_agree(opcode: str) -> None:
    check(opcode, operands(opcode, 1000), uniform_sets=4)


@pytest.mark.parametrize("row", one_in(2, COMPARISONS), ids=lambda row: f"{row.section} {row.text}")
def test_comparisons_agree_in_every_setting(row: Form) -> None:
    opcode = each_choice(row)[0]
    check(opcode, operands(opcode, 1000), uniform_sets=4)


def _source(opcode: str) -> str:
    return opcode.rpartition(".")[2]


@pytest.mark.parametrize("row", COMPARISONS, ids=lambda row: f"{row.section} {row.text}")
def test_each_modifier_of_comparisons(row: Form) -> None:
    """Every modifier of the row is in some instruction; one kernel per source type."""
    for source, group in groupby(sorted(each_choice(row), key=_source), key=_source):
        _compare_all(list(group), source)


@pytest.mark.parametrize(
    "source", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", *FLOATS, "f16x2", "bf16x2"]
)
def test_every_operator_of_every_type(source: str) -> None:
    opcodes = {
        opcode for row in COMPARISONS if row.name == "setp" for opcode in every_opcode(row) if _source(opcode) == source
    }
    plain = sorted(opcode for opcode in opcodes if opcode.count(".") == 2)
    assert len(plain) == {"b": 2, "u": 10, "s": 6}.get(source[0] if source[:2] != "bf" else "f", 14)
    _compare_all(plain, source)


def _compare_all(opcodes: list[str], source: str) -> None:
    rng = np.random.default_rng(len(opcodes))
    inputs: dict[str, tuple[str, npt.NDArray[Any]]] = {
        "a": (source, random_values(source, 1000, rng)),
        "b": (source, random_values(source, 1000, rng)),
        "c": ("pred", random_values("pred", 1000, rng)),
    }
    same = rng.integers(0, 4, 1000) == 0
    inputs["b"][1][same] = inputs["a"][1][same]
    lines, outputs = [], {}
    for at, opcode in enumerate(opcodes):
        found = lookup(opcode)
        assert found is not None
        row, mods = found
        destination = row.operands[0]
        outputs[f"d{at}"] = row.operand_type(destination.name, mods)
        target = f"%d{at}"
        if destination.kind == "pair":
            outputs[f"q{at}"] = "pred"
            target += f"|%q{at}"
        predicate = (", !%c" if at % 2 else ", %c") if "bool" in mods else ""
        lines.append(f"{opcode} {target}, %a, %b{predicate};")
    check_body("\n".join(lines), inputs, outputs)


TRUTH = {
    "eq": "010 0", "ne": "101 0", "lt": "100 0", "le": "110 0", "gt": "001 0", "ge": "011 0",
    "num": "111 0", "nan": "000 1",
    "equ": "010 1", "neu": "101 1", "ltu": "100 1", "leu": "110 1", "gtu": "001 1", "geu": "011 1",
}  # fmt: skip
"""Whether each operator is true for less, equal, greater, and unordered operands."""


@pytest.mark.parametrize("source", FLOATS)
def test_truth_table_of_floats(source: str) -> None:
    a = np.array([-1.0, 2.0, 2.0, np.nan, -0.0], FLOATS[source])
    b = np.array([1.0, 2.0, -np.inf, 1.0, 0.0], FLOATS[source])
    body = "\n".join(f"setp.{name}.{source} %{name}_, %a, %b;" for name in TRUTH)
    ran = check_body(body, {"a": (source, a), "b": (source, b)}, {f"{name}_": "pred" for name in TRUTH})
    for name, truth in TRUTH.items():
        expected = [digit == "1" for digit in truth.replace(" ", "")]
        expected.append(expected[1])  # the two zeros are equal
        assert ran.outputs[f"{name}_"].astype(bool).tolist() == expected, name


def test_signed_and_unsigned_order() -> None:
    a, b = np.array([0xFFFFFFFF, 1, 5], np.uint32), np.array([1, 0xFFFFFFFF, 5], np.uint32)
    expected = {
        "lt.s32": [1, 0, 0],
        "lt.u32": [0, 1, 0],
        "lo.u32": [0, 1, 0],
        "ls.u32": [0, 1, 1],
        "hi.u32": [1, 0, 0],
        "hs.u32": [1, 0, 1],
        "ge.s32": [0, 1, 1],
        "le.u32": [0, 1, 1],
        "eq.b32": [0, 0, 1],
        "ne.b32": [1, 1, 0],
    }
    names = {opcode: opcode.replace(".", "_") for opcode in expected}
    body = "\n".join(f"setp.{opcode} %{name}, %a, %b;" for opcode, name in names.items())
    ran = check_body(body, {"a": ("b32", a), "b": ("b32", b)}, {name: "pred" for name in names.values()})
    for opcode, name in names.items():
        assert ran.outputs[name].tolist() == expected[opcode], opcode


def test_pair_is_the_opposite_combined_again() -> None:
    rng = np.random.default_rng(1)
    a, b = random_values("s32", 1000, rng), random_values("s32", 1000, rng)
    c = random_values("pred", 1000, rng)
    body = """
        setp.lt.and.s32 %and0|%and1, %a, %b, %c;
        setp.lt.or.s32 %or0|%or1, %a, %b, !%c;
        setp.lt.xor.s32 _|%xor1, %a, %b, %c;
        mov.pred %c2, %c;
        setp.lt.and.s32 %c2|%own, %a, %b, %c2;"""
    outputs = {name: "pred" for name in ("and0", "and1", "or0", "or1", "xor1", "c2", "own")}
    ran = check_body(body, {"a": ("s32", a), "b": ("s32", b), "c": ("pred", c)}, outputs)
    found = {name: values.astype(bool) for name, values in ran.outputs.items()}
    less = a < b
    expected = {
        "and0": less & c,
        "and1": ~less & c,
        "or0": less | ~c,
        "or1": ~less | ~c,
        "xor1": ~less ^ c,
        "c2": less & c,
        "own": ~less & c,
    }
    for name, values in expected.items():
        assert np.array_equal(found[name], values), name


def test_packed_comparison_has_one_result_per_half() -> None:
    low, high = np.array([1.0, 3.0], np.float16), np.array([2.0, np.nan], np.float16)
    a = np.stack([low, high], axis=1).view(np.uint32).ravel()
    b = np.full((2, 2), 2.0, np.float16).view(np.uint32).ravel()
    body = """
        setp.lt.f16x2 %p0|%p1, %a, %b;
        set.geu.u32.f16x2 %mask, %a, %b;
        set.lt.f16x2.f16x2 %ones, %a, %b;"""
    outputs = {"p0": "pred", "p1": "pred", "mask": "u32", "ones": "f16x2"}
    ran = check_body(body, {"a": ("f16x2", a), "b": ("f16x2", b)}, outputs)
    assert ran.outputs["p0"].tolist() == [1, 0]
    assert ran.outputs["p1"].tolist() == [0, 0]
    assert ran.outputs["mask"].tolist() == [0xFFFF0000, 0xFFFFFFFF]
    assert ran.outputs["ones"].tolist() == [0x00003C00, 0]


def test_set_writes_all_ones_or_one() -> None:
    a, b = np.array([1, 2], np.uint32), np.array([2, 2], np.uint32)
    body = """
        set.lt.u32.u32 %u, %a, %b;
        set.lt.f32.u32 %f, %a, %b;
        set.lt.f16.u32 %h, %a, %b;
        set.lt.bf16.u32 %bf, %a, %b;"""
    outputs = {"u": "u32", "f": "f32", "h": "f16", "bf": "bf16"}
    ran = check_body(body, {"a": ("u32", a), "b": ("u32", b)}, outputs)
    assert ran.outputs["u"].tolist() == [0xFFFFFFFF, 0]
    assert ran.outputs["f"].tolist() == [0x3F800000, 0]
    assert ran.outputs["h"].tolist() == [0x3C00, 0]
    assert ran.outputs["bf"].tolist() == [0x3F80, 0]


@pytest.mark.parametrize(("source", "tiny"), [("f32", 0x80000001), ("f16", 0x8001)])
def test_ftz_makes_a_subnormal_equal_zero(source: str, tiny: int) -> None:
    bits = np.uint32 if source == "f32" else np.uint16
    a, b = np.array([tiny], bits), np.array([0], bits)
    body = f"setp.eq.{source} %plain, %a, %b; setp.eq.ftz.{source} %flushed, %a, %b;"
    ran = check_body(body, {"a": (source, a), "b": (source, b)}, {"plain": "pred", "flushed": "pred"})
    assert (ran.outputs["plain"][0], ran.outputs["flushed"][0]) == (0, 1)


def test_slct_takes_the_second_for_negative_and_nan() -> None:
    c = np.array([0x7FFFFFFF, 0x80000000, 0x80000001, 0x3F800000], np.uint32)
    body = """
        slct.b32.f32 %d, 1, 2, %c;
        slct.ftz.b32.f32 %z, 1, 2, %c;
        slct.b32.s32 %s, 1, 2, %c;"""
    ran = check_body(body, {"c": ("b32", c)}, {"d": "b32", "z": "b32", "s": "b32"})
    assert ran.outputs["d"].tolist() == [2, 1, 2, 1]
    assert ran.outputs["z"].tolist() == [2, 1, 1, 1]
    assert ran.outputs["s"].tolist() == [1, 2, 2, 1]


def test_selection_keeps_the_bits_of_a_nan() -> None:
    a = np.array([0x7F800001, 0xFFC12345], np.uint32)
    c = np.array([True, True])
    ran = check_body("selp.f32 %d, %a, 0f00000000, %c;", {"a": ("f32", a), "c": ("pred", c)}, {"d": "f32"})
    assert ran.outputs["d"].tolist() == a.tolist()


@pytest.mark.parametrize(
    "opcode",
    [
        "setp.lt.b32",
        "setp.lo.s32",
        "setp.ltu.u32",
        "setp.eq.ftz.f64",
        "setp.eq.ftz.bf16",
        "set.eq.f32.f16",
        "selp.pred",
    ],
)
def test_unknown_forms_match_no_row(opcode: str) -> None:
    assert lookup(opcode) is None
