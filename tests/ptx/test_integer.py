"""Integer arithmetic: every form on every engine, and known results (PTX ISA 9.7.1 and 9.7.2)."""

import numpy as np
import pytest

from tests.in_turn import one_in
from tests.ptx.harness import check, check_body, random_values
from tests.ptx.opcodes import cases, every_opcode, operands, rows_of

OPCODES = [opcode for row in rows_of("integer") for opcode in every_opcode(row)]
READ_CARRY = [opcode for opcode in OPCODES if opcode.partition(".")[0] in ("addc", "subc", "madc")]
LEAST = -(1 << 31)


@pytest.mark.parametrize("opcode", one_in(4, [opcode for opcode in OPCODES if opcode not in READ_CARRY]))
def test_engines_agree(opcode: str) -> None:
    check(opcode, operands(opcode, 1000), uniform_sets=4)


@pytest.mark.parametrize("ptx_type", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_division_by_a_literal(ptx_type: str) -> None:
    divisors = (7, 1, 16, -1) if ptx_type[0] == "s" else (7, 1, 16, 65535)
    a = operands(f"div.{ptx_type}", 1000)["a"]
    lines = [f"div.{ptx_type} %q{at}, %a, {b}; rem.{ptx_type} %r{at}, %a, {b};" for at, b in enumerate(divisors)]
    outputs = {f"{kind}{at}": ptx_type for kind in "qr" for at in range(len(divisors))}
    ran = check_body("\n".join(lines), {"a": (ptx_type, a)}, outputs)
    mask = (1 << (8 * a.dtype.itemsize)) - 1
    for at, divisor in enumerate(divisors):
        for value, quotient, rest in zip(a, ran.outputs[f"q{at}"], ran.outputs[f"r{at}"], strict=True):
            exact = abs(int(value)) // abs(divisor) * (1 if (value < 0) == (divisor < 0) else -1)
            assert int(quotient) == exact & mask
            assert int(rest) == (int(value) - exact * divisor) & mask


@pytest.mark.parametrize(
    ("opcode", "names", "expected"),
    [
        ("add.u16", "ab", [(0xFFFF, 2, 1)]),
        ("add.sat.s32", "ab", [(2**31 - 1, 1, 2**31 - 1), (LEAST, -1, LEAST), (5, -7, -2)]),
        ("sub.sat.s32", "ab", [(LEAST, 1, LEAST), (2**31 - 1, -1, 2**31 - 1)]),
        ("add.u16x2", "ab", [(0xFFFF0001, 0x00010002, 0x00000003)]),
        ("mul.hi.s32", "ab", [(-1, 1, -1), (LEAST, LEAST, 1 << 30)]),
        ("mul.hi.u64", "ab", [(2**64 - 1, 2**64 - 1, 2**64 - 2)]),
        ("mul.hi.s64", "ab", [(-1, 2**63 - 1, -1)]),
        ("mul.wide.s16", "ab", [(-3, 7, -21)]),
        ("mul.wide.u32", "ab", [(2**32 - 1, 2**32 - 1, (2**32 - 1) ** 2)]),
        ("mad.wide.s32", "abc", [(-3, 5, 10, -5)]),
        ("mad.hi.sat.s32", "abc", [(LEAST, LEAST, 2**31 - 1, 2**31 - 1)]),
        ("mul24.hi.s32", "ab", [(0x800000, 0x7FFFFF, 0xC0000080)]),
        ("mul24.lo.u32", "ab", [(0xFF000003, 0xFF000005, 15)]),
        ("mad24.hi.sat.s32", "abc", [(0x7FFFFF, 0x7FFFFF, 2**31 - 1, 2**31 - 1)]),
        ("sad.s32", "abc", [(-5, 7, 1, 13)]),
        ("sad.u32", "abc", [(3, 0xFFFFFFFF, 0, 0xFFFFFFFC)]),
        ("div.s32", "ab", [(-7, 2, -3), (7, -2, -3), (LEAST, -1, LEAST), (5, 0, -1)]),
        ("div.u64", "ab", [(2**64 - 1, 10, (2**64 - 1) // 10), (5, 0, 2**64 - 1)]),
        ("div.u32", "ab", [(2**32 - 1, 2**32 - 2, 1), (2**32 - 2, 2**32 - 1, 0), (2**32 - 1, 3, 0x55555555)]),
        ("rem.s32", "ab", [(-7, 2, -1), (7, -2, 1), (LEAST, -1, 0)]),
        ("rem.u16", "ab", [(65535, 256, 255)]),
        ("abs.s32", "a", [(-5, 5), (LEAST, LEAST)]),
        ("neg.s64", "a", [(-5, 5), (-(2**63), -(2**63))]),
        ("min.s32", "ab", [(-1, 1, -1)]),
        ("min.u32", "ab", [(-1, 1, 1)]),
        ("min.s16x2", "ab", [(0x8000_0005, 0x0001_FFFF, 0x8000_FFFF)]),
        ("max.u16x2", "ab", [(0x8000_0005, 0x0001_FFFF, 0x8000_FFFF)]),
        ("max.relu.s16x2", "ab", [(0x8000_0005, 0xFFFF_0002, 0x0000_0005)]),
        ("max.relu.s32", "ab", [(-3, -9, 0)]),
        ("popc.b64", "a", [(2**64 - 1, 64), (5, 2)]),
        ("clz.b32", "a", [(0, 32), (1, 31), (-1, 0)]),
        ("clz.b64", "a", [(0, 64), (1, 63)]),
        ("bfind.u32", "a", [(0, -1), (0x10, 4)]),
        ("bfind.s32", "a", [(-1, -1), (0, -1), (-2, 0), (0x40, 6)]),
        ("bfind.shiftamt.s64", "a", [(1, 63), (-1, -1)]),
        ("brev.b32", "a", [(1, 1 << 31), (0x0000FFFF, 0xFFFF0000)]),
        ("bfe.s32", "abc", [(1 << 31, 31, 4, -1), (LEAST, 40, 8, -1), (LEAST, 40, 0, 0)]),
        ("bfe.u32", "abc", [(0x12345678, 28, 8, 1), (0x12345678, 8, 8, 0x56), (0x12345678, 264, 8, 0x56)]),
        ("bfe.s64", "abc", [(0xF0, 4, 4, -1), (0x70, 4, 4, 7)]),
        ("bfi.b32", "abce", [(0xFF, 0x12345678, 4, 8, 0x12345FF8), (0xFF, 0, 28, 8, 0xF0000000)]),
        ("bfi.b64", "abce", [(0xA, 0, 60, 4, 0xA << 60), (1, 5, 64, 4, 5)]),
        ("szext.wrap.s32", "ab", [(0x88, 32, 0), (0x88, 8, -0x78)]),
        ("szext.clamp.u32", "ab", [(0x188, 8, 0x88), (0x188, 32, 0x188)]),
        ("bmsk.wrap.b32", "ab", [(1, 2, 6), (4, 40, 0xFF0)]),
        ("bmsk.clamp.b32", "ab", [(4, 40, 0xFFFFFFF0), (36, 3, 0)]),
        ("dp4a.u32.u32", "abc", [(0x01020304, 0x05060708, 10, 80)]),
        ("dp4a.s32.u32", "abc", [(0xFF000000, 0xFF000000, 0, -255)]),
        ("dp2a.lo.s32.s32", "abc", [(0xFFFF0003, 0x00000504, 1, 8)]),
        ("dp2a.hi.u32.u32", "abc", [(0x00020003, 0x05040000, 1, 23)]),
    ],
)  # fmt: skip
def test_known_results(opcode: str, names: str, expected: list[tuple[int, ...]]) -> None:
    result = check(opcode, cases(opcode, names, [case[:-1] for case in expected]), uniform_sets=2)["d"]
    mask = (1 << (8 * result.dtype.itemsize)) - 1
    assert [int(value) & mask for value in result[: len(expected)]] == [case[-1] & mask for case in expected]


def test_chain_adds_128_bits() -> None:
    """Two 64-bit words by a chain, and the same by four 32-bit ones, equal Python's sum and difference."""
    rng = np.random.default_rng(3)
    inputs = {name: ("u64", random_values("u64", 1000, rng)) for name in ("a0", "a1", "b0", "b1")}
    halves = "\n".join(
        f"mov.b64 {{%w{2 * at}, %w{2 * at + 1}}}, %{name};" for at, name in enumerate(("a0", "a1", "b0", "b1"))
    )
    body = f"""
        add.cc.u64 %s0, %a0, %b0;
        addc.cc.u64 %s1, %a1, %b1;
        addc.u64 %s2, 0, 0;
        sub.cc.u64 %d0, %a0, %b0;
        subc.cc.u64 %d1, %a1, %b1;
        subc.u64 %d2, 0, 0;
        {halves}
        add.cc.u32 %w0, %w0, %w4;
        addc.cc.u32 %w1, %w1, %w5;
        addc.cc.u32 %w2, %w2, %w6;
        addc.u32 %w3, %w3, %w7;
        mov.b64 %n0, {{%w0, %w1}};
        mov.b64 %n1, {{%w2, %w3}};"""
    outputs = {name: "u64" for name in ("s0", "s1", "s2", "d0", "d1", "d2", "n0", "n1")}
    ran = check_body(body, inputs, outputs, declarations=".reg .b32 %w<8>;")
    columns = {name: [int(value) for value in values] for name, (_, values) in inputs.items()}
    found = {name: [int(value) for value in values] for name, values in ran.outputs.items()}
    for at in range(1000):
        a = columns["a1"][at] << 64 | columns["a0"][at]
        b = columns["b1"][at] << 64 | columns["b0"][at]
        assert found["s2"][at] << 128 | found["s1"][at] << 64 | found["s0"][at] == a + b
        difference = found["d2"][at] << 128 | found["d1"][at] << 64 | found["d0"][at]
        assert difference == (a - b) % (1 << 192)
        assert found["n1"][at] << 64 | found["n0"][at] == (a + b) % (1 << 128)


@pytest.mark.parametrize("width", [32, 64])
def test_chain_multiplies_double_words(width: int) -> None:
    """The low two words of (a1:a0)·(b1:b0) + (c1:c0), by mad and madc with carries."""
    rng = np.random.default_rng(4)
    names = ("a0", "a1", "b0", "b1", "c0", "c1")
    inputs = {name: (f"u{width}", random_values(f"u{width}", 1000, rng)) for name in names}
    body = f"""
        mad.lo.cc.u{width} %r0, %a0, %b0, %c0;
        madc.hi.u{width} %r1, %a0, %b0, %c1;
        mad.lo.u{width} %r1, %a0, %b1, %r1;
        mad.lo.u{width} %r1, %a1, %b0, %r1;
        mad.lo.cc.u{width} %k0, %a0, %b0, %c0;
        madc.hi.cc.u{width} %k0, %a0, %b0, %c1;
        madc.lo.cc.s{width} %k0, %a1, %b1, %c0;
        madc.hi.s{width} %k1, %a1, %b1, %c1;"""
    outputs = {name: f"u{width}" for name in ("r0", "r1", "k0", "k1")}
    ran = check_body(body, inputs, outputs)
    columns = {name: [int(value) for value in values] for name, (_, values) in inputs.items()}
    for at in range(1000):
        a, b, c = (columns[f"{name}1"][at] << width | columns[f"{name}0"][at] for name in "abc")
        result = int(ran.outputs["r1"][at]) << width | int(ran.outputs["r0"][at])
        assert result == (a * b + c) % (1 << (2 * width))


@pytest.mark.parametrize("opcode", READ_CARRY)
def test_carry_in_and_out(opcode: str) -> None:
    """A random carry in (made by adding 1 to all ones or to zero), and the carry out read back."""
    ptx_type = opcode.rpartition(".")[2]
    values = {name: (ptx_type, column) for name, column in operands(opcode, 1000).items()}
    sources = ", ".join(f"%{name}" for name in values)
    bits = f"b{ptx_type[1:]}"
    body = f"""
        selp.{bits} %seed, -1, 0, %carry;
        add.cc.{ptx_type} %seed, %seed, 1;
        {opcode} %d, {sources};
        addc.{ptx_type} %out, 0, 0;"""
    values["carry"] = ("pred", random_values("pred", 1000, np.random.default_rng(5)))
    ran = check_body(body, values, {"d": ptx_type, "out": ptx_type, "seed": ptx_type})
    if ".cc" not in opcode:
        assert np.array_equal(ran.outputs["out"].astype(bool), values["carry"][1])


def test_lanes_that_are_off_keep_their_carry() -> None:
    body = """
        add.cc.u32 %t0, %a, 1;
        @!%p add.cc.u32 %t0, 0, 0;
        addc.u32 %d, 0, 0;"""
    rng = np.random.default_rng(6)
    a = np.where(random_values("pred", 1000, rng), np.uint32(0xFFFFFFFF), np.uint32(3)).astype(np.uint32)
    p = random_values("pred", 1000, rng)
    ran = check_body(body, {"a": ("u32", a), "p": ("pred", p)}, {"d": "u32"})
    assert np.array_equal(ran.outputs["d"], ((a == 0xFFFFFFFF) & p).astype(np.uint32))
