"""Logic, shifts and byte permutes: every form on every engine, and known results (PTX ISA 9.7.8, 9.7.9.7)."""

import numpy as np
import pytest

from tests.in_turn import one_in
from tests.ptx.harness import check, check_body, random_values
from tests.ptx.opcodes import cases, every_opcode, operands, rows_of
from weft.core.errors import Unsupported
from weft.ptx.isa import lookup

OPCODES = [opcode for row in rows_of("bits") for opcode in every_opcode(row)]


@pytest.mark.parametrize("opcode", one_in(4, [opcode for opcode in OPCODES if not opcode.startswith("lop3")]))
def test_engines_agree(opcode: str) -> None:
    check(opcode, operands(opcode, 1000), uniform_sets=4)


@pytest.mark.parametrize("first", range(0, 256, 32))
def test_every_table_of_lop3(first: int) -> None:
    """With the truth-table columns as operands, the result's low byte is the table itself."""
    rng = np.random.default_rng(first)
    inputs = {name: ("b32", random_values("b32", 1000, rng)) for name in "abc"}
    for (_, values), column in zip(inputs.values(), (0xF0, 0xCC, 0xAA), strict=True):
        values[0] = column
    tables = range(first, first + 32)
    body = "\n".join(f"lop3.b32 %d{table}, %a, %b, %c, {table:#x};" for table in tables)
    ran = check_body(body, inputs, {f"d{table}": "b32" for table in tables})
    assert [int(ran.outputs[f"d{table}"][0]) & 0xFF for table in tables] == list(tables)


@pytest.mark.parametrize("opcode", ["lop3.and.b32", "lop3.or.b32"])
@pytest.mark.parametrize("table", ["0x80", "0x96", "0x00"])
def test_lop3_with_a_predicate(opcode: str, table: str) -> None:
    sources = operands(opcode, 1000)
    sources.pop("lut")
    result = check(opcode, sources, immediates={"lut": table}, uniform_sets=3)
    some = result["d"] != 0
    q = np.resize(sources["q"], len(some))
    assert np.array_equal(result["p"], some & q if opcode == "lop3.and.b32" else some | q)


def test_lop3_needs_a_literal_table() -> None:
    sources = operands("lop3.b32", 64)
    with pytest.raises(Unsupported):
        check("lop3.b32", sources)


@pytest.mark.parametrize("opcode", ["shl.b16", "shl.b64", "shr.u32", "shr.s16", "shr.s64", "shr.b32"])
def test_shift_by_a_literal(opcode: str) -> None:
    amounts = (0, 1, 15, 16, 31, 32, 63, 64, 255)
    ptx_type = opcode.rpartition(".")[2]
    a = operands(opcode, 1000)["a"]
    body = "\n".join(f"{opcode} %d{amount}, %a, {amount};" for amount in amounts)
    ran = check_body(body, {"a": (ptx_type, a)}, {f"d{amount}": ptx_type for amount in amounts})
    mask = (1 << (8 * a.dtype.itemsize)) - 1
    for amount in amounts:
        exact = [int(value) << amount if opcode.startswith("shl") else int(value) >> amount for value in a]
        assert [int(value) for value in ran.outputs[f"d{amount}"]] == [value & mask for value in exact]


@pytest.mark.parametrize("opcode", [opcode for opcode in OPCODES if opcode.startswith("prmt")])
def test_permute_by_a_literal(opcode: str) -> None:
    """The result is the same as with a register that holds the literal."""
    selectors = (0x3210, 0x7632, 0x5410, 0xFEDC, 0x8123, 0x1, 0x12345672)
    inputs = {name: ("b32", values) for name, values in operands(opcode, 1000).items() if name != "c"}
    lines = []
    for at, selector in enumerate(selectors):
        lines += [
            f"{opcode} %d{at}, %a, %b, {selector:#x};",
            f"xor.b32 %t0, %a, %a; add.u32 %t0, %t0, {selector:#x};",
        ]
        lines.append(f"{opcode} %r{at}, %a, %b, %t0;")
    outputs = {f"{kind}{at}": "b32" for kind in "dr" for at in range(len(selectors))}
    ran = check_body("\n".join(lines), inputs, outputs)
    for at in range(len(selectors)):
        assert np.array_equal(ran.outputs[f"d{at}"], ran.outputs[f"r{at}"])


