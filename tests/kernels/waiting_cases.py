"""Warps that wait for warps by mbarriers, and CTAs that wait for CTAs."""

import numpy as np

from tests.kernels.case import Arrays, Buffer, Case, Cuda, Launch

THREADS = 128


def _integers(rng: np.random.Generator, *shape: int) -> Arrays:
    """Small integers, whose float sums are the same in any order."""
    return {"x": rng.integers(-99, 100, shape).astype(np.float32)}


def staged_sum(blocks: int, rows: int) -> Case:
    return Case(
        name=f"pipeline_of_a_block_{rows}",
        source=Cuda("pipelines.cu", ("staged_sum",)),
        launches=(Launch("staged_sum", (blocks, 1, 1), (THREADS, 1, 1), ("x", "y", np.int32(rows))),),
        inputs=lambda rng: _integers(rng, blocks, rows, THREADS),
        outputs={"y": Buffer((blocks, THREADS), np.float32)},
        expected=lambda arrays: {"y": np.roll(arrays["x"].sum(1), -1, axis=1)},
    )


def produced_sum(rows: int) -> Case:
    return Case(
        name=f"pipeline_of_roles_{rows}",
        source=Cuda("pipelines.cu", ("produced_sum",)),
        launches=(Launch("produced_sum", (1, 1, 1), (32 + 64, 1, 1), ("x", "y", np.int32(rows))),),
        inputs=lambda rng: _integers(rng, rows, 32),
        outputs={"y": Buffer((64,), np.float32)},
        expected=lambda arrays: {"y": np.tile(arrays["x"].sum(0)[::-1], 2)},
    )


EXCHANGED = Case(
    name="cuda_barrier",
    source=Cuda("pipelines.cu", ("exchanged",)),
    launches=(Launch("exchanged", (1, 1, 1), (THREADS, 1, 1), ("x", "y")),),
    inputs=lambda rng: {"x": rng.integers(-1000, 1000, THREADS).astype(np.int32)},
    outputs={"y": Buffer((THREADS,), np.int32)},
    expected=lambda arrays: {"y": 2 * np.roll(arrays["x"], THREADS // 2)[::-1]},
)


def grid_sync(blocks: int) -> Case:
    def expected(arrays: Arrays) -> Arrays:
        total = arrays["x"].sum(dtype=np.int32)
        return {"parts": np.full(blocks, total, np.int32), "y": np.full((blocks, 64), total, np.int32)}

    return Case(
        name=f"grid_sync_{blocks}",
        source=Cuda("co_resident.cu", ("total_by_grid_sync",)),
        launches=(Launch("total_by_grid_sync", (blocks, 1, 1), (64, 1, 1), ("x", "parts", "y")),) * 2,
        inputs=lambda rng: {"x": rng.integers(-1000, 1000, (blocks, 64)).astype(np.int32)},
        outputs={"parts": Buffer((blocks,), np.int32), "y": Buffer((blocks, 64), np.int32)},
        expected=expected,
    )


def rotated_twice(blocks: int) -> Case:
    return Case(
        name=f"counter_barrier_{blocks}",
        source=Cuda("co_resident.cu", ("rotated_twice",)),
        launches=(Launch("rotated_twice", (blocks, 1, 1), (64, 1, 1), ("x", "counter")),),
        inputs=lambda rng: {
            "x": rng.integers(-1000, 1000, (blocks, 64)).astype(np.int32),
            "counter": np.zeros(1, np.uint32),
        },
        outputs={},
        expected=lambda arrays: {
            "x": np.roll(arrays["x"], -2, axis=0) + 2,
            "counter": np.full(1, 4 * blocks, np.uint32),
        },
    )


def stream_k(tiles: int, k: int) -> Case:
    return Case(
        name=f"stream_k_{tiles}_{k}",
        source=Cuda("co_resident.cu", ("stream_k",)),
        launches=(Launch("stream_k", (2 * tiles, 1, 1), (64, 1, 1), ("x", "halves", "flags", "y", np.int32(k))),),
        inputs=lambda rng: {**_integers(rng, tiles, k, 64), "flags": np.zeros(tiles, np.int32)},
        outputs={"halves": Buffer((tiles, 64), np.float32), "y": Buffer((tiles, 64), np.float32)},
        expected=lambda arrays: {
            "halves": arrays["x"][:, k // 2 :].sum(1),
            "y": arrays["x"].sum(1),
            "flags": np.ones(tiles, np.int32),
        },
    )


WAITING_CASES = (
    staged_sum(3, 9),
    produced_sum(1),
    produced_sum(12),
    EXCHANGED,
    grid_sync(1),
    grid_sync(37),
    rotated_twice(50),
    stream_k(20, 30),
)
