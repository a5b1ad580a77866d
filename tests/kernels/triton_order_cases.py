"""Scans, sorting, counting, atomics, gather, inline assembly in Triton: exact but for a recurrence and a softmax."""

import ml_dtypes
import numpy as np

from tests.kernels import expectations
from tests.kernels.case import Array, Arrays, Case, Tolerance, ceil_div
from tests.kernels.triton_case import HOST, UNIT, Kernel, integers, normal, triton_case

MODULE = "triton_order_kernels"


def row_cumsum(rows: int, N: int, *, reverse: bool, num_warps: int = 4) -> Case:
    """Multiples of 1/16 below 8: every partial sum is exact in fp32."""

    def expected(arrays: Arrays) -> Arrays:
        x = arrays["x"].astype(np.float64)
        return {"out": np.flip(np.cumsum(np.flip(x, 1), axis=1), 1) if reverse else np.cumsum(x, axis=1)}

    kernel = Kernel(
        MODULE, "row_cumsum", {"x": "bf16", "out": "fp32"}, {"N": N}, {"BLOCK": 256, "REVERSE": reverse}, num_warps
    )
    return triton_case(
        f"row_cumsum_{rows}x{N}{'_reverse' * reverse}_bf16",
        kernel,
        (rows, 1, 1),
        lambda rng: {"x": (integers(rng, -127, 128, rows, N) / 16).astype(HOST["bf16"])},
        expected,
        outputs={"out": (rows, N)},
    )


def linear_recurrence(T: int, C: int, element: str) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        a, b = arrays["a"].astype(np.float64), arrays["b"].astype(np.float64)
        h = np.zeros((T, C))
        for t in range(T):
            h[t] = a[t] * (h[t - 1] if t else 0.0) + b[t]
        return {"h": h}

    kernel = Kernel(
        MODULE,
        "linear_recurrence",
        dict.fromkeys(("a", "b", "h"), element),
        {"T": T, "C": C},
        {"BLOCK_T": 64, "BLOCK_C": 16},
    )
    return triton_case(
        f"linear_recurrence_{T}x{C}_{element}",
        kernel,
        (ceil_div(C, 16), 1, 1),
        lambda rng: {
            "a": rng.uniform(0.5, 1.0, (T, C)).astype(HOST[element]),
            "b": normal(rng, T, C, element=element),
        },
        expected,
        outputs={"h": (T, C)},
        # A term passes at most 2 · log2(64) = 12 combinations with two roundings each; Σ|terms| < 4 · 16.
        tolerance={"h": Tolerance(24 * 2.0**-24 * 64, UNIT[element])},
    )


