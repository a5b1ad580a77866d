"""FlashInfer's unmodified single-request kernels, compared with float64, under every checker."""

import numpy as np
import pytest

from tests.in_turn import one_in
from tests.production.agreement import agreement, production_kernel, where
from weft import VirtualGPU

DECODE = ("flashinfer-python", "flashinfer/attention/decode.cuh")
PREFILL = ("flashinfer-python", "flashinfer/attention/prefill.cuh")

ONE_HEAD_EACH = ((1, 1, 1), (2, 2, 7), (4, 4, 100), (3, 3, 128), (2, 2, 257))
FOUR_PER_KEY_HEAD = ((4, 1, 1), (8, 2, 33), (4, 1, 64), (16, 4, 77), (8, 2, 130))


@pytest.mark.parametrize(
    ("dtype", "d", "shapes"),
    one_in(
        3,
        [
            ("f16", 64, ONE_HEAD_EACH),
            ("f16", 128, FOUR_PER_KEY_HEAD),
            ("bf16", 64, FOUR_PER_KEY_HEAD),
            ("bf16", 128, FOUR_PER_KEY_HEAD),
        ],
        several=True,
    ),
)
def test_decode(dtype: str, d: int, shapes: tuple[tuple[int, int, int], ...]) -> None:
    gpu = VirtualGPU()
    kernel = production_kernel("flashinfer_decode.cu", dtype, DECODE)
    for hq, hkv, keys in shapes:
        sizes = {"HQ": hq, "HKV": hkv, "S": keys, "D": d}
        outcome = agreement(gpu, kernel, sizes, dtype, causal=None, tokens_first=True)
        assert outcome.findings == ()
        np.testing.assert_allclose(outcome.lse * np.log(2), outcome.gold_lse, rtol=1e-5, atol=1e-5)


# write_o_reg_gmem: lanes of a warp read what other lanes have just written, without __syncwarp (on architectures before
# sm_90, which have no stmatrix).
NO_SYNCWARP = ("R102", "permuted_smem.cuh", "prefill.cuh")
# Rows of Q beyond the sequence are not filled (SharedMemFillMode::kNoFill). They are still multiplied, and their row
# maximum decides a branch; none of them is stored.
ROWS_NOT_FILLED = ("I201", "mma.cuh", "variant_helper.cuh")

# Query heads, key heads, queries, keys. Tracing the values of unfilled rows is slow: one shape has such rows.
PREFILL_SHAPES = ((2, 1, 37, 70), (2, 1, 32, 32), (2, 1, 64, 97), (4, 2, 32, 45), (4, 4, 64, 128))
ROUNDING_OF_P = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""The row sum is computed on tensor cores: it sums the rounded P, and log(1 + x) is about x."""


@pytest.mark.parametrize(
    ("dtype", "d"), one_in(4, [("f16", 128), ("bf16", 128), ("bf16", 64), ("f16", 64)], several=True)
)
def test_prefill(dtype: str, d: int) -> None:
    gpu = VirtualGPU()
    kernel = production_kernel("flashinfer_prefill.cu", dtype, PREFILL)
    for hq, hkv, queries, keys in PREFILL_SHAPES:
        sizes = {"HQ": hq, "HKV": hkv, "SQ": queries, "SKV": keys, "D": d}
        outcome = agreement(gpu, kernel, sizes, dtype, causal="bottom_right", tokens_first=True)
        whole_tiles = queries * hq // hkv % 64 == 0
        assert where(outcome.findings) == {NO_SYNCWARP} | (set() if whole_tiles else {ROWS_NOT_FILLED})
        np.testing.assert_allclose(outcome.lse * np.log(2), outcome.gold_lse, rtol=1e-5, atol=ROUNDING_OF_P[dtype])
