"""Attention in CUDA C++ and Triton: naive fp32, split-K, WMMA, mma.sync, and Triton's own."""

from collections.abc import Callable
from functools import partial

import ml_dtypes
import numpy as np

from tests.kernels.case import Array, Arrays, Buffer, Case, Cuda, Launch, Tolerance, Triton, ceil_div
from tests.kernels.expectations import attention, log_sum_exp

D = 64
SCALE = 0.125
LARGEST = 4.0
"""Inputs are standard normal, clipped here: a bound of |V| for the tolerances, and an RMS of V below 1."""

# fp32 kernels against float64. A score is a sum of D = 64 products with Σ|q·k|·scale < 10, so its error
# stays below 64 · 2^-24 · 10 = 4e-5 in the worst case and near 1e-6 in practice; the exponential turns
# it into the same relative error of P. Sums over S <= 200 keys add at most 200 · 2^-24 = 1.2e-5 relative.
# Half of that worst case, times |V|; errors of random sign leave an RMS far below it.
FP32 = Tolerance(absolute=1e-4, rms=5e-6)
# LSE of kernels with fp32 accumulate: the error of a score above, plus 2 ulp of exp2 and log at |LSE| < 16.
LSE = Tolerance(absolute=4e-5)


def _rounded(unit: float) -> Tolerance:
    """P and O are rounded to a type of unit roundoff `unit`.

    P: Σ w_j · δ_j · v_j with |δ| <= unit and Σ w = 1 is at most unit · max|V|; O: unit · |O|; the fp32 part
    is as above. As independent errors their RMS is at most sqrt(2/3) · unit · RMS(V) · sqrt(mean Σ w²).
    Scores of unit variance over n keys give about Σ w² = e / n, but at most 1: over S >= 64 causal rows the
    mean is near 0.15 at most. A single key has w = 1, which rounds nowhere.
    """
    return Tolerance(absolute=unit * LARGEST + FP32.absolute, relative=unit, rms=unit / 3)


FP16 = _rounded(2.0**-11)
BF16 = _rounded(2.0**-8)


def _qkv(rng: np.random.Generator, *, shape: tuple[int, ...], dtype: type = np.float32) -> Arrays:
    def normal() -> Array:
        return rng.standard_normal(shape).clip(-LARGEST, LARGEST).astype(dtype)

    return {"q": normal(), "k": normal(), "v": normal()}


def _o(arrays: Arrays, *, causal: bool, scale: float = SCALE) -> Arrays:
    return {"o": attention(arrays["q"], arrays["k"], arrays["v"], scale=scale, causal=causal)}


def _o_and_lse(arrays: Arrays, *, causal: bool) -> Arrays:
    lse = log_sum_exp(arrays["q"], arrays["k"], scale=SCALE, causal=causal)
    return {**_o(arrays, causal=causal), "lse": lse}


def _inputs(shape: tuple[int, ...], dtype: type = np.float32) -> Callable[[np.random.Generator], Arrays]:
    return partial(_qkv, shape=shape, dtype=dtype)


def naive_per_row(S: int, *, causal: bool, D: int = D, debug: bool = False) -> Case:
    heads, entry = 2, f"attention_per_row<{D}>"
    scale = D**-0.5
    args = ("q", "k", "v", "o", np.int32(S), np.float32(scale), np.bool_(causal))
    return Case(
        name=f"naive_attention_per_row_S{S}_D{D}{'_causal' * causal}{'_debug' * debug}",
        source=Cuda("naive_attention.cu", (entry,), debug=debug),
        launches=(Launch(entry, (ceil_div(S, 64), heads, 1), (64, 1, 1), args),),
        inputs=_inputs((heads, S, D)),
        outputs={"o": Buffer((heads, S, D), np.float32)},
        expected=partial(_o, causal=causal, scale=scale),
        tolerance={"o": FP32},
    )


def naive_per_element(S: int, D: int) -> Case:
    heads, entry, scale = 2, "attention_per_element", D**-0.5
    args = ("q", "k", "v", "o", np.int32(S), np.int32(D), np.float32(scale))
    return Case(
        name=f"naive_attention_per_element_S{S}_D{D}",
        source=Cuda("naive_attention.cu", (entry,)),
        launches=(Launch(entry, (ceil_div(D, 32), heads, ceil_div(S, 4)), (32, 4, 1), args),),
        inputs=_inputs((heads, S, D)),
        outputs={"o": Buffer((heads, S, D), np.float32)},
        expected=partial(_o, causal=False, scale=scale),
        tolerance={"o": FP32},
    )


def split_k(S: int, splits: int, *, causal: bool) -> Case:
    heads, warps = 2, 4
    entries = (f"attention_partial<{D}>", f"attention_reduce<{D}>")
    rows = ceil_div(S, warps)
    partials = ("partial_o", "partial_m", "partial_l")
    partial_args = ("q", "k", "v", *partials, np.int32(S), np.float32(SCALE), np.bool_(causal))
    reduce_args = (*partials, "o", "lse", np.int32(S), np.int32(splits))
    return Case(
        name=f"split_k_attention_S{S}_splits{splits}{'_causal' * causal}",
        source=Cuda("split_k_attention.cu", entries),
        launches=(
            Launch(entries[0], (rows, heads, splits), (32 * warps, 1, 1), partial_args),
            Launch(entries[1], (rows, heads, 1), (32 * warps, 1, 1), reduce_args),
        ),
        inputs=_inputs((heads, S, D)),
        outputs={
            "partial_o": Buffer((heads, splits, S, D), np.float32),
            "partial_m": Buffer((heads, splits, S), np.float32),
            "partial_l": Buffer((heads, splits, S), np.float32),
            "o": Buffer((heads, S, D), np.float32),
            "lse": Buffer((heads, S), np.float32),
        },
        expected=partial(_o_and_lse, causal=causal),
        tolerance={"o": FP32, "lse": LSE},
    )


