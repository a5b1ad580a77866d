"""Layouts of wgmma operands and of TMA boxes, as CuTe's own atoms and descriptors define them, compared with NumPy.

Weft's layouts come from the PTX manual; `cute_layouts.cu` takes CuTe's instead, for what threads store and read, for
the descriptors (`make_gmma_desc`) and for the place of every box. The elements are small integers: all sums are exact.
One pair of layouts runs always, because CuTe takes long to compile; all others in the sweep.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.in_turn import one_in
from weft import VirtualGPU
from weft.core.finding_codes import Severity
from weft.engines.kernel_file import load
from weft.probes.tools import watch_for
from weft.toolchain.cuda_headers import package_file

K_MAJOR = ((0, 1), (1, 2), (2, 3), (3, 0))
PAIRS = (*K_MAJOR, (4, 5), (5, 6), (6, 7), (7, 4), (3, 7), (6, 2))
"""Layouts of A and B of each launch: 0 to 3 have K contiguous and swizzles of 0, 32, 64, 128 bytes, 4 to 7 M or N."""


@dataclass(frozen=True)
class Type:
    """An element type: CuTe's name and NumPy's."""

    name: str
    dtype: Any

    @property
    def size(self) -> int:
        return int(np.dtype(self.dtype).itemsize)


F16, BF16 = Type("half_t", np.float16), Type("bfloat16_t", ml_dtypes.bfloat16)
TF32 = Type("tfloat32_t", np.float32)
E4M3, E5M2 = Type("float_e4m3_t", ml_dtypes.float8_e4m3fn), Type("float_e5m2_t", ml_dtypes.float8_e5m2)
S8, U8 = Type("int8_t", np.int8), Type("uint8_t", np.uint8)
F32, S32 = Type("float", np.float32), Type("int32_t", np.int32)


@dataclass(frozen=True)
class Case:
    """Types of A, B and C, and the first and last of PAIRS."""

    a: Type
    b: Type
    c: Type
    first: int = 0
    last: int = len(K_MAJOR) - 1

    def __str__(self) -> str:
        return f"{self.a.name}-{self.b.name}-{self.c.name}-{self.first}"


CASES = [
    Case(F16, F16, F32, 8, 8),
    Case(F16, F16, F32, 0, 3), Case(F16, F16, F32, 4, 7), Case(F16, F16, F32, 9, 9), Case(F16, F16, F16),
    Case(BF16, BF16, F32, 0, 3), Case(BF16, BF16, F32, 4, 7), Case(BF16, BF16, F32, 8, 9), Case(TF32, TF32, F32),
    Case(E4M3, E4M3, F32), Case(E5M2, E5M2, F32), Case(E4M3, E5M2, F32), Case(E5M2, E4M3, F32),
    Case(S8, S8, S32), Case(U8, U8, S32), Case(S8, U8, S32), Case(U8, S8, S32),
]  # fmt: skip


@pytest.mark.parametrize("case", one_in(len(CASES), CASES), ids=str)
def test_equals_numpy(case: Case) -> None:
    size = case.a.size
    rng = np.random.default_rng(CASES.index(case))
    a, b = (
        rng.integers(0 if each is U8 else -3, 4, (rows, 256 // size)).astype(each.dtype)
        for each, rows in ((case.a, 64), (case.b, 128))
    )
    raw = np.dtype(f"u{size}")
    defines = {
        "A_TYPE": case.a.name, "B_TYPE": case.b.name, "SUM_TYPE": case.c.name, "SIZE": str(size),
        "RAW": f"uint{8 * size}_t", "RAW_SUM": f"uint{8 * case.c.size}_t",
        "FIRST": str(case.first), "LAST": str(case.last),
    }  # fmt: skip
    headers = package_file("nvidia-cutlass", "cute/tensor.hpp").parents[1]
    kernel = load(Path(__file__).with_name("cute_layouts.cu"), arch="sm_90a", defines=defines, include_dirs=[headers])
    inputs = {"a": a.view(raw), "b": b.view(raw), "b_columns": np.ascontiguousarray(b.T).view(raw)}
    run, after = kernel.run(VirtualGPU("h100"), inputs, watch=watch_for(["all"]))
    assert [each for each in run.findings if each.level is not Severity.INFO] == []
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    for number in range(case.first, case.last + 1):
        a_by_rows = PAIRS[number][0] < 4
        stored = np.asarray(after["stored"])[number]
        stored = stored.reshape(a.shape) if a_by_rows else stored.reshape(a.T.shape).T
        np.testing.assert_array_equal(stored, a.view(raw), f"A of {PAIRS[number]}, stored by TMA")
        np.testing.assert_array_equal(after["back"][number], b.view(raw), f"B of {PAIRS[number]}, loaded by TMA")
        product = np.asarray(after["c"])[number].view(case.c.dtype)
        np.testing.assert_array_equal(product.astype(np.float64), expected, f"product of {PAIRS[number]}")
