"""Arithmetic other than attention: GEMM in fp32, fp16 and E4M3, softmax, norms, rotary embedding."""

import ml_dtypes
import numpy as np

from tests.kernels import expectations
from tests.kernels.case import Array, Arrays, Buffer, Case, Cuda, Launch, Struct, Tolerance, Triton, ceil_div

SCRATCH = (np.uint64(0), np.uint64(0))
"""Triton appends two scratch pointers to every kernel; these kernels use none."""


def _normal(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> Array:
    return rng.standard_normal(shape).clip(-4, 4).astype(dtype)


def _small_integers(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> Array:
    return rng.integers(-4, 5, shape).astype(dtype)


def tiled_gemm(M: int, N: int, K: int, alpha: float, beta: float, *, debug: bool = False) -> Case:
    def inputs(rng: np.random.Generator) -> Arrays:
        # With beta = 0 the old C must not be read, so it may be NaN.
        c = _normal(rng, M, N) if beta else np.full((M, N), np.nan, np.float32)
        return {"a": _normal(rng, M, K), "b": _normal(rng, K, N), "c": c}

    def expected(arrays: Arrays) -> Arrays:
        product = alpha * expectations.matmul(arrays["a"], arrays["b"])
        return {"c": product + beta * arrays["c"].astype(np.float64) if beta else product}

    sizes = (np.int32(M), np.int32(N), np.int32(K), np.float32(alpha), np.float32(beta))
    grid = (ceil_div(N, 32), ceil_div(M, 32), 1)
    return Case(
        name=f"tiled_gemm_{M}x{N}x{K}_beta{beta:g}{'_debug' * debug}",
        source=Cuda("tiled_gemm.cu", ("tiled_gemm",), debug=debug),
        launches=(Launch("tiled_gemm", grid, (32, 32, 1), ("a", "b", "c", *sizes)),),
        inputs=inputs,
        outputs={},
        expected=expected,
        # In the worst case K · 2^-24 · Σ|a·b|, with mean |a·b| = 0.64. With random signs partial sums grow as
        # √k, so the RMS is 2^-24 · √(Σ k) = 0.7 · K · 2^-24, times alpha <= 1.5, twice for unfused products.
        tolerance={"c": Tolerance(absolute=K * 2.0**-24 * 0.64 * K + 1e-6, relative=1e-6, rms=K * 2.0**-23)},
    )


# expf is good to 2 ulp; a sum of n <= 1000 in lanes and trees adds at most 40 · 2^-24 = 2.4e-6 relative, and
# the rounding of x - max, |x - max| < 9, another 5e-7.
SOFTMAX = Tolerance(absolute=1e-12, relative=5e-6)


def _softmax(arrays: Arrays) -> Arrays:
    return {"out": expectations.softmax(arrays["x"])}


def softmax_warp_per_row(rows: int, columns: int) -> Case:
    entry = "softmax_warp_per_row"
    args = ("x", "out", np.int32(rows), np.int32(columns))
    return Case(
        name=f"{entry}_{rows}x{columns}",
        source=Cuda("row_softmax.cu", (entry,)),
        launches=(Launch(entry, (ceil_div(rows, 4), 1, 1), (128, 1, 1), args),),
        inputs=lambda rng: {"x": _normal(rng, rows, columns)},
        outputs={"out": Buffer((rows, columns), np.float32)},
        expected=_softmax,
        tolerance={"out": SOFTMAX},
    )


def softmax_block_per_row(rows: int, columns: int) -> Case:
    entry = "softmax_block_per_row<8>"
    return Case(
        name=f"softmax_block_per_row_{rows}x{columns}",
        source=Cuda("row_softmax.cu", (entry,)),
        launches=(Launch(entry, (rows, 1, 1), (256, 1, 1), ("x", "out", np.int32(columns))),),
        inputs=lambda rng: {"x": _normal(rng, rows, columns)},
        outputs={"out": Buffer((rows, columns), np.float32)},
        expected=_softmax,
        tolerance={"out": SOFTMAX},
    )


def fp8_gemm(M: int, N: int, K: int, *, integers: bool) -> Case:
    """Bit for bit: integers below 2^13 are exact at any step; other values follow the tensor cores' rules."""
    scale = np.float32(0.25)
    e4m3 = ml_dtypes.float8_e4m3fn
    make = _small_integers if integers else _normal

    def expected(arrays: Arrays) -> Arrays:
        if integers:
            return {"c": scale * expectations.matmul(arrays["a"], arrays["b"].T)}
        return {"c": expectations.fp8_gemm(arrays["a"], arrays["b"], scale=scale, flush=64)}

    args = ("a", "b", "c", np.int32(M), np.int32(N), np.int32(K), scale)
    return Case(
        name=f"fp8_gemm_{M}x{N}x{K}_{'integers' if integers else 'normal'}",
        source=Cuda("fp8_gemm.cu", ("fp8_gemm",)),
        launches=(Launch("fp8_gemm", (ceil_div(N, 64), ceil_div(M, 64), 1), (128, 1, 1), args),),
        inputs=lambda rng: {"a": make(rng, M, K, dtype=e4m3), "b": make(rng, N, K, dtype=e4m3)},
        outputs={"c": Buffer((M, N), np.float32)},
        expected=expected,
    )


def quantise_e4m3(n: int) -> Case:
    e4m3 = ml_dtypes.float8_e4m3fn
    inverse_scale = np.float32(0.5)

    def inputs(rng: np.random.Generator) -> Arrays:
        # From subnormals of E4M3 to values that saturate, with halfway cases (k / 16 for |x| in [1, 2)).
        x = (rng.standard_normal(n) * np.exp2(rng.uniform(-12, 12, n))).astype(np.float32)
        x[:64] = np.arange(64, dtype=np.float32) / 8 + 2
        return {"x": x}

    def expected(arrays: Arrays) -> Arrays:
        scaled = arrays["x"] * inverse_scale
        clipped = scaled.clip(-expectations.E4M3_LARGEST, expectations.E4M3_LARGEST)
        return {"codes": clipped.astype(e4m3).view(np.uint8)}

    args = ("x", "codes", np.int32(n), inverse_scale)
    return Case(
        name=f"quantise_e4m3_{n}",
        source=Cuda("fp8_gemm.cu", ("quantise_e4m3",)),
        launches=(Launch("quantise_e4m3", (ceil_div(n // 4, 96), 1, 1), (96, 1, 1), args),),
        inputs=inputs,
        outputs={"codes": Buffer((n,), np.uint8)},
        expected=expected,
    )


def rms_norm(rows: int, columns: int, block: int) -> Case:
    epsilon = np.float32(1e-5)

    def expected(arrays: Arrays) -> Arrays:
        return {"y": expectations.rms_norm(arrays["x"], arrays["weight"], float(epsilon))}

    args = ("x", "weight", "y", np.int32(columns), epsilon)
    return Case(
        name=f"rms_norm_{rows}x{columns}_block{block}",
        source=Cuda("cooperative_rms_norm.cu", ("rms_norm",)),
        launches=(Launch("rms_norm", (rows, 1, 1), (block, 1, 1), args),),
        inputs=lambda rng: {"x": _normal(rng, rows, columns), "weight": _normal(rng, columns)},
        outputs={"y": Buffer((rows, columns), np.float32)},
        expected=expected,
        # At most 8 squares per thread and two trees of 5 levels: 18 · 2^-24, half of it after the root;
        # rsqrt.approx 2^-22.4, two products 2^-23.
        tolerance={"y": Tolerance(absolute=1e-9, relative=2e-6)},
    )


def rotary(name: str, element: str, dtype: type, *, D: int, reach: int, inverse: bool, tolerance: Tolerance) -> Case:
    """`reach` is the largest position; angles above 105615 take sincosf's slow path through local memory."""
    tokens, heads, base, scale = 9, 3, 10000.0, 0.5
    entry = f"rotary<{element}>"

    def inputs(rng: np.random.Generator) -> Arrays:
        positions = np.linspace(0, reach, tokens).astype(np.int32)
        return {"x": _normal(rng, tokens, heads, D, dtype=dtype), "positions": positions}

    def expected(arrays: Arrays) -> Arrays:
        out = expectations.rotary(arrays["x"], arrays["positions"], base=base, scale=scale, inverse=inverse)
        return {"out": out}

    sizes = (np.int32(tokens), np.int32(heads), np.int32(D))
    parameters = Struct(("x", "out", "positions", *sizes, np.float32(base), np.float32(scale), np.bool_(inverse)))
    return Case(
        name=f"rotary_{name}",
        source=Cuda("rotary_struct.cu", (entry,)),
        launches=(Launch(entry, (tokens, heads, 1), (20, 1, 1), (parameters,)),),
        inputs=inputs,
        outputs={"out": Buffer((tokens, heads, D), dtype)},
        expected=expected,
        tolerance={"out": tolerance},
    )


def triton_vector_add(n: int) -> Case:
    pointers = ("x_ptr", "y_ptr", "out_ptr")
    return Case(
        name=f"triton_vector_add_{n}",
        source=Triton("vector_add", {**dict.fromkeys(pointers, "*fp32"), "n": "i32"}, {"BLOCK": 1024}, pointers),
        launches=(
            Launch("vector_add", (ceil_div(n, 1024), 1, 1), (128, 1, 1), ("x", "y", "out", np.int32(n), *SCRATCH)),
        ),
        inputs=lambda rng: {"x": _normal(rng, n), "y": _normal(rng, n)},
        outputs={"out": Buffer((n,), np.float32)},
        expected=lambda arrays: {"out": arrays["x"] + arrays["y"]},
    )


def triton_row_softmax(rows: int, columns: int) -> Case:
    pointers = ("x_ptr", "out_ptr")
    args = ("x", "out", np.int32(rows), np.int32(columns), *SCRATCH)
    return Case(
        name=f"triton_row_softmax_{rows}x{columns}",
        source=Triton(
            "row_softmax",
            {**dict.fromkeys(pointers, "*fp32"), "rows": "i32", "cols": "i32"},
            {"BLOCK": 1024},
            pointers,
        ),
        launches=(Launch("row_softmax", (4, 1, 1), (128, 1, 1), args),),
        inputs=lambda rng: {"x": _normal(rng, rows, columns)},
        outputs={"out": Buffer((rows, columns), np.float32)},
        expected=_softmax,
        tolerance={"out": SOFTMAX},
    )


def triton_matmul(M: int, N: int, K: int, *, num_warps: int = 4, num_stages: int = 3) -> Case:
    """Sizes that are multiples of 16 are promised to Triton, as its JIT does: cp.async follows."""
    pointers = ("a_ptr", "b_ptr", "c_ptr")
    sizes = {"M": M, "N": N, "K": K}
    args = ("a", "b", "c", np.int32(M), np.int32(N), np.int32(K), *SCRATCH)
    return Case(
        name=f"triton_matmul_{M}x{N}x{K}_w{num_warps}_s{num_stages}",
        source=Triton(
            "matmul",
            {**dict.fromkeys(pointers, "*fp16"), **dict.fromkeys(sizes, "i32")},
            {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4},
            (*pointers, *(name for name, size in sizes.items() if size % 16 == 0)),
            num_warps=num_warps,
            num_stages=num_stages,
        ),
        launches=(Launch("matmul", (ceil_div(M, 64) * ceil_div(N, 64), 1, 1), (32 * num_warps, 1, 1), args),),
        inputs=lambda rng: {
            "a": _normal(rng, M, K, dtype=np.float16),
            "b": _normal(rng, K, N, dtype=np.float16),
        },
        outputs={"c": Buffer((M, N), np.float16)},
        expected=lambda arrays: {"c": expectations.matmul(arrays["a"], arrays["b"])},
        # Rounding to fp16 is 2^-11 relative; the tensor cores truncate 9 terms in each of K / 8 steps at
        # 2^-24 of partial sums below 64, so the fp32 part is at most K / 8 · 9 · 2^-24 · 64.
        tolerance={"c": Tolerance(absolute=K / 8 * 9 * 2.0**-24 * 64, relative=2.0**-11)},
    )


# powf is good to 4 ulp and the angle reaches 500: 500 · 2^-22 rad · |x| of 4·√2 · scale 0.5.
NEAR = Tolerance(absolute=4e-4)
# D = 2 has one frequency, base^0 = 1: the angle is the position, exactly. sincosf 2 ulp, |x| <= 4·√2, scale
# 0.5.
FAR = Tolerance(absolute=1e-6)

ARITHMETIC_CASES = (
    tiled_gemm(64, 64, 64, 1.0, 0.0),
    tiled_gemm(45, 70, 70, 1.5, -0.5),
    tiled_gemm(33, 40, 35, 1.5, -0.5, debug=True),
    softmax_warp_per_row(10, 77),
    softmax_warp_per_row(5, 20),
    softmax_block_per_row(3, 1000),
    fp8_gemm(64, 64, 128, integers=True),
    fp8_gemm(70, 75, 208, integers=True),
    fp8_gemm(70, 75, 208, integers=False),
    quantise_e4m3(1000),
    rms_norm(3, 500, 256),
    rms_norm(2, 70, 96),
    rotary("fp32", "float", np.float32, D=64, reach=500, inverse=False, tolerance=NEAR),
    rotary("fp32_far", "float", np.float32, D=2, reach=2**24, inverse=True, tolerance=FAR),
    rotary("fp16", "half", np.float16, D=64, reach=500, inverse=True, tolerance=Tolerance(4e-4, 2.0**-11)),
    rotary(
        "bf16",
        "__nv_bfloat16",
        ml_dtypes.bfloat16,
        D=32,
        reach=500,
        inverse=False,
        tolerance=Tolerance(4e-4, 2.0**-8),
    ),
    triton_vector_add(3001),
    triton_row_softmax(7, 781),
    triton_matmul(128, 128, 96),
    triton_matmul(80, 144, 112, num_warps=8, num_stages=2),
    triton_matmul(77, 75, 50),
)
