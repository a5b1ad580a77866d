"""Compares the cycle model with published measurements, with counts of real compiled kernels.

    python benchmarks/model_accuracy.py [--kernels 1 2 3]

The SGEMM ladder on an RTX A6000 (4096³, benchmarks/sgemm, rewritten with the published parameters) and the two GEMMs
of 1024³ that were captured with ncu, which are kernels 2 and 3. One CTA of each runs on the virtual GPU and is compared
with float64; all CTAs do the same, so its counts times the grid are those of the launch. Sectors that the complete
launch touches are n² / 8 for each of A, B and C. Bounds are at the chip's maximum clock, or at the one of the capture;
estimates at the boost clock (A6000 1.80 GHz), since none is published, or at the one of the capture. The estimate's c
is fitted on the other kernels of the ladder, never on the one that is scored.

The attention pair on an RTX 3090 (benchmarks/attention_pair): two kernels that differ only in the bank conflicts of
ldmatrix. Their c is that of the complete SGEMM ladder, on another GPU of the same compute capability; next to it is the
estimate with c fitted on the other kernel of the pair. The last line is one JSON object.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from weft.core.chips import chip
from weft.engines.kernel_file import load
from weft.engines.sample import CtaSample
from weft.engines.virtual import VirtualGPU
from weft.model.bounds import lower_bounds
from weft.model.counters import work_of
from weft.model.estimate import UNCALIBRATED, Estimate, estimate
from weft.model.occupancy import LaunchShape, occupancy
from weft.model.published import Series, published
from weft.model.work import Work
from weft.profile.profiler import Profiler
from weft.profile.records import Counts

FOLDER = Path(__file__).resolve().parent / "sgemm"
LADDER = {"1": 1024, "2": 1024, "3": 1024, "4": 512, "5": 256, "6": 256, "10": 128}
"""Threads per block by kernel."""
CAPTURED = {"untiled": "2", "tiled": "3"}
GOLDEN = {
    "untiled": {
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 67_141_632,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 167_903_232,
    },
    "tiled": {
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 2_129_920,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 8_519_680,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 131_072,
        "smsp__sass_inst_executed_op_shared_ld.sum": 41_943_040,
        "memory_l1_wavefronts_shared": 52_428_800,
    },
}
ATTENTION = FOLDER.parent / "attention_pair" / "attention.cu"
PAIR = {"1": "0", "2": "1"}
"""SWIZZLE by kernel of the attention series."""
WORST_ERROR = 2e-3
"""Largest allowed error of a kernel's results, relative to the largest: 16-bit weights round to 5e-4."""
BATCH, HEADS, SEQUENCE, HEAD_DIM, QUERIES = 16, 16, 4096, 128, 64


@dataclass(frozen=True)
class Point:
    """One kernel at one size."""

    name: str
    work: Work
    ncu: Mapping[str, int]
    """Counters under ncu's names, of the complete launch."""
    matched: float
    registers: int
    relative_error: float
    """Largest error of the CTA's results, compared with float64."""


