"""Runs public attention kernels for Hopper, unmodified, on the virtual GPU: FlashAttention-3 and FlashInfer.

    python benchmarks/hopper_attention.py [CHECKOUT_OF_FLASH_ATTENTION] [--match TEXT] [--schedules 0 1 2] [--mutants]

FlashAttention-3's forward kernel is compiled from a checkout of its repository (folder hopper/), FlashInfer's prefill
from the installed package, both with CUTLASS of the package nvidia-cutlass. NVRTC takes two to four minutes for each.
Their own host code computes the parameters, in a kernel of one thread; only the tensor maps, which a driver makes, are
written here. Results are compared with float64 by the gates of this project, with all checkers on, under each schedule
of copies. `--mutants` also runs FlashAttention-3 with one mistake each, written into its PTX: every one must be found.
Progress goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from weft import VirtualGPU
from weft.attention.error_report import block_rms
from weft.attention.gates import GateResult, flash_gate, size_gate
from weft.attention.reference import Causal, attention, attention16
from weft.core.finding_codes import Severity
from weft.core.records import Binary, Finding
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.probes.tools import watch_for
from weft.toolchain.cuda import compile_cuda
from weft.toolchain.cuda_headers import package_file
from weft.vm.tensor_map import SWIZZLES, TYPES, TensorMap

Array = NDArray[Any]
HERE = Path(__file__).resolve().parent / "hopper_attention"
ROUNDING_OF_E4M3 = 2.0**-4 / np.sqrt(3)
"""RMS of the relative error of a number rounded to three fraction bits, at most: that of a significand near 1."""
SMS = 2
"""CTAs of FlashAttention-3, fewer than tiles: a CTA computes several, one after the other."""
BYTES = 8192
"""Room for the parameters of a kernel."""


@dataclass(frozen=True)
class Case:
    """One instance of a kernel, and the shape at which it runs: batch, query and key heads, queries, keys."""

    name: str
    source: str
    entry: str
    dim: int
    shape: tuple[int, int, int, int, int]
    causal: bool = False
    cluster: int = 1
    fp8: bool = False

    @property
    def defines(self) -> dict[str, str]:
        """Macros of the source, and those of the projects' own builds."""
        element = "cutlass::float_e4m3_t" if self.fp8 else "cutlass::half_t"
        own = {"HEAD_DIM": str(self.dim), "IS_CAUSAL": str(self.causal).lower(), "ELEMENT": element}
        if self.source == "flash_attention_3.cu":
            own |= {"CLUSTER": str(self.cluster), "CUTLASS_ENABLE_GDC_FOR_SM90": "1"}
        return {**own, "NDEBUG": "1", "CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED": "1"}


FLASH = ("flash_attention_3.cu", "cutlass::device_kernel<Attention>")
PREFILL = (
    "flashinfer_prefill.cu",
    "PrefillWithKVCacheKernel<Mainloop, Epilogue, Traits, false, IS_CAUSAL, Scheduler>",
)
CASES = (
    Case("FlashAttention-3 fp16 D 64", *FLASH, 64, (1, 2, 1, 200, 300)),
    Case("FlashAttention-3 fp16 D 128 causal", *FLASH, 128, (2, 2, 1, 200, 300), causal=True),
    Case("FlashAttention-3 fp16 D 128 cluster 2", *FLASH, 128, (1, 2, 1, 200, 400), cluster=2),
    Case("FlashAttention-3 e4m3 D 128", *FLASH, 128, (1, 2, 1, 200, 500), fp8=True),
    Case("FlashInfer prefill fp16 D 128 causal", *PREFILL, 128, (1, 2, 1, 200, 300), causal=True),
)


def _without(pattern: str) -> Callable[[str], str]:
    return lambda ptx: re.sub(pattern, "", ptx)


def _fewer_bytes(ptx: str) -> str:
    """Let the first load expect 16 bytes less than it brings."""
    found = re.search(r"(mbarrier\.arrive\.expect_tx\S+ _, \[%r\d+\], )(%r\d+);", ptx)
    assert found is not None
    value = re.search(rf"mov\.\w+\s+{re.escape(found[2])}, (\d+);", ptx)
    assert value is not None
    return ptx.replace(found[0], f"{found[1]}{int(value[1]) - 16};")


MUTANTS: dict[str, Callable[[str], str]] = {
    "no fence.proxy.async": _without(r"fence\.proxy\.async\S*;"),
    "no wgmma.wait_group 0": _without(r"wgmma\.wait_group\.sync\.aligned 0;"),
    "16 bytes less expected": _fewer_bytes,
}