def sort_rows(rows: int, N: int, element: str, *, descending: bool) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        ordered = np.sort(arrays["x"].astype(np.float64), axis=1)
        return {"out": ordered[:, ::-1] if descending else ordered}

    constants = {"BLOCK_M": 2, "BLOCK_N": 128, "DESCENDING": descending}
    kernel = Kernel(MODULE, "sort_rows", {"x": element, "out": element}, {"N": N}, constants)
    return triton_case(
        f"sort_rows_{rows}x{N}{'_descending' * descending}_{element}",
        kernel,
        (rows // 2, 1, 1),
        lambda rng: {"x": normal(rng, rows, N, element=element)},
        expected,
        outputs={"out": (rows, N)},
    )


def route_experts(tokens: int, experts: int, best: int, element: str) -> Case:
    """Ties go to the expert of the lower number."""

    def expected(arrays: Arrays) -> Arrays:
        x = arrays["logits"].astype(np.float64)
        chosen = np.argsort(-x, axis=1, kind="stable")[:, :best]
        return {"expert": chosen, "weight": expectations.softmax(np.take_along_axis(x, chosen, axis=1))}

    kernel = Kernel(
        MODULE,
        "route_experts",
        {"logits": element, "expert": "i32", "weight": "fp32"},
        {"M": tokens},
        {"BLOCK_M": 16, "E": experts, "K": best},
    )
    return triton_case(
        f"route_experts_{tokens}x{experts}_{best}_{element}",
        kernel,
        (ceil_div(tokens, 16), 1, 1),
        lambda rng: {"logits": normal(rng, tokens, experts, element=element)},
        expected,
        outputs={"expert": (tokens, best), "weight": (tokens, best)},
        # exp: 2 ulp and the rounding of an argument below 16; two additions; a division of 2 ulp.
        tolerance={"weight": Tolerance(0, 40 * 2.0**-24)},
    )


def histogram(n: int, bins: int, *, num_warps: int = 4) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        return {"counts": arrays["counts"] + np.bincount(arrays["x"], minlength=bins)}

    kernel = Kernel(
        MODULE, "histogram", {"x": "u8", "counts": "i32"}, {"n": n}, {"BLOCK": 512, "BINS": bins}, num_warps
    )
    return triton_case(
        f"histogram_{n}_{bins}",
        kernel,
        (ceil_div(n, 512), 1, 1),
        lambda rng: {
            "x": np.minimum(rng.geometric(0.05, n), bins - 1).astype(np.uint8),
            "counts": np.arange(bins, dtype=np.int32),
        },
        expected,
    )


def atomic_statistics(n: int) -> Case:
    """Integers: the sum is exact in any order. Tickets show the order of the programs, which is free."""
    programs = ceil_div(n, 256)

    def inputs(rng: np.random.Generator) -> Arrays:
        return {
            "x": integers(rng, -999, 1000, n, element="fp32"),
            "total": np.zeros(1, np.float32),
            "extremes": np.array([-np.inf, np.inf], np.float32),
            "bits": np.array([0, 0, 0, 0, 0, 0, -1, -1, -1], np.int32),
            "tickets": np.zeros(1 + programs, np.int32),
        }

    def expected(arrays: Arrays) -> Arrays:
        x = arrays["x"]
        bit = np.uint32(1) << (x.astype(np.int64) % 32).astype(np.uint32)
        every = [bit[i::3] for i in range(3)]
        union, parity = ([op.reduce(b) for b in every] for op in (np.bitwise_or, np.bitwise_xor))
        bits = np.array([*union, *parity, *(~word for word in union)], np.uint32).view(np.int32)
        extremes, tickets = np.array([x.max(), x.min()]), np.array([programs, *range(programs)])
        return {"total": x.sum(keepdims=True), "extremes": extremes, "bits": bits, "tickets": tickets}

    def canonical(arrays: Arrays) -> Arrays:
        tickets = arrays["tickets"]
        return {**arrays, "tickets": np.concatenate([tickets[:1], np.sort(tickets[1:])])}

    tensors = {"x": "fp32", "total": "fp32", "extremes": "fp32", "bits": "i32", "tickets": "i32"}
    kernel = Kernel(MODULE, "atomic_statistics", tensors, {"n": n}, {"BLOCK": 256})
    return triton_case(f"atomic_statistics_{n}", kernel, (programs, 1, 1), inputs, expected, canonical=canonical)


def gather_rows(rows: int, N: int, element: str) -> Case:
    kernel = Kernel(MODULE, "gather_rows", {"x": element, "index": "i32", "out": element}, {"N": N}, {"BLOCK": 256})
    return triton_case(
        f"gather_rows_{rows}x{N}_{element}",
        kernel,
        (rows, 1, 1),
        lambda rng: {"x": normal(rng, rows, N, element=element), "index": integers(rng, 0, N, rows, N)},
        lambda arrays: {"out": np.take_along_axis(arrays["x"], arrays["index"].astype(np.int64), axis=1)},
        outputs={"out": (rows, N)},
    )


def pack_e4m3(n: int) -> Case:
    scale = 0.5

    def inputs(rng: np.random.Generator) -> Arrays:
        # From subnormals of E4M3 to values that saturate.
        x = (rng.standard_normal(n) * np.exp2(rng.uniform(-12, 12, n))).astype(np.float32)
        return {"x": x, "y": integers(rng, -(2**31), 2**31, n)}

    def expected(arrays: Arrays) -> Arrays:
        scaled = (arrays["x"] * np.float32(scale)).clip(-expectations.E4M3_LARGEST, expectations.E4M3_LARGEST)
        x, y = arrays["x"].view(np.uint32), arrays["y"].view(np.uint32)
        rest: Array = (x & np.uint32(0xFFFF)) + (x ^ y ^ np.uint32(0x55555555))
        return {"codes": scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8), "rest": rest.view(np.int32)}

    tensors = {"x": "fp32", "y": "i32", "codes": "u8", "rest": "i32"}
    kernel = Kernel(MODULE, "pack_e4m3", tensors, {"n": n, "scale": scale}, {"BLOCK": 512})
    return triton_case(
        f"inline_asm_{n}",
        kernel,
        (ceil_div(n, 512), 1, 1),
        inputs,
        expected,
        outputs={"codes": (n,), "rest": (n,)},
    )


ORDER_CASES = (
    row_cumsum(3, 600, reverse=False, num_warps=8),
    row_cumsum(3, 301, reverse=True),
    linear_recurrence(50, 37, "bf16"),
    sort_rows(6, 100, "bf16", descending=False),
    sort_rows(4, 128, "fp32", descending=True),
    route_experts(37, 32, 4, "bf16"),
    histogram(1501, 64),
    histogram(1024, 128, num_warps=8),
    atomic_statistics(1001),
    gather_rows(3, 201, "bf16"),
    pack_e4m3(1003),
)