def profile(kernel: str, n: int) -> Point:
    """Run one CTA on the virtual GPU and multiply its counts by the grid."""
    file = load(FOLDER / f"kernel_{kernel}.cu", arch="sm_86")
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal((n, n), dtype=np.float32) for _ in range(3))
    out = c.copy()
    profiler = Profiler(VirtualGPU(threads=1, arch="sm_86"))
    file.run(profiler, {"a": a, "b": b, "c": out}, sizes={"N": n}, ctas=CtaSample(((1, 2),)))
    ((_, counts),) = profiler.counts
    grid = prod(file.grids(sizes={"N": n})[0])
    (resources,) = file.compile(sizes={"N": n}).resources.values()
    launch = LaunchShape(LADDER[kernel], grid, resources.registers, resources.static_shared_bytes, uniform=True)
    return Point(
        name=kernel,
        work=whole_launch(counts, launch, loaded=3 * n * n // 8, stored=n * n // 8),
        ncu={name: value * grid for name, value in counts.ncu.items()},
        matched=counts.matched,
        registers=resources.registers,
        relative_error=tile_error(a, b, c, out),
    )


def profile_attention(kernel: str, sequence: int = SEQUENCE) -> Point:
    """Run one CTA of one batch entry and multiply by the grid of all entries; q, k, v and o have 16-bit values."""
    file = load(ATTENTION, arch="sm_86", defines={"SWIZZLE": PAIR[kernel]})
    random = np.random.default_rng(0)
    shape = (1, sequence, HEADS, HEAD_DIM)
    q, k, v = (random.standard_normal(shape, dtype=np.float32).astype(np.float16) for _ in range(3))
    o = np.full(shape, np.nan, np.float16)
    sizes = {"B": 1, "H": HEADS, "S": sequence}
    profiler = Profiler(VirtualGPU(threads=1, arch="sm_86"))
    file.run(profiler, {"q": q, "k": k, "v": v, "o": o}, sizes=sizes, ctas=CtaSample(((1, 2),)))
    ((_, counts),) = profiler.counts
    grid = prod(file.grids(sizes=sizes | {"B": BATCH})[0])
    (resources,) = file.compile(sizes=sizes).resources.values()
    launch = LaunchShape(128, grid, resources.registers, profiler.launches[0].shared_bytes, uniform=True)
    sectors = BATCH * sequence * HEADS * HEAD_DIM * 2 // 32
    return Point(
        name=kernel,
        work=whole_launch(counts, launch, loaded=3 * sectors, stored=sectors),
        ncu={name: value * grid for name, value in counts.ncu.items()},
        matched=counts.matched,
        registers=resources.registers,
        relative_error=attention_error(q, k, v, o),
    )


def attention_error(q: Any, k: Any, v: Any, o: Any) -> float:
    """Return the largest error of the rows of the CTA at (1, 2), relative to the largest; NaN if one is missing."""
    rows = slice(QUERIES, 2 * QUERIES)
    one, keys, values = (x[0, :, 2].astype(np.float64) for x in (q[:, rows], k, v))
    scores = one @ keys.T / np.sqrt(HEAD_DIM)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights @ values / weights.sum(axis=1, keepdims=True)
    return float(np.abs(o[0, rows, 2] - expected).max() / np.abs(expected).max())


def whole_launch(counts: Counts, launch: LaunchShape, *, loaded: int, stored: int) -> Work:
    """Return the work of all CTAs, which do the same; `loaded` and `stored` are the distinct sectors of all."""
    sass, ncu, vm = (
        {name: value * launch.grid for name, value in counted.items()}
        for counted in (counts.sass, counts.ncu, counts.vm)
    )
    vm |= {"vm__distinct_load_sectors": loaded, "vm__distinct_store_sectors": stored}
    return work_of(launch, sass, ncu, vm)


def tile_error(a: Any, b: Any, c: Any, out: Any) -> float:
    """Return the largest error of the CTA's tile, relative to the largest result; raise if it wrote none."""
    rows, columns = (np.unique(part) for part in np.nonzero(out != c))
    tile = np.ix_(rows, columns)
    expected = 0.5 * (a[rows].astype(np.float64) @ b[:, columns].astype(np.float64)) + 3.0 * c[tile]
    return float(np.abs(out[tile] - expected).max() / np.abs(expected).max())


def estimated(point: Point, c: float, series: Series) -> Estimate:
    gpu = chip(series.chip)
    return estimate(point.work, gpu, clock_ghz=series.clock_ghz or gpu.boost_ghz, issue_weight=c)


def fitted_c(points: Mapping[str, Point], left_out: str, series: Series) -> float:
    """Return the c of the range whose estimates of the other kernels have the smallest mean error."""
    others = [point for name, point in points.items() if name != left_out]
    low, high = UNCALIBRATED

    def mean_error(c: float) -> float:
        found = [(estimated(point, c, series), series.microseconds[point.name]) for point in others]
        return float(np.mean([abs(guess.microseconds(guess.high) / measured - 1) for guess, measured in found]))

    return float(min(np.linspace(low, high, 101), key=mean_error))


def row(point: Point, c: float, series: Series, kernel: str) -> dict[str, Any]:
    """One scored point."""
    measured = series.microseconds[kernel]
    bounds = lower_bounds(point.work, chip(series.chip), clock_ghz=series.clock_ghz)
    found = estimated(point, c, series)
    guess = found.microseconds(found.high)
    return {
        "series": series.name,
        "kernel": kernel,
        "chip": series.chip,
        "measured_us": round(measured, 2),
        "lb_us": round(bounds.microseconds(bounds.cold), 2),
        "lb_ghz": bounds.clock_ghz,
        "limiter": bounds.cold_limiter,
        "est_us": round(guess, 2),
        "est_limiter": found.limiter,
        "est_ghz": found.clock_ghz,
        "c": round(c, 2),
        "error": round(guess / measured - 1, 4),
        "lb_above_measured": bounds.microseconds(bounds.cold) > measured,
        "sass_matched": round(point.matched, 4),
        "registers": point.registers,
        "relative_error": point.relative_error,
    }


def score_pair(pair: Mapping[str, Point], series: Series, c: float) -> dict[str, Any]:
    """Return both kernels with a c that was fitted on the ladder, and each with the c that fits the other one best."""
    scored = [row(point, c, series, name) for name, point in pair.items()]
    crossed = [row(point, fitted_c(pair, name, series), series, name) for name, point in pair.items()]

    def ratio(rows: list[dict[str, Any]], field: str) -> float:
        return round(float(rows[0][field] / rows[1][field]), 4)

    return {
        "inputs": {
            "shape": {"batch": BATCH, "heads": HEADS, "sequence": SEQUENCE, "head_dim": HEAD_DIM, "type": "f16"},
            "ctas_run": 1,
            "grid": pair["1"].work.launch.grid,
            "blocks_per_sm": occupancy(pair["1"].work.launch, chip(series.chip)).blocks,
            "c_from": "the SGEMM ladder on A6000, all of its kernels that were run",
        },
        "mean_abs_error": round(float(np.mean([abs(one["error"]) for one in scored])), 4),
        "ratio_estimated": ratio(scored, "est_us"),
        "ratio_measured": ratio(scored, "measured_us"),
        "shared_wavefronts": {name: point.work.memory.shared_wavefronts for name, point in pair.items()},
        "points": scored,
        "leave_one_out": [{name: one[name] for name in ("kernel", "c", "est_us", "error")} for one in crossed],
    }


def spearman(first: list[float], second: list[float]) -> float:
    """Rank correlation."""
    order: Callable[[list[float]], Any] = lambda values: np.argsort(np.argsort(values))  # noqa: E731
    return float(np.corrcoef(order(first), order(second))[0, 1])


def mismatches(captured: Mapping[str, Point]) -> list[str]:
    """Return counters of the captures that differ, or that Weft could not give."""
    return [
        f"{name}: {counter} is {captured[name].ncu.get(counter)}, not {value}"
        for name, golden in GOLDEN.items()
        if name in captured
        for counter, value in golden.items()
        if captured[name].ncu.get(counter) != value
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="+", choices=LADDER, default=list(LADDER))
    chosen = parser.parse_args().kernels
    ladder, captures = published()["sgemm_a6000"], published()["gemm_ncu_a6000"]
    points = {}
    for kernel in chosen:
        points[kernel] = profile(kernel, 4096)
        print(f"kernel {kernel}: {points[kernel].matched:.1%} of accesses matched", flush=True)
    captured = {name: profile(kernel, 1024) for name, kernel in CAPTURED.items() if kernel in chosen}
    rows = [row(point, fitted_c(points, name, ladder), ladder, name) for name, point in points.items()]
    rows += [row(point, fitted_c(points, point.name, ladder), captures, name) for name, point in captured.items()]
    pair = {kernel: profile_attention(kernel) for kernel in PAIR}
    scored_pair = score_pair(pair, published()["attention_rtx3090"], fitted_c(points, "", ladder))
    every = rows + scored_pair["points"]
    if wrong := [one for one in every if not one["relative_error"] < WORST_ERROR]:
        raise SystemExit(f"these kernels compute wrong results, so their counts are invalid: {wrong}")
    for one in every:
        print(
            "{series:17s} {kernel:8s} measured {measured_us:10.1f}  LB {lb_us:10.1f} ({limiter})  "
            "EST {est_us:10.1f} ({est_limiter}, c {c:.2f})  {error:+.1%}".format(**one)
        )
    scored = rows[: len(points)]
    result = {
        "ladder_mean_abs_error": round(float(np.mean([abs(one["error"]) for one in scored])), 4),
        "ladder_spearman": round(spearman([r["est_us"] for r in scored], [r["measured_us"] for r in scored]), 4),
        "lb_violations": sum(one["lb_above_measured"] for one in every),
        "golden_mismatches": mismatches(captured),
        "sass_matched_min": min(one["sass_matched"] for one in every),
        "points": rows,
        "attention_pair": scored_pair,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
