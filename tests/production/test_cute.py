"""Attention with the unmodified headers of CuTe, compared with float64, under every checker."""

import numpy as np
import pytest

from tests.production.agreement import agreement, production_kernel
from weft import VirtualGPU
from weft.attention.reference import Causal
from weft.attention.shapes import SHAPES

CUTE = ("nvidia-cutlass", "cute/tensor.hpp")


def agree(dtype: str, causal: Causal, names: tuple[str, ...]) -> None:
    macro = {None: "0", "top_left": "1", "bottom_right": "2"}[causal]
    gpu = VirtualGPU()
    kernel = production_kernel("cute_attention.cu", dtype, CUTE, CAUSAL=macro)
    for name in names:
        shape = SHAPES[name]
        sizes = {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
        outcome = agreement(gpu, kernel, sizes, dtype, causal=causal, tokens_first=False)
        assert outcome.findings == ()
        np.testing.assert_allclose(outcome.lse, outcome.gold_lse, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep  # a minute
def test_attention() -> None:
    """One instantiation, because CuTe takes long to compile, and every kind of partial tile."""
    agree("f16", "bottom_right", ("small", "ragged", "gqa_4_ragged", "decode", "few_queries", "few_keys", "one_token"))


@pytest.mark.sweep
def test_wide_heads_in_bfloat16() -> None:
    agree("bf16", None, ("d128", "decode_gqa"))
