"""Formulas in C++: compiled with NVRTC and run, they have the same values as in launch lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.attention.shapes import SHAPES
from weft.core.errors import UsageError
from weft.engines.bind import bind_numbers
from weft.engines.expressions import Expression
from weft.engines.kernel_file import load
from weft.interop.cpp_formula import INTEGER_FUNCTIONS, to_cpp
from weft.kernels.ladder import RUNGS

STUBS = Path(__file__).parent / "torch_stub"


def run_cpp(
    formulas: Sequence[Expression], rows: Sequence[Mapping[str, int]], defines: Mapping[str, str]
) -> np.ndarray:
    """The value of every formula (columns) for every row of names."""
    names = list(rows[0])
    lines = ["#include <algorithm>", "#include <cmath>", "#include <cstdint>", INTEGER_FUNCTIONS]
    lines += ['extern "C" __global__ void evaluate(const int64_t* given, double* out) {']
    lines += [f"    const int64_t {name} = given[threadIdx.x * {len(names)} + {i}];" for i, name in enumerate(names)]
    for i, formula in enumerate(formulas):
        lines += [f"    out[threadIdx.x * {len(formulas)} + {i}] = {to_cpp(formula, floats=())};"]
    binary = weft.compile_cuda(
        "\n".join([*lines, "}"]), name="evaluate.cu", include_dirs=[STUBS], options=["-default-device"], defines=defines
    )
    given = np.array([[row[name] for name in names] for row in rows], np.int64)
    out = np.full((len(rows), len(formulas)), np.nan)
    run = weft.VirtualGPU().launch(binary, "evaluate", 1, len(rows), [given, out])
    assert run.clean
    return out


FORMULAS = (
    "S", "7", "-S", "+S", "S + H * 3", "(S + H) * 3", "S - (H - 2)", "-(S - 3) * H", "S // 7", "(0 - S) // 7", "S % 7",
    "(0 - S) % 7", "cdiv(S, 64)", "cdiv(0 - S, 64)", "cdiv(S, H) * H - S", "min(S, 64)", "max(S, H, 9)", "S > 64",
    "(S >= 64) * 3 + (H == 2)", "1 < H <= 4", "(H != 4) * 5", "1 / sqrt(S)", "S / H", "3 / 4", "1.5 * S", "ceil(S / H)",
    "ceil(S) + 1", "min(S / H, 2.5)", "S / (H * 2)", "(S + 1) / (H + 1)", "2.0e-3 * (S - H)",
)  # fmt: skip


def test_every_form_has_its_value() -> None:
    rows = [{"S": s, "H": h} for s in (1, 6, 7, 64, 65, 2048) for h in (1, 2, 4)]
    formulas = [Expression.parse(text) for text in FORMULAS]
    expected = [[float(formula.value(row)) for formula in formulas] for row in rows]
    np.testing.assert_array_equal(run_cpp(formulas, rows, {}), expected)


@pytest.mark.parametrize("name", [name for name, rung in RUNGS.items() if rung.task == "fp8_sdpa"])
def test_the_rungs_launch_the_same_grid_on_every_shape(name: str) -> None:
    kernel = load(RUNGS[name].path)
    rows = [
        {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
        for shape in SHAPES.values()
    ]
    bound = [bind_numbers(kernel.lines, kernel.path, sizes=row, defines={}) for row in rows]
    formulas = [formula for launch in kernel.launches for formula in (*launch.grid, *launch.block)]
    formulas += [scalar.value for scalar in kernel.scalars]
    expected = [[float(formula.value(each.names)) for formula in formulas] for each in bound]
    macros = {name: value for name, value in bound[0].defines.items() if value.isdecimal()}
    np.testing.assert_array_equal(run_cpp(formulas, rows, macros), expected)


def test_translated_formulas_are_readable() -> None:
    assert to_cpp(Expression.parse("cdiv(SQ, 64) * HQ"), floats=()) == "cdiv(SQ, 64) * HQ"
    assert to_cpp(Expression.parse("1 / sqrt(D)"), floats=()) == "1.0 / std::sqrt(static_cast<double>(D))"
    assert to_cpp(Expression.parse("log2(D)"), floats=()) == "std::log2(static_cast<double>(D))"
    assert to_cpp(Expression.parse("2 * scale"), floats={"scale"}) == "2 * scale"


@pytest.mark.parametrize("text", ["S ** 2", "1.5 // S", "S % 2.0", "min(S, 1.5)", "cdiv(S, 2.0)"])
def test_formulas_without_a_translation_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"C\+\+|integers"):
        to_cpp(Expression.parse(text), floats=())
