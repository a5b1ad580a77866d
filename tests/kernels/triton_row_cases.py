"""Norms, cross entropy and dropout in Triton, against float64 and an independent Philox."""

import numpy as np

from tests.kernels.case import Array, Arrays, Case, Tolerance, ceil_div
from tests.kernels.triton_case import HOST, UNIT, Kernel, integers, normal, triton_case

MODULE = "triton_row_kernels"
EPSILON = 1e-5


def _wide(x: Array) -> Array:
    return x.astype(np.float64)


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and 1 / standard deviation of each row."""
    mean = _wide(x).mean(axis=1)
    return mean, 1 / np.sqrt(_wide(x).var(axis=1) + EPSILON)


def layer_norm(rows: int, N: int, element: str, *, num_warps: int = 4) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        mean, rstd = _moments(arrays["x"])
        normed = (_wide(arrays["x"]) - mean[:, None]) * rstd[:, None]
        return {"y": normed * _wide(arrays["weight"]) + _wide(arrays["bias"]), "mean": mean, "rstd": rstd}

    kernel = Kernel(
        MODULE,
        "layer_norm",
        {**dict.fromkeys(("x", "weight", "bias", "y"), element), "mean": "fp32", "rstd": "fp32"},
        {"N": N, "epsilon": EPSILON},
        {"BLOCK": 256},
        num_warps,
    )
    return triton_case(
        f"layer_norm_{rows}x{N}_{element}",
        kernel,
        (rows, 1, 1),
        lambda rng: {
            "x": (3 * normal(rng, rows, N) + 2).astype(HOST[element]),
            "weight": normal(rng, N, element=element),
            "bias": normal(rng, N, element=element),
        },
        expected,
        outputs={"y": (rows, N), "mean": (rows,), "rstd": (rows,)},
        # Sums of N <= 1000 are 4 additions in a lane and a tree of 8: 12 · 2^-24 of mean |x| < 4. y passes a
        # difference, two products and an addition of values below 20, and has the error of the mean, times |w| <= 4.
        tolerance={
            "mean": Tolerance(12 * 2.0**-24 * 4),
            "rstd": Tolerance(0, 12 * 2.0**-24),
            "y": Tolerance(4 * 12 * 2.0**-24 * 4 + 6 * 20 * 2.0**-24, UNIT[element]),
        },
    )


def layer_norm_gradient(rows: int, N: int, groups: int, *, num_warps: int = 4, fmad: bool = True) -> Case:
    def inputs(rng: np.random.Generator) -> Arrays:
        x = normal(rng, rows, N, element="bf16")
        mean, rstd = (value.astype(np.float32) for value in _moments(x))
        dy, weight = normal(rng, rows, N, element="bf16"), normal(rng, N, element="bf16")
        return {"x": x, "weight": weight, "dy": dy, "mean": mean, "rstd": rstd, "lock": np.zeros(2 * groups, np.int32)}

    def expected(arrays: Arrays) -> Arrays:
        import torch

        x, weight = (torch.from_numpy(_wide(arrays[name])).requires_grad_() for name in ("x", "weight"))
        y = torch.nn.functional.layer_norm(x, (N,), weight, None, EPSILON)
        y.backward(torch.from_numpy(_wide(arrays["dy"])))
        assert x.grad is not None
        mean, rstd = _moments(arrays["x"])
        dw = _wide(arrays["dy"]) * (_wide(arrays["x"]) - mean[:, None]) * rstd[:, None]
        lock = np.repeat(np.array([0, 1], np.int32), groups)
        return {
            "dx": np.asarray(x.grad.numpy()),
            "dw": np.stack([dw[g::groups].sum(axis=0) for g in range(groups)]),
            "db": np.stack([_wide(arrays["dy"])[g::groups].sum(axis=0) for g in range(groups)]),
            "lock": lock,
        }

    tensors = {
        **dict.fromkeys(("x", "weight", "dy"), "bf16"),
        "mean": "fp32",
        "rstd": "fp32",
        "dx": "bf16",
        "dw": "fp32",
        "db": "fp32",
        "lock": "i32",
    }
    kernel = Kernel(
        MODULE, "layer_norm_gradient", tensors, {"N": N}, {"BLOCK": 256, "GROUPS": groups}, num_warps, fmad=fmad
    )
    # Each of the sums over rows has values below 20 and a few roundings per term.
    summed = Tolerance((ceil_div(rows, groups) + 4) * 2.0**-24 * 20 * 4)
    return triton_case(
        f"layer_norm_gradient_{rows}x{N}_{groups}_bf16",
        kernel,
        (rows, 1, 1),
        inputs,
        expected,
        outputs={"dx": (rows, N), "dw": (groups, N), "db": (groups, N)},
        tolerance={"dx": Tolerance(20 * 20 * 2.0**-24, UNIT["bf16"]), "dw": summed, "db": summed},
    )


def column_sums(M: int, N: int, *, num_warps: int) -> Case:
    kernel = Kernel(
        MODULE, "column_sums", {"x": "bf16", "out": "fp32"}, {"M": M, "N": N}, {"BLOCK_M": 32, "BLOCK_N": 32}, num_warps
    )
    return triton_case(
        f"column_sums_{M}x{N}_bf16",
        kernel,
        (ceil_div(N, 32), 1, 1),
        lambda rng: {"x": integers(rng, -99, 100, M, N, element="bf16")},
        lambda arrays: {"out": _wide(arrays["x"]).sum(axis=0)},
        outputs={"out": (N,)},
    )


def group_norm(groups: int, size: int, element: str) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        mean, rstd = _moments(arrays["x"])
        return {"y": (_wide(arrays["x"]) - mean[:, None]) * rstd[:, None]}

    kernel = Kernel(
        MODULE,
        "group_norm",
        {"x": element, "y": element},
        {"size": size, "epsilon": EPSILON},
        {"BLOCK": 512},
        fmad=False,
    )
    return triton_case(
        f"group_norm_{groups}x{size}_{element}",
        kernel,
        (groups, 1, 1),
        lambda rng: {"x": (normal(rng, groups, size) + 3).astype(HOST[element])},
        expected,
        outputs={"y": (groups, size)},
        # 9 levels of the tree with four roundings each of moments below 8; rsqrt.approx 2^-22; |y| < 6.
        tolerance={"y": Tolerance(36 * 2.0**-24 * 8, UNIT[element] + 2.0**-20)},
    )


def cross_entropy(rows: int, V: int, element: str, *, num_warps: int = 4) -> Case:
    ignored = -100

    def inputs(rng: np.random.Generator) -> Arrays:
        target = integers(rng, 0, V, rows)
        target[1::3] = ignored
        return {"logits": (2 * normal(rng, rows, V)).astype(HOST[element]), "target": target}

    def expected(arrays: Arrays) -> Arrays:
        import torch

        logits = torch.from_numpy(_wide(arrays["logits"])).requires_grad_()
        target = torch.from_numpy(arrays["target"].astype(np.int64))
        loss = torch.nn.functional.cross_entropy(logits, target, reduction="none", ignore_index=ignored)
        loss.sum().backward()
        assert logits.grad is not None
        best = np.argmax(arrays["logits"].astype(np.float64), axis=1)
        return {"loss": np.asarray(loss.detach().numpy()), "best": best, "gradient": np.asarray(logits.grad.numpy())}

    kernel = Kernel(
        MODULE,
        "cross_entropy",
        {"logits": element, "target": "i32", "loss": "fp32", "best": "i32", "gradient": element},
        {"V": V, "ignored": ignored},
        {"BLOCK": 512},
        num_warps,
    )
    return triton_case(
        f"cross_entropy_{rows}x{V}_{element}",
        kernel,
        (rows, 1, 1),
        inputs,
        expected,
        outputs={"loss": (rows,), "best": (rows,), "gradient": (rows, V)},
        # exp: 2 ulp and the rounding of an argument below 16; sums of 4 and 9 levels; lg2.approx; |loss| < 24.
        tolerance={
            "loss": Tolerance(40 * 2.0**-24 + 24 * 2.0**-22),
            "gradient": Tolerance(2.0**-24, UNIT[element] + 40 * 2.0**-24),
        },
    )


def philox(seed: int, offsets: Array) -> Array:
    """Philox 4x32-10 of Salmon et al. (SC 2011) on the counters (offset, 0, 0, 0): (4, n) words."""
    low = np.uint64(0xFFFFFFFF)
    c = [offsets.astype(np.uint64), *(np.zeros(len(offsets), np.uint64) for _ in range(3))]
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        shift = np.uint64(32)
        c = [
            (second >> shift) ^ c[1] ^ np.uint64(key[0]),
            second & low,
            (first >> shift) ^ c[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return np.stack(c).astype(np.uint32)


def random_bits(n: int, seed: int) -> Case:
    kernel = Kernel(MODULE, "random_bits", {"out": "i32"}, {"n": n, "seed": seed}, {"BLOCK": 512}, wide=("seed",))
    return triton_case(
        f"random_bits_{n}",
        kernel,
        (ceil_div(n, 512), 1, 1),
        lambda rng: {},
        lambda arrays: {"out": philox(seed, np.arange(n)).view(np.int32)},
        outputs={"out": (4, n)},
    )


def dropout(n: int, p: float, element: str) -> Case:
    seed = 1234

    def expected(arrays: Arrays) -> Arrays:
        word = philox(seed, np.arange(n))[0].view(np.int32)
        # As Triton documents it: negative words are mirrored, then scaled into [0, 1).
        uniform = np.where(word < 0, -word - 1, word).astype(np.float32) * np.float32(4.6566127342e-10)
        kept = uniform > np.float32(p)
        share = 1 - np.float64(np.float32(p))
        return {"y": _wide(arrays["residual"]) + np.where(kept, _wide(arrays["x"]) / share, 0.0)}

    kernel = Kernel(
        MODULE,
        "dropout",
        dict.fromkeys(("x", "residual", "y"), element),
        {"n": n, "p": p, "seed": seed},
        {"BLOCK": 512},
    )
    return triton_case(
        f"dropout_{n}_{element}",
        kernel,
        (ceil_div(n, 512), 1, 1),
        lambda rng: {"x": normal(rng, n, element=element), "residual": normal(rng, n, element=element)},
        expected,
        outputs={"y": (n,)},
        # 1 - p, a division of 2 ulp and an addition, of values below 12.
        tolerance={"y": Tolerance(5 * 12 * 2.0**-24, UNIT[element])},
    )


ROW_CASES = (
    layer_norm(5, 781, "bf16"),
    layer_norm(3, 512, "fp32", num_warps=8),
    layer_norm_gradient(9, 200, 2),
    layer_norm_gradient(7, 144, 3, num_warps=8, fmad=False),
    column_sums(70, 75, num_warps=8),
    group_norm(5, 390, "bf16"),
    cross_entropy(7, 390, "bf16"),
    cross_entropy(4, 501, "fp32", num_warps=8),
    random_bits(1000, 0x0123456789ABCDEF),
    dropout(1201, 0.3, "bf16"),
    dropout(1024, 0.5, "fp32"),
)
