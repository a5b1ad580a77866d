"""Matrix products in Triton, bit-exact where the tensor cores' rule gives the last bit."""

import numpy as np

from tests.kernels import expectations
from tests.kernels.case import Array, Arrays, Case, Tolerance, ceil_div
from tests.kernels.triton_case import HOST, UNIT, Kernel, integers, normal, triton_case

MODULE = "triton_gemm_kernels"
RULES = {
    "tf32": expectations.Chain(step=4, kept=24, result=23),
    "bf16": expectations.Chain(step=8, kept=24, result=23),
    "fp16": expectations.Chain(step=8, kept=24, result=23, smallest=-14),
    "fp8e4nv": expectations.E4M3_CHAIN,
    "fp8e5": expectations.Chain(step=16, kept=13, result=13, smallest=-14),
}
"""How the tensor cores of sm_89 add the products of one mma: half of its K at a time."""


def tf32(x: Array) -> Array:
    """Return what a tensor core uses of fp32: the last 13 bits are ignored."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _rounded(x: Array, element: str) -> Array:
    """float64 that float32 holds exactly → float32 → the element type, to nearest."""
    return x.astype(np.float32).astype(HOST[element])


def strided_matmul(
    M: int,
    N: int,
    K: int,
    element: str,
    out: str,
    *,
    precision: str = "tf32",
    b_transposed: bool = True,
    num_warps: int = 4,
    num_stages: int = 3,
    arch: str = "sm_89",
) -> Case:
    """C has rows of N + 3 elements, of which the last three must not change."""
    pitch, whole = N + 3, element == "i8"
    block_k = 64 if np.dtype(HOST[element]).itemsize == 1 else 32

    def make(rng: np.random.Generator, *shape: int) -> Array:
        return integers(rng, -128, 128, *shape, element="i8") if whole else normal(rng, *shape, element=element)

    def inputs(rng: np.random.Generator) -> Arrays:
        b = make(rng, N, K) if b_transposed else make(rng, K, N)
        return {"a": make(rng, M, K), "b": b, "c": np.full((M, pitch), 77, HOST[out])}

    def expected(arrays: Arrays) -> Arrays:
        a, b = arrays["a"], arrays["b"].T if b_transposed else arrays["b"]
        if whole:
            product = a.astype(np.int64) @ b.astype(np.int64)
        elif precision == "tf32" and element == "fp32":
            product = _rounded(RULES["tf32"].product(tf32(a), tf32(np.ascontiguousarray(b))), out)
        elif element == "fp32":
            product = expectations.matmul(a, b)
        else:
            product = _rounded(RULES[element].product(a, b), out)
        arrays["c"] = arrays["c"].astype(product.dtype)
        arrays["c"][:, :N] = product
        return {"c": arrays["c"]}

    strides = {
        "stride_am": K,
        "stride_ak": 1,
        "stride_bk": 1 if b_transposed else N,
        "stride_bn": K if b_transposed else 1,
        "stride_cm": pitch,
        "stride_cn": 1,
    }
    kernel = Kernel(
        MODULE,
        "strided_matmul",
        {"a": element, "b": element, "c": out},
        {"M": M, "N": N, "K": K, **strides},
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": block_k, "PRECISION": precision},
        num_warps,
        num_stages,
        arch=arch,
    )
    shown = precision if element == "fp32" else element
    return triton_case(
        f"strided_matmul_{M}x{N}x{K}_{shown}_w{num_warps}_s{num_stages}_{arch}",
        kernel,
        (ceil_div(M, 64), ceil_div(N, 32), 1),
        inputs,
        expected,
        tolerance={"c": PRECISE[precision](K)} if element == "fp32" and precision != "tf32" else {},
    )


PRECISE = {
    # K fused multiply-adds of partial sums below 64, half an ulp each.
    "ieee": lambda K: Tolerance(absolute=K * 2.0**-24 * 64, rms=K * 2.0**-24),
    # Each fp32 is a sum of a tf32 and a rest, itself cut to tf32: 2^-21 of every product remains. Three chains of
    # K / 4 steps with five terms cut at 2^-24 of partial sums below 64.
    "tf32x3": lambda K: Tolerance(absolute=K * 2.0**-20 + 3 * K / 4 * 5 * 2.0**-24 * 64, rms=K * 2.0**-20 / 4),
}


def linear_gelu(M: int, N: int, K: int) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        import torch

        sums = expectations.matmul(arrays["x"], arrays["weight"].T) + arrays["bias"].astype(np.float64)
        return {"out": np.asarray(torch.nn.functional.gelu(torch.from_numpy(sums)).numpy())}

    kernel = Kernel(
        MODULE,
        "linear_gelu",
        dict.fromkeys(("x", "weight", "bias", "out"), "bf16"),
        {"M": M, "N": N, "K": K},
        {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32},
        num_stages=2,
    )
    return triton_case(
        f"linear_gelu_{M}x{N}x{K}_bf16",
        kernel,
        (ceil_div(M, 64), ceil_div(N, 32), 1),
        lambda rng: {
            "x": normal(rng, M, K, element="bf16"),
            "weight": normal(rng, N, K, element="bf16"),
            "bias": normal(rng, N, element="bf16"),
        },
        expected,
        outputs={"out": (M, N)},
        # 9 terms cut at 2^-24 of sums below 64 in K / 8 steps, times GELU's slope of at most 1.13; erf: 2 ulp.
        tolerance={"out": Tolerance(1.13 * K / 8 * 9 * 2.0**-24 * 64 + 64 * 2.0**-23, UNIT["bf16"])},
    )


def split_k_matmul(M: int, N: int, K: int, splits: int) -> Case:
    """Small integers: every sum is exact in fp32, in every order of the atomics."""
    kernel = Kernel(
        MODULE,
        "split_k_matmul",
        {"a": "bf16", "b": "bf16", "c": "fp32"},
        {"M": M, "N": N, "K": K},
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "SPLITS": splits},
    )
    return triton_case(
        f"split_k_matmul_{M}x{N}x{K}_{splits}_bf16",
        kernel,
        (ceil_div(M, 32) * ceil_div(N, 64), splits, 1),
        lambda rng: {
            "a": integers(rng, -8, 9, M, K, element="bf16"),
            "b": integers(rng, -8, 9, K, N, element="bf16"),
            "c": integers(rng, -99, 100, M, N, element="fp32"),
        },
        lambda arrays: {"c": arrays["c"] + expectations.matmul(arrays["a"], arrays["b"])},
    )


def grouped_matmul(sizes: tuple[int, ...], N: int, K: int, element: str, programs: int) -> Case:
    """One group may be empty; five programs walk the tiles of all."""
    offsets = np.cumsum((0, *sizes)).astype(np.int32)

    def expected(arrays: Arrays) -> Arrays:
        groups = np.split(arrays["a"], offsets[1:-1])
        products = [RULES[element].product(a, b) for a, b in zip(groups, arrays["b"], strict=True)]
        return {"c": _rounded(np.concatenate(products), element)}

    kernel = Kernel(
        MODULE,
        "grouped_matmul",
        {**dict.fromkeys(("a", "b", "c"), element), "offsets": "i32"},
        {"groups": len(sizes), "N": N, "K": K},
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32},
        num_stages=2,
    )
    return triton_case(
        f"grouped_matmul_{'_'.join(map(str, sizes))}_{element}",
        kernel,
        (programs, 1, 1),
        lambda rng: {
            "a": normal(rng, offsets[-1], K, element=element),
            "b": normal(rng, len(sizes), K, N, element=element),
            "offsets": offsets,
        },
        expected,
        outputs={"c": (int(offsets[-1]), N)},
    )


def int4_weight_matmul(M: int, N: int, K: int, group: int) -> Case:
    def inputs(rng: np.random.Generator) -> Arrays:
        nibbles = rng.integers(0, 16, (K // 8, 8, N)).astype(np.uint32)
        packed = np.bitwise_or.reduce(nibbles << (4 * np.arange(8, dtype=np.uint32))[:, None], axis=1)
        scales = rng.uniform(0.5, 2.0, (K // group, N)).astype(HOST["bf16"])
        return {"x": normal(rng, M, K, element="bf16"), "packed": packed.view(np.int32), "scales": scales}

    def expected(arrays: Arrays) -> Arrays:
        k = np.arange(K)
        weights = (arrays["packed"][k // 8] >> (k % 8 * 4)[:, None] & 15) - 8
        return {"out": expectations.matmul(arrays["x"], weights * arrays["scales"][k // group].astype(np.float64))}

    kernel = Kernel(
        MODULE,
        "int4_weight_matmul",
        {"x": "bf16", "packed": "i32", "scales": "bf16", "out": "bf16"},
        {"M": M, "N": N, "K": K},
        {"BLOCK_M": 16, "BLOCK_N": 32, "GROUP": group},
    )
    return triton_case(
        f"int4_weight_matmul_{M}x{N}x{K}_bf16",
        kernel,
        (ceil_div(M, 16), ceil_div(N, 32), 1),
        inputs,
        expected,
        outputs={"out": (M, N)},
        # Sums stay below 256: K / 8 steps cut 9 terms at 2^-24 of it, scales are at most 2.
        tolerance={"out": Tolerance(2 * K / 8 * 9 * 2.0**-24 * 256, UNIT["bf16"])},
    )


GEMM_CASES = (
    strided_matmul(70, 37, 80, "fp32", "fp32"),
    strided_matmul(40, 48, 64, "fp32", "bf16", num_warps=8, num_stages=2, b_transposed=False),
    strided_matmul(33, 32, 50, "fp32", "fp32", precision="ieee", num_stages=2),
    strided_matmul(64, 32, 48, "fp32", "fp32", precision="tf32x3"),
    strided_matmul(70, 37, 80, "bf16", "bf16", num_warps=8, b_transposed=False),
    strided_matmul(48, 37, 64, "bf16", "fp32", num_stages=2, arch="sm_80"),
    strided_matmul(65, 37, 208, "i8", "i32"),
    strided_matmul(65, 37, 208, "fp8e4nv", "fp32"),
    strided_matmul(65, 32, 112, "fp8e5", "bf16", num_stages=2),
    linear_gelu(70, 40, 56),
    split_k_matmul(37, 70, 208, 3),
    grouped_matmul((40, 0, 5, 70), 72, 48, "bf16", 5),
    grouped_matmul((40, 0, 5, 70), 75, 50, "fp16", 5),
    int4_weight_matmul(20, 40, 128, 64),
)