@dataclass(frozen=True)
class Outcome:
    """One run: how the gate judged, and what the checkers found."""

    gate: GateResult
    lse_error: float
    findings: tuple[Finding, ...]
    seconds: float


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("checkout", nargs="?", type=Path, help="of FlashAttention; without it only FlashInfer runs")
    options.add_argument("--match", default="", help="run only cases whose name has this text")
    options.add_argument("--schedules", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--mutants", action="store_true", help="run mistakes in the first case, too")
    chosen = options.parse_args()
    cases, mutants = {}, {}
    for case in CASES:
        if chosen.match not in case.name or (case.source == FLASH[0] and chosen.checkout is None):
            continue
        start = time.perf_counter()
        binary = compile_case(case, chosen.checkout)
        figures: dict[str, Any] = {"compile_seconds": round(time.perf_counter() - start, 1)}
        for schedule in chosen.schedules:
            outcome = run_case(case, binary, schedule)
            figures[f"schedule {schedule}"] = _figures(outcome)
            print(f"{case.name}, schedule {schedule}: {figures[f'schedule {schedule}']}", file=sys.stderr, flush=True)
        cases[case.name] = figures
        if chosen.mutants and case is CASES[0]:
            for name, edit in MUTANTS.items():
                ptx = edit(binary.ptx)
                wrong = replace(binary, ptx=ptx, ptx_digest=sha256(ptx.encode()).hexdigest())
                mutants[name] = _figures(run_case(case, wrong, 0))
                print(f"{name}: {mutants[name]}", file=sys.stderr, flush=True)
    runs = [run for figures in cases.values() for name, run in figures.items() if name.startswith("schedule")]
    totals = {
        "runs": len(runs),
        "right": sum(run["right"] for run in runs),
        "findings": sum(sum(run["findings"].values()) for run in runs),
        "mutants": len(mutants),
        "mutants_found": sum(bool(each["findings"]) for each in mutants.values()),
    }
    print(json.dumps({**totals, "cases": cases, "mistakes": mutants}))
    silent = totals["right"] == totals["runs"] and not totals["findings"]
    return 0 if runs and silent and totals["mutants_found"] == totals["mutants"] else 1


def _figures(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a run; notes (INFO) say what was not checked."""
    notes = Counter(each.code for each in outcome.findings if each.level is Severity.INFO)
    found = Counter(each.code for each in outcome.findings if each.level is not Severity.INFO)
    return {
        "right": outcome.gate.passed and outcome.lse_error < 1e-3,
        "error_of_limit": round(outcome.gate.ratio, 3),
        "lse_error": float(f"{outcome.lse_error:.2g}"),
        "findings": dict(found),
        "notes": dict(notes),
        "seconds": round(outcome.seconds, 1),
    }


def compile_case(case: Case, checkout: Path | None) -> Binary:
    """Return the kernel of a case and the kernel that computes its parameters; one of FlashInfer needs no checkout."""
    headers = [package_file("nvidia-cutlass", "cute/tensor.hpp").parents[1]]
    if case.source == FLASH[0]:
        assert checkout is not None
        headers.insert(0, checkout / "hopper")
    else:
        headers.insert(0, package_file("flashinfer-python", "flashinfer/attention/prefill.cuh").parents[2])
    return compile_cuda(
        HERE / case.source,
        arch="sm_90a",
        defines=case.defines,
        include_dirs=headers,
        entries=[case.entry, "make_params"],
        options=["-default-device"],
    )


def run_case(case: Case, binary: Binary, schedule: int) -> Outcome:
    """Run a case on random inputs with all checkers."""
    gpu = VirtualGPU("h100", schedule=schedule)
    batch, heads, heads_kv, queries, keys = case.shape
    rng = np.random.default_rng(1)
    element: Any = ml_dtypes.float8_e4m3fn if case.fp8 else np.float16
    lengths = (queries, heads), (keys, heads_kv), (keys, heads_kv)
    q, k, v = (rng.standard_normal((batch, *each, case.dim)).astype(element) for each in lengths)
    result: Any = ml_dtypes.bfloat16 if case.fp8 else np.float16
    o, lse = np.zeros(q.shape, result), np.zeros((batch, heads, queries), np.float32)
    with gpu.scratch(_placed(binary, case)):
        gpu.memory.keep_written()
        places = {name: gpu.memory.allocate(x.nbytes, name) for name, x in (("q", q), ("k", k), ("v", v))}
        for name, x in (("q", q), ("k", k), ("v", v)):
            gpu.memory.write(places[name], x.reshape(-1).view(np.uint8))
        places |= {name: gpu.memory.allocate(x.nbytes, name, written=False) for name, x in (("o", o), ("lse", lse))}
        launch = _launch(gpu, case, binary, places)
        start = time.perf_counter()
        run = gpu.run([launch], RunOptions(watch=watch_for(["all"])))
        seconds = time.perf_counter() - start
        o = gpu.memory.read(places["o"], o.nbytes).view(result).reshape(o.shape)
        lse = gpu.memory.read(places["lse"], lse.nbytes).view(np.float32)
    return _judged(case, (q, k, v), o, lse, run.findings, seconds)


def _placed(binary: Binary, case: Case) -> list[Launch]:
    """Return both kernels as launches, so that variables of the module are placed before anything else."""
    return [Launch(binary, entry, 1, 1, []) for entry in ("make_params", case.entry)]


def _launch(gpu: VirtualGPU, case: Case, binary: Binary, places: dict[str, int]) -> Launch:
    """Let the kernel's own host code compute its parameters, and add the tensor maps."""
    batch, heads, heads_kv, queries, keys = case.shape
    raw, facts = np.zeros(BYTES, np.uint8), np.zeros(10, np.int32)
    grids: tuple[int, ...]
    arrays = [places[name] for name in ("q", "k", "v", "o", "lse")]
    scale = float(1 / np.sqrt(case.dim))
    if case.source == FLASH[0]:
        tiles = gpu.memory.allocate(4, "tile count")
        gpu.memory.write(tiles, bytes(4))
        sizes = [tiles, batch, heads, heads_kv, queries, keys, scale, SMS]
        gpu.run([Launch(binary, "make_params", 1, 1, [raw, facts, *arrays, *sizes])])
        whole_size, *at, shared, threads, grid, rows, columns = (int(x) for x in facts)
        grids, sizes_of_params = (grid,), [whole_size]
    else:
        gpu.run([Launch(binary, "make_params", 1, 1, [raw, facts, *arrays, heads, heads_kv, queries, keys, scale])])
        main_size, end, scheduler, *at, shared, threads, rows, columns = (int(x) for x in facts)
        grids, sizes_of_params = (-(-queries // rows), heads), [main_size, end, scheduler]
    item, kind = (1, "u8") if case.fp8 else (2, "f16")
    boxes = [("q", queries, heads, rows, kind, item)]
    boxes += [(name, keys, heads_kv, columns // case.cluster, kind, item) for name in "kv"]
    boxes += [("o", queries, heads, rows, "bf16" if case.fp8 else "f16", 2)]
    whole = bytearray(raw.tobytes())
    dims = 3 if case.source == PREFILL[0] else 4
    for place, (name, length, count, box, type_name, size) in zip(at, boxes, strict=False):
        row = count * case.dim * size
        extents, strides = [case.dim, length, count, batch, 1], [row, case.dim * size, row * length, 0]
        rank = 5 if name == "o" else dims
        extent, stride, boxed = extents[:rank], strides[: rank - 1], (128 // size, box, 1, 1, 1)[:rank]
        number = TYPES.index(type_name)
        tensor = TensorMap(places[name], tuple(extent), tuple(stride), boxed, number, SWIZZLES[128])
        whole[place : place + 128] = tensor.encode()
    parts, start = [], 0
    for size in sizes_of_params:
        parts.append(bytes(whole[start : start + size]))
        start += size
    cluster = (case.cluster,) if case.cluster > 1 else ()
    return Launch(binary, case.entry, grids, threads, parts, shared_bytes=shared, cluster=cluster)


def _judged(
    case: Case, inputs: tuple[Array, ...], o: Array, lse: Array, findings: tuple[Finding, ...], seconds: float
) -> Outcome:
    q, k, v, out = (x.transpose(0, 2, 1, 3) for x in (*inputs, o))
    causal: Causal = "bottom_right" if case.causal else None
    gold = attention(*(x.astype(np.float32) for x in (q, k, v)), causal=causal)
    if case.fp8:  # P is rounded to e4m3 too: the size of the error of a sum of values with rounded weights
        weights = np.exp(_scores(q, k) - gold.lse[..., None]) ** 2
        variance = weights @ np.repeat(v.astype(np.float64) ** 2, q.shape[1] // v.shape[1], axis=1)
        gate = size_gate("e4m3", out, gold.o, ROUNDING_OF_E4M3 * block_rms(np.sqrt(variance)), "bf16")
    else:
        gate = flash_gate(out, gold.o, attention16(q, k, v, causal=causal).o, "f16")
    if case.source == PREFILL[0]:  # FlashInfer's logarithms have base 2, heads last
        found = lse.reshape(q.shape[2], q.shape[1]).T[None] * np.log(2)
    else:
        found = lse.reshape(gold.lse.shape)
    return Outcome(gate, float(np.abs(found - gold.lse).max()), findings, seconds)


def _scores(q: Array, k: Array) -> Array:
    wide = np.repeat(k.astype(np.float64), q.shape[1] // k.shape[1], axis=1)
    return np.asarray(q.astype(np.float64) @ wide.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1]))


if __name__ == "__main__":
    sys.exit(main())
