"""f16 and bf16 arithmetic: every form on every engine, and known results (PTX ISA 9.7.4)."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.in_turn import one_in
from tests.ptx.grouped import approximate_opcodes, check_together, columns, exact_groups, one_per_name
from tests.ptx.harness import check
from tests.ptx.opcodes import operands, rows_of
from weft.ptx.isa import lookup

ROWS = rows_of("half")
DTYPE: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("opcodes", exact_groups(ROWS), ids=lambda opcodes: opcodes[0])
def test_every_form_agrees_bit_for_bit(opcodes: tuple[str, ...]) -> None:
    check_together(opcodes)


@pytest.mark.parametrize("opcode", one_in(4, approximate_opcodes(ROWS)))
def test_approximations_agree_within_one_ulp(opcode: str) -> None:
    check(opcode, columns(opcode, 1000), ulp=1, uniform_sets=2)


@pytest.mark.parametrize("opcode", one_in(2, one_per_name(ROWS)))
def test_guards_divergence_and_uniform_operands(opcode: str) -> None:
    check(opcode, operands(opcode, 1000), ulp=1, uniform_sets=3)


def _run(opcode: str, *lanes: tuple[float, ...]) -> npt.NDArray[Any]:
    dtype = DTYPE[opcode.rpartition(".")[2]]
    values = dict(zip("abc", zip(*lanes, strict=True), strict=False))
    sources = {name: np.array(column, dtype) for name, column in values.items()}
    return check(opcode, sources, uniform_sets=2)["d"][: len(lanes)]


@pytest.mark.parametrize(
    ("opcode", "lanes", "want"),
    [
        ("add.f16", [(1, 2**-11), (1, 3 * 2**-11), (65504, 16)], [1, 1 + 2**-9, INF]),
        ("add.bf16", [(1, 2**-8), (1, 3 * 2**-8)], [1, 1 + 2**-6]),
        ("sub.f16", [(3, 1)], [2]),
        ("mul.f16", [(2**-12, 2**-12), (300, 300)], [2**-24, INF]),
        ("mul.ftz.f16", [(2**-10, 2**-10)], [0]),
        ("add.sat.f16", [(0.75, 0.5), (NAN, 0), (-1, 0)], [1, 0, 0]),
        # A tie, to even.
        ("fma.rn.f16", [(1 + 2**-10, 1, 2**-11)], [1 + 2**-9]),
        # 2^-31 below the same tie: an intermediate rounding to f32 would lose that.
        ("fma.rn.f16", [(1 + 2**-10, (1 - 2**-10) * 2**-11, 1 + 2**-10)], [1 + 2**-10]),
        ("fma.rn.relu.f16", [(-1, 1, 0), (1, 1, 1)], [0, 2]),
        # 2^-22 below a tie, and a product below the range of f32.
        ("fma.rn.bf16", [(1 + 2**-7, (1 - 2**-7) * 2**-8, 1 + 2**-7), (2**-100, 2**-100, 1)], [1 + 2**-7, 1]),
        ("max.f16", [(NAN, 2), (1, 2)], [2, 2]),
        ("min.bf16", [(NAN, 2), (1, 2)], [2, 1]),
        ("max.xorsign.abs.f16", [(-3, 2)], [-3]),
        ("neg.f16", [(2,)], [-2]),
        ("abs.bf16", [(-2,)], [2]),
        ("ex2.approx.f16", [(3,), (-24,), (-26,), (16,)], [8, 2**-24, 0, INF]),
        ("ex2.approx.ftz.bf16", [(3,), (-127,)], [8, 0]),
        ("tanh.approx.f16", [(20,), (-20,), (0,)], [1, -1, 0]),
    ],
)  # fmt: skip
def test_known_results(opcode: str, lanes: list[tuple[float, ...]], want: list[float]) -> None:
    got = _run(opcode, *lanes).astype(np.float64)
    np.testing.assert_array_equal(got, np.array(want, np.float64))


def test_nan_is_canonical() -> None:
    for opcode in ("add.f16", "add.bf16", "max.NaN.f16", "max.NaN.bf16"):
        assert _run(opcode, (NAN, 1)).view(np.uint16).tolist() == [0x7FFF]
    assert _run("max.f16", (-0.0, 0.0)).view(np.uint16).tolist() == [0]
    assert _run("min.bf16", (0.0, -0.0)).view(np.uint16).tolist() == [0x8000]


def test_pairs_are_independent() -> None:
    a = np.array([0x3C004000], np.uint32)  # 1 above, 2 below
    b = np.array([0x42003C00], np.uint32)  # 3 above, 1 below
    assert check("add.f16x2", {"a": a, "b": b}, uniform_sets=2)["d"][0] == 0x44004200
    ones = np.array([0x3F80C000], np.uint32)  # 1 above, -2 below
    assert check("mul.bf16x2", {"a": ones, "b": ones}, uniform_sets=2)["d"][0] == 0x3F804080


@pytest.mark.parametrize("base", ["f16", "bf16"])
def test_fma_rounds_the_exact_sum_once(base: str) -> None:
    """No representable number is closer to the exact a * b + c than the result."""
    rng = np.random.default_rng(5)
    dtype = DTYPE[base]
    # c near the product, so that sums are near ties and far below the product's last bit.
    a, b = (rng.uniform(1, 2, 2000).astype(dtype) for _ in range(2))
    c = (rng.uniform(-1, 1, 2000) * 2.0 ** rng.integers(-24, 12, 2000)).astype(dtype)
    result = check(f"fma.rn.{base}", {"a": a, "b": b, "c": c}, uniform_sets=2)["d"]
    for x, y, z, got in zip(a, b, c, result, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        bits = int(np.array(got).view(np.uint16))
        near = np.array([(bits + step) & 0xFFFF for step in (-1, 1)], np.uint16).view(dtype)
        distance = abs(Fraction(float(got)) - exact)
        assert all(distance <= abs(Fraction(float(other)) - exact) for other in near if np.isfinite(other))


@pytest.mark.parametrize(
    "opcode",
    [
        "add.rz.f16", "add.ftz.bf16", "fma.f16", "add.sat.bf16", "ex2.approx.bf16", "div.f16",
    ],
)  # fmt: skip
def test_forms_that_do_not_exist_have_no_row(opcode: str) -> None:
    assert lookup(opcode) is None