def wmma(
    S: int, queries: int, keys: int, warps: int, *, batch: int = 1, arch: str = "sm_89", debug: bool = False
) -> Case:
    heads, entry = 2, f"wmma_attention<{queries},{keys},{warps}>"
    args = ("q", "k", "v", "o", np.int32(S), np.float32(SCALE))
    return Case(
        name=f"wmma_attention_B{batch}_S{S}_{queries}x{keys}_w{warps}_{arch}{'_debug' * debug}",
        source=Cuda("wmma_attention.cu", (entry,), arch=arch, debug=debug),
        launches=(Launch(entry, (ceil_div(S, queries), heads, batch), (32 * warps, 1, 1), args),),
        inputs=_inputs((batch, heads, S, D), np.float16),
        outputs={"o": Buffer((batch, heads, S, D), np.float16)},
        expected=partial(_o, causal=False),
        tolerance={"o": FP16},
    )


def mma(
    S: int, dtype: str, warps: int, *, causal: bool, batch: int = 1, arch: str = "sm_89", debug: bool = False
) -> Case:
    heads = 2
    element, host = {"fp16": ("half", np.float16), "bf16": ("__nv_bfloat16", ml_dtypes.bfloat16)}[dtype]
    entry = f"mma_attention<{element},{warps},{'true' if causal else 'false'}>"
    args = ("q", "k", "v", "o", "lse", np.int32(S), np.float32(SCALE))
    shared_bytes = (16 * warps + 4 * 64) * D * 2
    grid = (ceil_div(S, 16 * warps), heads, batch)
    return Case(
        name=f"mma_attention_B{batch}_S{S}_{dtype}_w{warps}{'_causal' * causal}_{arch}{'_debug' * debug}",
        source=Cuda("mma_attention.cu", (entry,), arch=arch, debug=debug),
        launches=(Launch(entry, grid, (32 * warps, 1, 1), args, shared_bytes),),
        inputs=_inputs((batch, heads, S, D), host),
        outputs={"o": Buffer((batch, heads, S, D), host), "lse": Buffer((batch, heads, S), np.float32)},
        expected=partial(_o_and_lse, causal=causal),
        tolerance={"o": FP16 if dtype == "fp16" else BF16, "lse": LSE},
    )


def triton_flash(
    S: int, dtype: str, *, causal: bool, num_warps: int = 4, num_stages: int = 3, arch: str = "sm_89"
) -> Case:
    heads, block_m = 2, 16 * num_warps
    host = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    tensors = {f"{name}_ptr": f"*{dtype}" for name in ("q", "k", "v", "o")}
    scratch = (np.uint64(0), np.uint64(0))
    args = ("q", "k", "v", "o", "lse", np.int32(S), np.float32(SCALE), *scratch)
    return Case(
        name=f"triton_flash_S{S}_{dtype}_w{num_warps}_s{num_stages}{'_causal' * causal}_{arch}",
        source=Triton(
            kernel="flash_attention",
            signature={**tensors, "lse_ptr": "*fp32", "S": "i32", "scale": "fp32"},
            constexprs={"D": D, "BLOCK_M": block_m, "BLOCK_N": 64, "CAUSAL": causal},
            aligned=(*tensors, "lse_ptr"),
            num_warps=num_warps,
            num_stages=num_stages,
            arch=arch,
        ),
        launches=(Launch("flash_attention", (ceil_div(S, block_m), heads, 1), (32 * num_warps, 1, 1), args),),
        inputs=_inputs((heads, S, D), host),
        outputs={"o": Buffer((heads, S, D), host), "lse": Buffer((heads, S), np.float32)},
        expected=partial(_o_and_lse, causal=causal),
        tolerance={"o": FP16 if dtype == "fp16" else BF16, "lse": LSE},
    )


ATTENTION_CASES = (
    naive_per_row(77, causal=False),
    naive_per_row(64, causal=True),
    naive_per_row(33, causal=True, D=16, debug=True),
    naive_per_element(21, 40),
    split_k(65, 3, causal=False),
    split_k(64, 4, causal=True),
    wmma(128, 32, 32, 4),
    wmma(77, 32, 32, 4, batch=2),
    wmma(100, 32, 64, 4),
    wmma(100, 64, 32, 8),
    wmma(1, 32, 32, 4),
    wmma(100, 32, 32, 4, arch="sm_80"),
    wmma(40, 32, 32, 4, debug=True),
    mma(128, "fp16", 4, causal=False),
    mma(200, "fp16", 4, causal=True, batch=2),
    mma(131, "fp16", 8, causal=False),
    mma(200, "fp16", 8, causal=True),
    mma(100, "bf16", 4, causal=False),
    mma(65, "bf16", 8, causal=True),
    mma(100, "fp16", 4, causal=True, arch="sm_80"),
    mma(70, "bf16", 4, causal=True, debug=True),
    triton_flash(128, "fp16", causal=False),
    triton_flash(128, "fp16", causal=True),
    triton_flash(200, "fp16", causal=False, num_stages=2),
    triton_flash(200, "fp16", causal=True, num_stages=2),
    triton_flash(200, "fp16", causal=False, num_warps=8),
    triton_flash(200, "fp16", causal=True, num_warps=8),
    triton_flash(77, "bf16", causal=False),
    triton_flash(130, "bf16", causal=True, num_stages=2),
    triton_flash(1, "fp16", causal=True),
    triton_flash(100, "fp16", causal=True, arch="sm_80"),
)
