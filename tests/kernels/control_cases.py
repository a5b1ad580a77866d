"""Atomics, divergence, early exit, small thread groups, constant memory, printf and assert."""

import numpy as np

from tests.kernels import expectations
from tests.kernels.case import Array, Arrays, Buffer, Case, Cuda, Launch, ceil_div


def _small_integers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-4, 5, shape).astype(np.float32)


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def histogram(n: int) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        return {"counts": np.bincount(arrays["data"], minlength=256).astype(np.uint32) + arrays["counts"]}

    return Case(
        name=f"histogram_{n}",
        source=Cuda("atomics.cu", ("histogram",)),
        launches=(Launch("histogram", (5, 1, 1), (160, 1, 1), ("data", "counts", np.int32(n))),),
        inputs=lambda rng: {
            "data": np.minimum(rng.geometric(0.03, n), 255).astype(np.uint8),
            "counts": np.arange(256, dtype=np.uint32),
        },
        outputs={},
        expected=expected,
    )


STATISTICS = np.dtype(
    [
        ("sum", np.float32),
        ("maximum", np.float32),
        ("smallest_index_of_negative", np.int32),
        ("nonzero", np.uint64),
        ("parity", np.uint32),
    ],
    align=True,
)


def statistics(n: int) -> Case:
    """Integer values, so the float sum is the same in any order."""

    def inputs(rng: np.random.Generator) -> Arrays:
        result = np.zeros(1, STATISTICS)
        result["maximum"], result["smallest_index_of_negative"] = -np.inf, n
        return {"x": rng.integers(-3, 1000, n).astype(np.float32), "result": result}

    def expected(arrays: Arrays) -> Arrays:
        x = arrays["x"]
        result = np.zeros(1, STATISTICS)
        result["sum"], result["maximum"] = x.astype(np.float64).sum(), x.max()
        result["smallest_index_of_negative"] = np.flatnonzero(x < 0).min(initial=n)
        result["nonzero"], result["parity"] = np.count_nonzero(x), np.bitwise_xor.reduce(x.view(np.uint32))
        return {"result": result}

    return Case(
        name=f"statistics_{n}",
        source=Cuda("atomics.cu", ("statistics",)),
        launches=(Launch("statistics", (ceil_div(n, 100), 1, 1), (100, 1, 1), ("x", "result", np.int32(n))),),
        inputs=inputs,
        outputs={},
        expected=expected,
    )


def keep_positive(n: int) -> Case:
    """The order of the values that are kept is free; the elements after them do not change."""

    def canonical(arrays: Arrays) -> Arrays:
        count = int(arrays["count"][0])
        kept = arrays["kept"]
        return {**arrays, "kept": np.sort(kept[:count]), "untouched": np.isnan(kept[count:])}

    def expected(arrays: Arrays) -> Arrays:
        kept = np.sort(arrays["x"][arrays["x"] > 0])
        return {"kept": kept, "count": np.array([len(kept)]), "untouched": np.ones(n - len(kept), np.bool_)}

    args = ("x", "kept", "count", np.int32(n))
    return Case(
        name=f"keep_positive_{n}",
        source=Cuda("atomics.cu", ("keep_positive",)),
        launches=(Launch("keep_positive", (ceil_div(n, 128), 1, 1), (128, 1, 1), args),),
        inputs=lambda rng: {"x": _normal(rng, n), "count": np.zeros(1, np.int32)},
        outputs={"kept": Buffer((n,), np.float32)},
        expected=expected,
        canonical=canonical,
    )


def collatz(n: int, *, debug: bool = False) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        steps, peak = expectations.collatz(n)
        return {"steps": steps, "peak": peak}

    return Case(
        name=f"collatz_{n}{'_debug' * debug}",
        source=Cuda("divergence.cu", ("collatz",), debug=debug),
        launches=(Launch("collatz", (ceil_div(n, 100), 1, 1), (100, 1, 1), ("steps", "peak", np.int32(n))),),
        inputs=lambda rng: {},
        outputs={"steps": Buffer((n,), np.int32), "peak": Buffer((n,), np.uint64)},
        expected=expected,
    )


