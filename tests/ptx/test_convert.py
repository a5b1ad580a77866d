"""cvt: every form on every engine, and known results (PTX ISA 9.7.9.21, 9.7.9.22)."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.in_turn import one_in
from tests.ptx.grouped import check_together, exact_groups, one_per_name
from tests.ptx.harness import check
from tests.ptx.opcodes import operands, rows_of
from weft.ptx.isa import lookup
from weft.ptx.module import WIDTH

ROWS = rows_of("convert")
DTYPE: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("opcodes", one_in(4, exact_groups(ROWS)), ids=lambda opcodes: opcodes[0])
def test_every_form_agrees_bit_for_bit(opcodes: tuple[str, ...]) -> None:
    check_together(opcodes)


@pytest.mark.parametrize("opcode", one_in(2, one_per_name(ROWS)))
def test_guards_divergence_and_uniform_operands(opcode: str) -> None:
    check(opcode, operands(opcode, 1000), uniform_sets=3)


def _convert(opcode: str, *columns: list[float]) -> npt.NDArray[Any]:
    found = lookup(opcode)
    assert found is not None, opcode
    row, mods = found
    sources = {}
    for name, column in zip("abc", columns, strict=False):
        source = row.operand_type(name, mods)
        width = "uint" if source[0] == "u" or source.endswith("x2") or source[0] == "b" else "int"
        bits = WIDTH[source]
        sources[name] = np.array(column, DTYPE.get(source) or f"{width}{bits}")
    return check(opcode, sources, uniform_sets=2)["d"][: len(columns[0])]


@pytest.mark.parametrize(
    ("opcode", "source", "want"),
    [
        ("cvt.rni.s32.f32", [0.5, 1.5, 2.5, -0.5, 3e9, -3e9, NAN], [0, 2, 2, 0, 2**31 - 1, -(2**31), 0]),
        ("cvt.rzi.s32.f32", [1.9, -1.9], [1, -1]),
        ("cvt.rmi.s32.f32", [1.9, -1.1], [1, -2]),
        ("cvt.rpi.s32.f32", [1.1, -1.9], [2, -1]),
        ("cvt.rzi.u32.f32", [-1, 5e9, 3.7], [0, 2**32 - 1, 3]),
        ("cvt.rzi.u8.f32", [300, -4, 7.9], [255, 0, 7]),
        # A 64-bit type on either side turns NaN into the top bit alone.
        ("cvt.rzi.s64.f32", [NAN, INF], [-(2**63), 2**63 - 1]),
        ("cvt.rzi.s32.f64", [NAN, -INF], [-(2**31), -(2**31)]),
        ("cvt.rzi.u64.f64", [NAN, 2.0**63], [2**63, 2**63]),
        ("cvt.u8.u32", [300, 255], [44, 255]),
        ("cvt.sat.u8.s32", [300, -5, 7], [255, 0, 7]),
        ("cvt.sat.s8.u32", [300, 5], [127, 5]),
        ("cvt.s64.s32", [-1], [-1]),
        ("cvt.s32.s8", [-1], [-1]),
        ("cvt.u32.s16", [-1], [2**32 - 1]),
    ],
)
def test_to_integers(opcode: str, source: list[float], want: list[int]) -> None:
    got = _convert(opcode, source)
    width = 8 * got.dtype.itemsize
    assert [int(x) & (2**width - 1) for x in got] == [x & (2**width - 1) for x in want]


@pytest.mark.parametrize(
    ("opcode", "source", "want"),
    [
        ("cvt.rn.f32.s32", [2**24 + 1, 2**24 + 3, -7], [2**24, 2**24 + 4, -7]),
        ("cvt.rz.f32.s32", [2**24 + 1, -(2**24) - 1], [2**24, -(2**24)]),
        ("cvt.rp.f32.u64", [2**63 + 1], [2.0**63 + 2.0**40]),
        ("cvt.rm.f64.s64", [2**53 + 1, -(2**53) - 1], [2.0**53, -(2.0**53) - 2]),
        ("cvt.rp.f64.u64", [2**64 - 1, 2**53 + 1], [2.0**64, 2.0**53 + 2]),
        ("cvt.rn.f16.u32", [100000, 2049], [INF, 2048]),
        ("cvt.rz.f16.u32", [100000], [65504]),
        ("cvt.rn.bf16.s32", [257, 259], [256, 260]),
        ("cvt.rn.f32.f64", [1 + 2**-24, 1 + 2**-24 + 2**-50, 1e300], [1, 1 + 2**-23, INF]),
        ("cvt.rz.f32.f64", [1e300, -1e-300], [np.finfo(np.float32).max, 0]),
        ("cvt.rn.f16.f32", [65519, 65520, 2**-25, 1 + 2**-11], [65504, INF, 0, 1]),
        ("cvt.rp.f16.f32", [1 + 2**-20, -1 - 2**-20], [1 + 2**-10, -1]),
        ("cvt.rm.bf16.f32", [1 + 2**-20, -1 - 2**-20], [1, -1 - 2**-7]),
        # Through f32 these would be rounded twice, to 1 and to 1 + 2^-9.
        ("cvt.rn.f16.f64", [1 + 2**-11 + 2**-40, 1 + 3 * 2**-11 - 2**-40], [1 + 2**-10, 1 + 2**-10]),
        ("cvt.f32.f16", [1.5, 2**-24, INF], [1.5, 2**-24, INF]),
        ("cvt.f32.bf16", [1.5], [1.5]),
        ("cvt.sat.f32.f32", [2, -1, NAN, 0.5], [1, 0, 0, 0.5]),
        ("cvt.ftz.f32.f32", [2**-130], [0]),
        ("cvt.rni.f32.f32", [2.5, -0.4, 3.5], [2, 0, 4]),
        ("cvt.rmi.f64.f64", [-1.5], [-2]),
        ("cvt.rn.relu.f16.f32", [-1, 1], [0, 1]),
        ("cvt.rn.satfinite.bf16.f32", [INF, -INF], [255 * 2.0**120, -255 * 2.0**120]),
    ],
)  # fmt: skip
def test_to_floats(opcode: str, source: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(_convert(opcode, source).astype(np.float64), np.array(want, np.float64))


@pytest.mark.parametrize(
    ("opcode", "columns", "want"),
    [
        # The first source is the upper half.
        ("cvt.rn.f16x2.f32", [[1, NAN], [2, 0]], [0x3C004000, 0x7FFF0000]),
        ("cvt.rn.relu.bf16x2.f32", [[-1], [1]], [0x00003F80]),
        # 448 is the largest e4m3 and 0x7f its NaN; 2^-9 is its least, and half of that ties to zero.
        ("cvt.rn.satfinite.e4m3x2.f32", [[448, 1e9], [1, -INF]], [0x7E38, 0x7EFE]),
        ("cvt.rn.satfinite.e4m3x2.f32", [[NAN, 2**-9], [-1, 2**-10]], [0x7FB8, 0x0100]),
        ("cvt.rn.satfinite.e4m3x2.f32", [[464, 480], [1.0625, 1.1875]], [0x7E38, 0x7E3A]),
        ("cvt.rn.satfinite.e5m2x2.f32", [[57344, 1e9, NAN], [1, -1e9, 2**-16]], [0x7B3C, 0x7BFB, 0x7F01]),
        ("cvt.rn.satfinite.relu.e4m3x2.f32", [[-3], [2]], [0x0040]),
        ("cvt.rn.satfinite.e4m3x2.f16x2", [[0x3C004000]], [0x3840]),
        ("cvt.rn.f16x2.e4m3x2", [[0x7E38, 0x7F01, 0x8008]], [0x5F003C00, 0x7FFF1800, 0x80002400]),
        ("cvt.rn.f16x2.e5m2x2", [[0x7B3C, 0x7CFF]], [0x7B003C00, 0x7C007FFF]),
        # 6 is the largest e2m1, whose codes are four bits; NaN gives it, too. 0.25 and 5 are ties.
        ("cvt.rn.satfinite.e2m1x2.f32", [[6, NAN, -INF, 0.25], [1, -1.5, 100, 5]], [0x72, 0x7B, 0xF7, 0x06]),
        ("cvt.rn.satfinite.relu.e2m1x2.f32", [[-6, 3], [0.75, -0.5]], [0x02, 0x50]),
        ("cvt.rn.satfinite.e3m2x2.f32", [[28, NAN, -1e9], [0.0625, -0.25, 0.03125]], [0x1F01, 0x1F24, 0x3F00]),
        ("cvt.rn.satfinite.e2m3x2.f32", [[7.5, NAN, 1.0625], [-0.125, 1, 0.0625]], [0x1F21, 0x1F08, 0x0800]),
        ("cvt.rn.satfinite.e2m1x2.f16x2", [[0x3C004000, 0xFC007E00]], [0x24, 0xF7]),
        ("cvt.rn.satfinite.e3m2x2.bf16x2", [[0x3F804000]], [0x0C10]),
        ("cvt.rn.satfinite.e4m3x2.bf16x2", [[0x3F804000, 0x7FC0FF80]], [0x3840, 0x7FFE]),
        ("cvt.rn.f16x2.e2m1x2", [[0x72, 0xB1]], [0x46003C00, 0xBE003800]),
        ("cvt.rn.relu.f16x2.e2m1x2", [[0xF2]], [0x00003C00]),
        ("cvt.rn.f16x2.e3m2x2", [[0x1F01, 0x3F24]], [0x4F002C00, 0xCF00B400]),
        ("cvt.rn.f16x2.e2m3x2", [[0x1F21, 0x0801]], [0x4780B000, 0x3C003000]),
        ("cvt.rn.bf16x2.e2m3x2", [[0x1F21]], [0x40F0BE00]),
        # An exponent with bias 127; 255 is NaN. 2^-127 is the smallest number, and the sign is ignored.
        ("cvt.rz.ue8m0x2.f32", [[1.5, INF, 0], [-2, NAN, 2.0**-127]], [0x7F80, 0xFFFF, 0x0000]),
        ("cvt.rp.ue8m0x2.f32", [[1.5, 2.0**127 * 1.5], [1, 2.0**-128]], [0x807F, 0xFF00]),
        ("cvt.rp.ue8m0x2.f32", [[2.0**-126], [2.0**-127 * 1.5]], [0x0101]),
        ("cvt.rp.satfinite.ue8m0x2.f32", [[2.0**127 * 1.5, NAN], [INF, -3]], [0xFEFE, 0xFF81]),
        ("cvt.rz.satfinite.ue8m0x2.bf16x2", [[0x3FC07F80, 0x7FC00040]], [0x7FFE, 0xFF00]),
        ("cvt.rp.ue8m0x2.bf16x2", [[0x3FC00041]], [0x8001]),
        ("cvt.rn.bf16x2.ue8m0x2", [[0x7F80, 0xFF00, 0x01FE]], [0x3F804000, 0x7FFF0040, 0x00807F00]),
        ("cvt.rna.tf32.f32", [[1 + 2**-11, 1 + 2**-12, -1 - 2**-11]], [0x3F802000, 0x3F800000, 0xBF802000]),
        ("cvt.rn.tf32.f32", [[1 + 2**-11, NAN]], [0x3F800000, 0x7FFFFFFF]),
        ("cvt.pack.sat.u16.s32", [[70000, -1], [5, 65535]], [0xFFFF0005, 0x0000FFFF]),
        ("cvt.pack.sat.s8.s32.b32", [[200, -200], [1, -1], [0xABCD, 0x1234]], [0xABCD7F01, 0x123480FF]),
        ("cvt.pack.sat.u4.s32.b32", [[20], [3], [0x1]], [0x1F3]),
    ],
)  # fmt: skip
def test_packed(opcode: str, columns: list[list[float]], want: list[int]) -> None:
    assert [int(x) for x in _convert(opcode, *columns)] == want


@pytest.mark.parametrize(
    "opcode",
    [
        "cvt.f32.s32", "cvt.f16.f32", "cvt.rn.s32.f32", "cvt.rni.f32.s32", "cvt.s32.f32", "cvt.rn.f64.f32",
        "cvt.e4m3x2.f32", "cvt.rn.e4m3x2.f32", "cvt.rn.f16x2.f16", "cvt.rna.f16.f32", "cvt.ftz.f64.f16",
    ],
)  # fmt: skip
def test_forms_that_do_not_exist_have_no_row(opcode: str) -> None:
    assert lookup(opcode) is None