_BYTES = (0x13121110, 0x17161514)


@pytest.mark.parametrize(
    ("opcode", "names", "expected"),
    [
        ("and.b64", "ab", [(0xFF00FF00FF00FF00, 0x0FF00FF00FF00FF0, 0x0F000F000F000F00)]),
        ("or.b16", "ab", [(0x00F0, 0x0F00, 0x0FF0)]),
        ("xor.b32", "ab", [(0xFFFF0000, 0xFF00FF00, 0x00FFFF00)]),
        ("not.b16", "a", [(0x00FF, 0xFF00)]),
        ("cnot.b32", "a", [(0, 1), (5, 0)]),
        ("shl.b32", "ab", [(1, 31, 1 << 31), (1, 32, 0), (1, 256, 0), (1, 0xFFFFFFFF, 0)]),
        ("shr.s32", "ab", [(1 << 31, 77, -1), (1 << 31, 1, 0xC0000000)]),
        ("shr.u16", "ab", [(0x8000, 15, 1), (0x8000, 16, 0), (0x8000, 0x10000, 0)]),
        ("shf.l.clamp.b32", "abc", [(0x11111111, 0x22222222, 40, 0x11111111), (0x80000000, 1, 1, 3)]),
        ("shf.r.clamp.b32", "abc", [(0x11111111, 0x22222222, 40, 0x22222222), (2, 1, 1, 0x80000001)]),
        ("shf.r.wrap.b32", "abc", [(0x11111111, 0x22222222, 36, 0x21111111), (7, 9, 32, 7)]),
        ("shf.l.wrap.b32", "abc", [(0x11111111, 0x22222222, 36, 0x22222221), (7, 9, 32, 9)]),
        ("prmt.b32", "abc", [(0x83020180, 0x07068504, 0x8D3B, 0xFFFF83FF), (*_BYTES, 0x7531, 0x17151311)]),
        ("prmt.b32.f4e", "abc", [(*_BYTES, 1, 0x14131211), (*_BYTES, 3, 0x16151413)]),
        ("prmt.b32.b4e", "abc", [(*_BYTES, 0, 0x15161710), (*_BYTES, 3, 0x10111213)]),
        ("prmt.b32.rc8", "abc", [(*_BYTES, 2, 0x12121212), (*_BYTES, 7, 0x13131313)]),
        ("prmt.b32.ecl", "abc", [(*_BYTES, 1, 0x13121111), (*_BYTES, 2, 0x13121212)]),
        ("prmt.b32.ecr", "abc", [(*_BYTES, 1, 0x11111110), (*_BYTES, 2, 0x12121110)]),
        ("prmt.b32.rc16", "abc", [(*_BYTES, 1, 0x13121312), (*_BYTES, 2, 0x11101110)]),
    ],
)  # fmt: skip
def test_known_results(opcode: str, names: str, expected: list[tuple[int, ...]]) -> None:
    result = check(opcode, cases(opcode, names, [case[:-1] for case in expected]), uniform_sets=2)["d"]
    mask = (1 << (8 * result.dtype.itemsize)) - 1
    assert [int(value) & mask for value in result[: len(expected)]] == [case[-1] & mask for case in expected]


def test_negated_predicate_operands() -> None:
    rng = np.random.default_rng(2)
    a, b = random_values("pred", 1000, rng), random_values("pred", 1000, rng)
    body = "and.pred %d, %a, !%b; or.pred %e, !%a, !%b; not.pred %f, %a;"
    ran = check_body(body, {"a": ("pred", a), "b": ("pred", b)}, {"d": "pred", "e": "pred", "f": "pred"})
    assert np.array_equal(ran.outputs["d"].astype(bool), a & ~b)
    assert np.array_equal(ran.outputs["e"].astype(bool), ~a | ~b)
    assert np.array_equal(ran.outputs["f"].astype(bool), ~a)


@pytest.mark.parametrize("opcode", ["and.u32", "lop3.b64", "shf.l.b32", "prmt.b32.f5e", "shr.b8", "not.b8"])
def test_unknown_forms_match_no_row(opcode: str) -> None:
    assert lookup(opcode) is None
