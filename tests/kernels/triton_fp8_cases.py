"""Flash attention in Triton on FP8 tensor cores, against its own algorithm with Ada's 13-bit accumulation."""

import numpy as np

from tests.kernels import expectations
from tests.kernels.case import Array, Arrays, Case, Tolerance, ceil_div
from tests.kernels.triton_case import HOST, UNIT, Kernel, normal, triton_case

D, BLOCK_N = 64, 64
P_SCALE = 256.0
SOFTMAX_SCALE = 0.125
SCALES = {"q_scale": 1 / 64, "k_scale": 1 / 64, "v_scale": 1 / 64}
"""Powers of two: codes are values times 64, which E4M3 holds up to 7."""
LARGEST = 4.0
"""|V| is at most this."""


def _product(a: Array, b: Array, start: Array | None = None) -> Array:
    return expectations.E4M3_CHAIN.product(a, b, start)


def fp8_attention_head(q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """One head from codes q, k (S, D) and v (D, S): scores and P·V by tensor-core chains, the rest in float64."""
    S = len(q)
    to_log2 = SCALES["q_scale"] * SCALES["k_scale"] * SOFTMAX_SCALE * np.log2(np.e)
    acc, l, m = np.zeros((S, D)), np.zeros(S), np.full(S, -np.inf)
    for start in range(0, S, BLOCK_N):
        keys = np.arange(start, min(start + BLOCK_N, S))
        s = _product(q, k[keys].T) * to_log2
        if causal:
            s = np.where(keys <= np.arange(S)[:, None], s, -np.inf)
        m_new = np.maximum(m, s.max(axis=1))
        p, rescale = np.exp2(s - m_new[:, None]), np.exp2(m - m_new)
        l = l * rescale + p.sum(axis=1)
        codes = (p * P_SCALE).astype(np.float32).astype(HOST["fp8e4nv"])
        acc = _product(codes, v[:, keys].T, (acc * rescale[:, None]).astype(np.float32).astype(np.float64))
        m = m_new
    return np.asarray(acc * (SCALES["v_scale"] / P_SCALE) / l[:, None])


def fp8_inputs(rng: np.random.Generator, heads: int, S: int) -> Arrays:
    def codes(*shape: int) -> Array:
        return (normal(rng, *shape) * 64).astype(HOST["fp8e4nv"])

    return {"q": codes(heads, S, D), "k": codes(heads, S, D), "v": codes(heads, D, S)}


def flash_attention_fp8(S: int, out: str, *, causal: bool, num_warps: int = 4, num_stages: int = 3) -> Case:
    heads, block_m = 2, 16 * num_warps

    def expected(arrays: Arrays) -> Arrays:
        pairs = zip(arrays["q"], arrays["k"], arrays["v"], strict=True)
        return {"o": np.stack([fp8_attention_head(*head, causal=causal) for head in pairs])}

    kernel = Kernel(
        "triton_fp8_attention",
        "flash_attention_fp8",
        {"q": "fp8e4nv", "k": "fp8e4nv", "v": "fp8e4nv", "o": out},
        {"S": S, **SCALES, "softmax_scale": SOFTMAX_SCALE},
        {"D": D, "BLOCK_M": block_m, "BLOCK_N": BLOCK_N, "CAUSAL": causal},
        num_warps,
        num_stages,
    )
    return triton_case(
        f"flash_fp8_S{S}_{out}_w{num_warps}_s{num_stages}{'_causal' * causal}",
        kernel,
        (ceil_div(S, block_m), heads, 1),
        lambda rng: fp8_inputs(rng, heads, S),
        expected,
        outputs={"o": (heads, S, D)},
        # Two ulp of exp2 may move a value over the edge of a truncation to 13 bits: four such steps, each of at most
        # twice the largest |O|. One value in 2^10 is so near an edge, which leaves an RMS of 2^-13 · 2^-5 of O < 1.
        tolerance={"o": Tolerance(4 * 2 * 2.0**-13 * LARGEST, UNIT[out], rms=UNIT[out] / 2 + 2.0**-18)},
    )


FP8_CASES = (
    flash_attention_fp8(128, "fp32", causal=False),
    flash_attention_fp8(77, "bf16", causal=True, num_stages=2),
    flash_attention_fp8(144, "bf16", causal=True, num_warps=8),
)
