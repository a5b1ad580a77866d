"""Compiled tensor-core functions equal the published rules, restated in float64, on tiles of every regime.

`benchmarks/tensor_core_tiles.py` runs 12,000 tiles of every form.
"""

import numpy as np
import pytest

from tests.in_turn import one_in
from tests.vm.published_rules import Form, product
from tests.vm.tensorcore_jit import CompiledMma
from tests.vm.tiles import FORMS, REGIMES, kind_of, random_scales, random_tiles
from weft.vm.mma_kind import MmaKind
from weft.vm.reference.tensorcore import mma

F16, BF16 = (MmaKind(16, 8, 16, name, name, "f32", "f32") for name in ("f16", "bf16"))
HALF = MmaKind(16, 8, 16, "f16", "f16", "f16", "f16")


@pytest.mark.parametrize("form", one_in(5, FORMS), ids=str)
def test_compiled_equals_the_published_rules(form: Form) -> None:
    kind = kind_of(form)
    compiled = CompiledMma(kind, arch=form.chip)
    for regime in ("any",) if kind.is_integer else REGIMES:
        a, b, c = random_tiles(kind, regime, 50, seed=11)
        scales = random_scales(form, regime, 50, seed=11)
        np.testing.assert_array_equal(compiled(a, b, c, scales), product(a, b, c, form, scales), f"{form} {regime}")


# Computed by hand: the exponent of a zero term, and the sign of a result of zero.


def element(kind: MmaKind, a: list[int], b: list[int], c: int, *, arch: str = "sm_90") -> int:
    """Return the bits of element (0, 0) for the bits of the first elements of A and B; both paths must agree."""
    x, y = np.zeros((1, 16, kind.k), np.uint16), np.zeros((1, kind.k, 8), np.uint16)
    z = np.zeros((1, 16, 8), np.uint16 if kind.d_type == "f16" else np.uint32)
    x[0, 0, : len(a)], y[0, : len(b), 0], z[0, 0, 0] = a, b, c
    result = mma(x, y, z, kind=kind, arch=arch)
    np.testing.assert_array_equal(CompiledMma(kind, arch=arch)(x, y, z), result)
    return int(result[0, 0, 0])


def test_a_zero_times_a_large_number_truncates_nothing() -> None:
    # 0 · 2^127 and 2^-20 · 2^-20: the sum is 2^-40. With the exponent of 2^127 it would be lost.
    assert element(BF16, [0, (127 - 20) << 7], [0xFE << 7, (127 - 20) << 7], 0) == (127 - 40) << 23
    # 0 · 2^15 and the smallest f32.
    assert element(F16, [0], [0x7800], 1) == 1


def test_a_zero_hides_the_last_bits_of_an_f16_result() -> None:
    # 2^-12 · 2^-13 is half of the smallest f16, a tie. Anything more is rounded up, but C is zero, with exponent -21
    # (sm_89: -20), so that terms keep 25 (24) bits: 2^-46 (2^-44).
    tie, above, less = (0x0C00, 0x0800), (0x0004, 0x0001), (0x0002, 0x0001)  # 2^-25, 2^-46, 2^-47
    for arch, more, expected in (("sm_90", above, 1), ("sm_90", less, 0), ("sm_89", above, 0)):
        a, b = zip(tie, more, strict=True)
        assert element(HALF, list(a), list(b), 0, arch=arch) == expected, (arch, more)


def test_a_negative_sum_that_rounds_to_zero_is_positive() -> None:
    assert element(HALF, [0x8001], [0x0001], 0) == 0  # -2^-48
    assert element(BF16, [0x8001], [0x0001], 0) == 0  # -2^-266