def ranks(length: int, n: int) -> Case:
    def rank(arrays: Arrays, wanted: int) -> int:
        if wanted < 0:
            return -1
        answer = int(np.searchsorted(arrays["sorted"], wanted, side="left"))
        if wanted % 4 == 1:
            return length - answer
        if wanted % 4 == 2:
            return answer * answer
        if wanted % 4 == 3:
            j = 0
            while j < answer % 7:
                answer ^= j << 3
                j += 1
        return answer

    args = ("sorted", np.int32(length), "wanted", "rank", np.int32(n))
    return Case(
        name=f"ranks_{length}_{n}",
        source=Cuda("divergence.cu", ("ranks",)),
        launches=(Launch("ranks", (2, 1, 1), (90, 1, 1), args),),
        inputs=lambda rng: {
            "sorted": np.sort(rng.integers(0, 1000, length)).astype(np.int32),
            "wanted": rng.integers(-100, 1100, n).astype(np.int32),
        },
        outputs={"rank": Buffer((n,), np.int32)},
        expected=lambda arrays: {"rank": np.array([rank(arrays, int(w)) for w in arrays["wanted"]], np.int32)},
    )


def reverse_blocks(n: int, block: int) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        x = arrays["x"]
        return {"out": np.concatenate([x[i : i + block][::-1] for i in range(0, n, block)])}

    launch = Launch(
        "reverse_blocks",
        (ceil_div(n, block), 1, 1),
        (block, 1, 1),
        ("x", "out", np.int32(n)),
        shared_bytes=4 * block,
    )
    return Case(
        name=f"reverse_blocks_{n}_{block}",
        source=Cuda("divergence.cu", ("reverse_blocks",)),
        launches=(launch,),
        inputs=lambda rng: {"x": _normal(rng, n)},
        outputs={"out": Buffer((n,), np.float32)},
        expected=expected,
    )


def small_groups(n: int) -> Case:
    """Integer values: the sums are exact."""

    def expected(arrays: Arrays) -> Arrays:
        padded = np.zeros(ceil_div(n, 8) * 8, np.float32)
        padded[:n] = arrays["x"]
        return {
            "sums": padded.reshape(-1, 8).sum(axis=1),
            "positive": np.array([np.count_nonzero(padded > 0)]),
        }

    args = ("x", "sums", "positive", np.int32(n))
    return Case(
        name=f"small_groups_{n}",
        source=Cuda("cooperative_rms_norm.cu", ("small_groups",)),
        launches=(Launch("small_groups", (ceil_div(n, 96), 1, 1), (96, 1, 1), args),),
        inputs=lambda rng: {"x": _small_integers(rng, n), "positive": np.zeros(1, np.int32)},
        outputs={"sums": Buffer((ceil_div(n, 8),), np.float32)},
        expected=expected,
    )


def constant_filter(n: int) -> Case:
    block = 96
    taps = np.array([-0.0625, 0.125, 0.25, 0.375, 0.25, 0.125, -0.0625])
    blocks = ceil_div(n, block)

    def expected(arrays: Arrays) -> Arrays:
        # The taps are symmetric, so convolution is correlation; gain_shift = 1 doubles.
        return {
            "out": 2 * np.convolve(arrays["x"].astype(np.float64), taps, mode="same"),
            "blocks": np.array([blocks]),
        }

    launch = Launch(
        "filter",
        (blocks, 1, 1),
        (block, 1, 1),
        ("x", "out", "blocks", np.int32(n)),
        shared_bytes=4 * (block + 6),
    )
    return Case(
        name=f"constant_filter_{n}",
        source=Cuda("constant_filter.cu", ("filter",)),
        launches=(launch,),
        # Integer inputs and taps of 1/16: exact.
        inputs=lambda rng: {"x": _small_integers(rng, n)},
        outputs={"out": Buffer((n,), np.float32), "blocks": Buffer((1,), np.int32)},
        expected=expected,
        printed=f"filter: {n} elements, last block {blocks - 1}, tap 0.3750 of taps\n",
    )


CONTROL_CASES = (
    histogram(5003),
    statistics(777),
    keep_positive(1003),
    collatz(777),
    collatz(150, debug=True),
    ranks(300, 1001),
    reverse_blocks(777, 100),
    small_groups(997),
    constant_filter(1003),
)
