"""Conversions, layouts, 16-bit atomics, printing and block scales in Triton, all to the last bit."""

from dataclasses import replace

import ml_dtypes
import numpy as np

from tests.kernels import expectations
from tests.kernels.case import Array, Arrays, Case, ceil_div
from tests.kernels.triton_case import HOST, Kernel, integers, normal, triton_case
from tests.kernels.triton_gemm_cases import RULES

MODULE = "triton_form_kernels"
E5M2_LARGEST = 57344.0


def _toward_zero(x: Array) -> Array:
    """float32 → float16, never away from zero."""
    near = x.astype(np.float16)
    beyond = np.abs(near.astype(np.float64)) > np.abs(x.astype(np.float64))
    return np.where(beyond, np.nextafter(near, np.float16(0)), near)


def conversions(n: int, element: str) -> Case:
    def inputs(rng: np.random.Generator) -> Arrays:
        # From subnormals of E4M3 and E5M2 to values that saturate E4M3; all below 2^13, so int16 holds them.
        x = rng.standard_normal(n).clip(-4, 4) * np.exp2(rng.uniform(-20, 11, n))
        return {"x": x.astype(HOST[element])}

    def expected(arrays: Arrays) -> Arrays:
        x = arrays["x"].astype(np.float32)
        e4m3 = x.clip(-expectations.E4M3_LARGEST, expectations.E4M3_LARGEST).astype(ml_dtypes.float8_e4m3fn)
        e5m2 = x.clip(-E5M2_LARGEST, E5M2_LARGEST).astype(ml_dtypes.float8_e5m2)
        rows = (
            e4m3,
            e5m2,
            x.astype(ml_dtypes.bfloat16),
            _toward_zero(x),
            e4m3,
            x.astype(np.float16).astype(ml_dtypes.float8_e5m2),
            np.trunc(x),
            np.trunc(x),
            x > 1,
        )
        return {"out": np.stack([row.astype(np.float32) for row in rows])}

    kernel = Kernel(MODULE, "conversions", {"x": element, "out": "fp32"}, {"n": n}, {"BLOCK": 512})
    return triton_case(
        f"conversions_{n}_{element}", kernel, (ceil_div(n, 512), 1, 1), inputs, expected, outputs={"out": (9, n)}
    )


def rearrange(N: int, element: str, *, num_warps: int = 4) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        columns = [values.reshape(N // 8, 8).T for values in (arrays["x"][::-1], arrays["y"])]
        parity = np.bitwise_xor.reduce(arrays["x"].astype(np.int32), keepdims=True)
        return {"out": np.stack(columns), "parity": parity}

    tensors = {"x": element, "y": element, "out": element, "parity": "i32"}
    kernel = Kernel(MODULE, "rearrange", tensors, {}, {"N": N}, num_warps)
    return triton_case(
        f"rearrange_{N}_{element}",
        kernel,
        (1, 1, 1),
        lambda rng: {"x": (9 * normal(rng, N)).astype(HOST[element]), "y": normal(rng, N, element=element)},
        expected,
        outputs={"out": (2, 8, N // 8), "parity": (1,)},
    )


def bucket_sums(n: int, element: str, *, debug: bool = False) -> Case:
    """-1, 0 and 1: sums below 256 are exact in bf16, in any order."""

    def expected(arrays: Arrays) -> Arrays:
        added = np.bincount(arrays["bucket"], arrays["x"].astype(np.float64), minlength=8)
        return {"sums": arrays["sums"].astype(np.float64) + added}

    tensors = {"x": element, "bucket": "i32", "sums": element}
    kernel = Kernel(MODULE, "bucket_sums", tensors, {"n": n}, {"BLOCK": 256}, debug=debug)
    case = triton_case(
        f"bucket_sums_{n}_{element}",
        kernel,
        (ceil_div(n, 256), 1, 1),
        lambda rng: {
            "x": integers(rng, -1, 2, n, element=element),
            "bucket": np.concatenate([[5], rng.integers(0, 8, n - 1)]).astype(np.int32),
            "sums": integers(rng, -9, 10, 8, element=element),
        },
        expected,
    )
    # Triton has every thread of the program print a scalar.
    return replace(case, printed="pid (0, 0, 0) idx () first bucket: 5\n" * 128)


def microscaled_matmul(M: int, N: int, K: int) -> Case:
    """E4M3 times a power of two is exact in bf16, in which sm_89 multiplies.

    A lane's fragment of E4M3 holds four neighbours in K; as bf16, the first two of every lane are operands of one mma
    and the other two of the next.
    """
    k = np.arange(K)
    order = np.lexsort((k, k % 4 // 2, k // 32))

    def expected(arrays: Arrays) -> Arrays:
        a, b = (
            arrays[name].astype(np.float64) * np.exp2(arrays[f"{name}_scale"].astype(int) - 127).repeat(32, axis=1)
            for name in ("a", "b")
        )
        return {"c": RULES["bf16"].product(a[:, order], b[:, order].T)}

    tensors = {"a": "fp8e4nv", "a_scale": "u8", "b": "fp8e4nv", "b_scale": "u8", "c": "fp32"}
    kernel = Kernel(MODULE, "microscaled_matmul", tensors, {}, {"M": M, "N": N, "K": K})
    return triton_case(
        f"microscaled_matmul_{M}x{N}x{K}_e4m3",
        kernel,
        (1, 1, 1),
        lambda rng: {
            "a": normal(rng, M, K, element="fp8e4nv"),
            "b": normal(rng, N, K, element="fp8e4nv"),
            "a_scale": integers(rng, 120, 135, M, K // 32, element="u8"),
            "b_scale": integers(rng, 120, 135, N, K // 32, element="u8"),
        },
        expected,
        outputs={"c": (M, N)},
    )


FORM_CASES = (
    conversions(701, "fp32"),
    conversions(600, "bf16"),
    rearrange(256, "bf16"),
    rearrange(512, "fp32", num_warps=8),
    bucket_sums(500, "bf16"),
    bucket_sums(400, "fp16", debug=True),
    microscaled_matmul(32, 32, 64),
)
