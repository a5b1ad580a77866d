"""f32 and f64 arithmetic: every form on every engine, exact values and known results (PTX ISA 9.7.3)."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.in_turn import one_in
from tests.ptx.grouped import approximate_opcodes, check_together, columns, exact_groups, one_per_name
from tests.ptx.harness import check
from tests.ptx.opcodes import operands, rows_of
from weft.ptx.isa import lookup

ROWS = rows_of("floating")
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
    """Return results for operands given by hand, one tuple per lane."""
    dtype = np.float64 if opcode.endswith("f64") else np.float32
    values = dict(zip("abc", zip(*lanes, strict=True), strict=False))
    sources = {name: np.array(column, dtype) for name, column in values.items()}
    found = lookup(opcode)
    assert found is not None, opcode
    result = check(opcode, sources, uniform_sets=2)[found[0].operands[0].name]
    return result[: len(lanes)]


def _bits(values: npt.NDArray[Any]) -> list[int]:
    return [int(x) for x in values.view(f"uint{8 * values.dtype.itemsize}")]


@pytest.mark.parametrize(
    ("opcode", "lanes", "want"),
    [
        # 1 + 2^-24 is a tie: to even is 1, up is the next float.
        ("add.rn.f32", [(1, 2**-24), (1, 3 * 2**-24)], [1, 1 + 2**-22]),
        ("add.rp.f32", [(1, 2**-60), (-1, -(2**-60))], [1 + 2**-23, -1]),
        ("add.rm.f32", [(1, 2**-60), (-1, -(2**-60))], [1, -1 - 2**-23]),
        ("add.rz.f32", [(1, -(2**-60)), (-1, 2**-60)], [1 - 2**-24, -1 + 2**-24]),
        ("sub.rp.f64", [(1, -(2**-80))], [1 + 2**-52]),
        ("mul.rz.f32", [(1 + 2**-23, 1 + 2**-23)], [1 + 2**-22]),
        ("mul.rp.f32", [(1 + 2**-23, 1 + 2**-23)], [1 + 3 * 2**-23]),
        ("mul.rz.f64", [(1.5e308, 1.5e308)], [np.finfo(np.float64).max]),
        ("mul.rp.f64", [(2.0**-1074, 0.25)], [2.0**-1074]),
        ("div.rm.f32", [(1, 3), (-1, 3)], [0xAAAAAA * 2.0**-25, -0xAAAAAB * 2.0**-25]),
        ("sqrt.rp.f64", [(2,)], [1.4142135623730951454746]),
        ("sqrt.rm.f64", [(2,)], [1.4142135623730949234300]),
        # One rounding: the product's low bits survive to the sum.
        ("fma.rn.f32", [(1 + 2**-12, 1 - 2**-12, -1)], [-(2.0**-24)]),
        ("mad.rn.f32", [(3, 4, 5)], [17]),
        ("add.sat.f32", [(0.75, 0.5), (-3, 1), (NAN, 1), (0.25, 0.5)], [1, 0, 0, 0.75]),
        ("mul.ftz.f32", [(2**-100, 2**-30), (2**-130, 2**10), (2**-126, 1)], [0, 0, 2**-126]),
        ("mul.f32", [(2**-100, 2**-30)], [2**-130]),
        ("min.f32", [(NAN, 3), (3, NAN), (1, 2)], [3, 3, 1]),
        ("max.f32", [(NAN, 3), (3, NAN), (1, 2)], [3, 3, 2]),
        ("max.xorsign.abs.f32", [(-3, 2), (-3, -2), (1, 2)], [-3, 3, 2]),
        ("copysign.f32", [(-1, 5), (1, -5)], [-5, 5]),
        ("abs.ftz.f32", [(-3,), (-(2**-130),)], [3, 0]),
        ("neg.f32", [(3,)], [-3]),
        ("rcp.approx.f32", [(4,), (INF,), (0,), (2**-127,)], [0.25, 0, INF, 2.0**127]),
        ("rcp.approx.ftz.f32", [(2**-127,), (2.0**127,)], [INF, 0]),
        # The lower word is neither read nor written: 1/3 = 0x3fd5555555555555.
        ("rcp.approx.ftz.f64", [(3,), (4 + 2**-40,), (0,), (-(2.0**-1040),)], [0x155555 * 2.0**-22, 0.25, INF, -INF]),
        ("rsqrt.approx.ftz.f64", [(4,), (2.0**-1030,), (INF,)], [0.5, INF, 0]),
        # a * (1/b) with a flushed 1/b above 2^126; the full form scales instead.
        ("div.approx.f32", [(6, 3), (2.0**127, 2.0**127), (2.0**126, 2.0**126)], [2, 0, 1]),
        ("div.full.f32", [(6, 3), (2.0**127, 2.0**127), (1, 0)], [2, 1, INF]),
        ("sqrt.rn.f32", [(2,), (0,)], [np.sqrt(np.float32(2)), 0]),
        ("rsqrt.approx.f32", [(4,), (0,), (INF,)], [0.5, INF, 0]),
        ("ex2.approx.f32", [(10,), (-INF,), (INF,), (-149,), (-151,)], [1024, 0, INF, 2**-149, 0]),
        ("ex2.approx.ftz.f32", [(-130,), (0,), (-126,)], [0, 1, 2**-126]),
        ("lg2.approx.f32", [(8,), (0,), (INF,), (2**-140,)], [3, -INF, INF, -140]),
        ("lg2.approx.ftz.f32", [(2**-140,)], [-INF]),
        ("tanh.approx.f32", [(100,), (-100,), (0,)], [1, -1, 0]),
        ("sin.approx.f32", [(0,)], [0]),
        ("cos.approx.f32", [(0,)], [1]),
    ],
)  # fmt: skip
def test_known_results(opcode: str, lanes: list[tuple[float, ...]], want: list[float]) -> None:
    got = _run(opcode, *lanes)
    np.testing.assert_array_equal(got, np.array(want, got.dtype))


@pytest.mark.parametrize(
    ("opcode", "lanes", "want"),
    [
        ("add.f32", [(INF, -INF), (NAN, 1)], [0x7FFFFFFF, 0x7FFFFFFF]),
        ("max.f32", [(NAN, NAN), (-0.0, 0.0), (0.0, -0.0)], [0x7FFFFFFF, 0, 0]),
        ("min.f32", [(NAN, NAN), (-0.0, 0.0), (0.0, -0.0)], [0x7FFFFFFF, 1 << 31, 1 << 31]),
        ("max.NaN.f32", [(NAN, 1), (1, NAN), (1, 2)], [0x7FFFFFFF, 0x7FFFFFFF, 0x40000000]),
        ("mul.ftz.f32", [(-(2**-130), 1)], [1 << 31]),
        # The sum of opposite numbers is -0 only when rounding down.
        ("add.rm.f32", [(1, -1), (0.0, 0.0)], [1 << 31, 0]),
        ("add.rp.f32", [(1, -1)], [0]),
        ("fma.rm.f64", [(1, 1, -1)], [1 << 63]),
        ("add.f64", [(INF, -INF)], [0xFFF8 << 48]),
        ("sqrt.rn.f32", [(-1,), (-0.0,)], [0x7FFFFFFF, 1 << 31]),
        ("lg2.approx.f32", [(-1,)], [0x7FFFFFFF]),
        ("sin.approx.f32", [(INF,), (-0.0,)], [0x7FFFFFFF, 1 << 31]),
        ("div.approx.f32", [(INF, 2.0**127), (-1, 2.0**127)], [0x7FFFFFFF, 1 << 31]),
        ("add.sat.f32", [(-0.0, -0.0)], [0]),
    ],
)
def test_known_bits(opcode: str, lanes: list[tuple[float, ...]], want: list[int]) -> None:
    assert _bits(_run(opcode, *lanes)) == want


def test_double_keeps_the_first_payload() -> None:
    payload = np.array([0x7FF0000000000123], np.uint64).view(np.float64)
    result = check("add.f64", {"a": payload, "b": np.ones(1)}, uniform_sets=2)["d"][:1]
    assert _bits(result) == [0x7FF8000000000123]


@pytest.mark.parametrize(
    ("operation", "want"),
    [
        ("finite", [1, 1, 1, 0, 0]), ("infinite", [0, 0, 0, 1, 0]), ("number", [1, 1, 1, 1, 0]),
        ("notanumber", [0, 0, 0, 0, 1]), ("normal", [1, 0, 1, 0, 0]), ("subnormal", [0, 1, 0, 0, 0]),
    ],
)  # fmt: skip
def test_testp(operation: str, want: list[int]) -> None:
    got = _run(f"testp.{operation}.f32", (1,), (2**-140,), (0,), (-INF,), (NAN,))
    assert got.tolist() == [bool(x) for x in want]


def _taylor_sin(x: Decimal) -> Decimal:
    term, total, k = x, x, 1
    while abs(term) > Decimal(10) ** -60 or k < 10:
        term = -term * x * x / ((k + 1) * (k + 2))
        total, k = total + term, k + 2
    return total


_TRUTH: dict[str, Callable[[Decimal], Decimal]] = {
    "ex2": lambda x: Decimal(2) ** x,
    "lg2": lambda x: x.ln() / Decimal(2).ln(),
    "rsqrt": lambda x: 1 / x.sqrt(),
    "tanh": lambda x: 1 - 2 / ((2 * x).exp() + 1),
    "sin": _taylor_sin,
    "cos": lambda x: 1 - 2 * _taylor_sin(x / 2) ** 2,
}


@pytest.mark.parametrize("name", sorted(_TRUTH))
def test_approximations_are_nearly_correctly_rounded(name: str) -> None:
    """Within 0.5001 ulp of the true value, in 100 digits."""
    rng = np.random.default_rng(11)
    scale = {"sin": 30.0, "cos": 30.0, "tanh": 3.0}.get(name, 20.0)
    a = (rng.standard_normal(300) * scale).astype(np.float32)
    a = np.abs(a) if name in ("lg2", "rsqrt") else a
    result = check(f"{name}.approx.f32", {"a": a}, ulp=1, uniform_sets=2)["d"][:300]
    with localcontext() as context:
        context.prec = 120
        for x, y in zip(a, result, strict=True):
            truth = _TRUTH[name](Decimal(float(x)))
            ulp = Decimal(float(np.spacing(np.abs(y))))
            assert abs(Decimal(float(y)) - truth) <= Decimal("0.5001") * ulp, (x, y)


@pytest.mark.parametrize(
    "opcode",
    [
        "add.ftz.f64", "add.sat.f64", "fma.f32", "mad.f32", "add.rna.f32", "div.f32", "div.full.rn.f32",
        "max.xorsign.f32", "ex2.f32", "tanh.approx.ftz.f32", "sqrt.f32", "add.f32.f32", "min.NaN.f64",
    ],
)  # fmt: skip
def test_forms_that_do_not_exist_have_no_row(opcode: str) -> None:
    assert lookup(opcode) is None
