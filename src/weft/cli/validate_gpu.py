"""`weft validate-gpu`: run the ladder, the bench and ncu on a real GPU; write the results next to the predictions."""

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import weft
from weft.attention.dtypes import Array
from weft.bench import ncu
from weft.bench.measure import BenchSettings, Cache
from weft.bench.run import record
from weft.core.chips import Chip, chips
from weft.core.chips import chip as find_chip
from weft.core.errors import WeftError
from weft.engines.cuda_device import NoGPU, require_gpu
from weft.engines.cuda_gpu import CudaGPU
from weft.engines.plan_launches import plan_launches
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.judge import Judged, Policy, judge
from weft.judge.local_runs import EngineRuns
from weft.judge.select import Choice, Supports, find_candidate, workloads
from weft.kernels.ladder import RUNGS
from weft.probes.tools import watch_for
from weft.profile.kernel_profile import KernelProfile, profile_kernel
from weft.tasks.task import Outputs, Workload

from .bench import EXIT_NO_GPU, bench_workload

SHAPES = "small,ragged,gqa_4_ragged,few_keys,d128"
CHIP_OF = {
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA RTX A6000": "a6000",
    "NVIDIA GeForce RTX 3090": "rtx3090",
    "NVIDIA GeForce RTX 4090": "rtx4090",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "NVIDIA GeForce RTX 5090": "rtx5090",
}
"""The driver's name of a GPU → its name in the model. Full names: variants of a GPU have other clocks and memory."""


@dataclass(frozen=True)
class Target:
    """One rung and its workloads."""

    name: str
    candidate: Candidate
    supports: Supports
    workloads: tuple[Workload, ...]


def validate_gpu(
    out: Annotated[Path, typer.Option("-o", "--out", help="The bundle: a folder, or a file that ends in .zip.")] = Path(
        "weft-gpu"
    ),
    rungs: Annotated[str, typer.Option(help="Rungs, with commas (default: all).")] = "",
    shapes: Annotated[str, typer.Option(help="Shapes to judge, with commas.")] = SHAPES,
    masks: Annotated[str, typer.Option(help="Masks, with commas (default: what a rung has).")] = "",
    dtypes: Annotated[str, typer.Option(help="Types, with commas (default: what a rung has).")] = "",
    bench_shapes: Annotated[str, typer.Option(help="Shapes to time, with commas.")] = "mission,long",
    iters: Annotated[int, typer.Option(min=8, help="Timed rounds.")] = 100,
    device: Annotated[int, typer.Option(min=0, help="Index of the GPU.")] = 0,
    chip: Annotated[
        str, typer.Option("--gpu", help=f"This GPU in the cycle model (default: by its name): {', '.join(chips())}.")
    ] = "",
) -> int:
    """Run the ladder, the bench and ncu on this machine's GPU; write predicted and measured values to one bundle.

    Exit codes: 0 all correct, 1 something differs, 2 usage error, 3 there is no GPU.
    """
    try:
        gpu = CudaGPU(require_gpu(device))
    except NoGPU as error:
        print(f"weft: nothing was validated: {error}", file=sys.stderr)
        return EXIT_NO_GPU
    model = _model(gpu, chip)
    names = _names(rungs) or [name for name, rung in RUNGS.items() if rung.path.is_file() and not rung.gpu]
    asked = Choice(_names(shapes), ("unit_normal", "logits_32"), _names(masks), _names(dtypes), seeds=(0,))
    targets = [_target(gpu, name, asked) for name in names]
    ladder, benched, kernels, profiles, problems = [], [], [], {}, {}
    for target in targets:
        rows = list(_judge(gpu, target))
        ladder += rows
        print(f"{target.name}: {sum(row['status'] == 'PASSED' for row in rows)} of {len(rows)} workloads passed")
        if not target.workloads:
            continue
        try:
            kernels.append(_kernel_rows(gpu, target, model))
            benched += _bench(gpu, target, bench_shapes, iters, model)
        except WeftError as error:  # an error of one rung must not lose the results of the others
            problems[target.name] = str(error)
        profiles[target.name] = _profile(target)
    bundle: dict[str, object] = {
        "environment": {**_environment(gpu), "model": None if isinstance(model, str) else model.name},
        "ladder": ladder,
        "kernels": kernels,
        "bench": benched,
        "ncu": profiles,
        "problems": problems,
    }
    _write(out, bundle)
    passed = all(row["status"] == "PASSED" for row in ladder)
    right = passed and all(_right(result) for result in benched) and not problems
    print(f"{out}: {len(ladder)} workloads judged, {len(benched)} timed · {'all right' if right else 'not all right'}")
    return 0 if right and ladder else 1


def _target(gpu: CudaGPU, name: str, asked: Choice) -> Target:
    candidate, supports = find_candidate(name, task=None, arch=gpu.arch)
    choice = replace(
        asked, masks=asked.masks or supports.masks, dtypes=asked.dtypes or supports.dtypes, encodings=supports.encodings
    )
    return Target(name, candidate, supports, tuple(workloads(supports, choice)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _judge(gpu: CudaGPU, target: Target) -> Iterator[dict[str, object]]:
    """Yield the verdicts of the gates of `weft check`, and how far the outputs are from the virtual GPU's."""
    for workload in target.workloads:
        found = judge(EngineRuns(target.candidate, gpu), target.supports.task, workload)
        verdict, error = found.verdict, found.verdict.error
        yield {
            "rung": target.name,
            "workload": str(workload),
            "status": str(verdict.status),
            "message": verdict.message,
            "gates": {gate.gate: {"error": gate.error, "limit": gate.limit} for gate in verdict.gates},
            "max_error": error.max if error else None,
            "virtual_gpu": _against_virtual(found, target),
        }


def _against_virtual(found: Judged, target: Target) -> dict[str, object]:
    """Compare predicted and measured bits. A difference is no failure: it shows how exact Weft is; the gates decide."""
    try:
        runs = EngineRuns(target.candidate, VirtualGPU(target.candidate.gpu))
        virtual = judge(runs, target.supports.task, found.verdict.workload, Policy(tools=()))
    except WeftError as error:
        return {"missing": str(error)}
    if found.outputs is None or virtual.outputs is None:
        return {"missing": "the GPU or the virtual GPU left no outputs"}
    return {name: _difference(found.outputs, virtual.outputs, name) for name in found.outputs}


def _difference(measured: Outputs, predicted: Outputs, name: str) -> dict[str, object]:
    ours, theirs = _bits(predicted[name]), _bits(measured[name])
    with np.errstate(invalid="ignore"):
        distance = np.abs(measured[name].astype(np.float64) - predicted[name].astype(np.float64))
    finite = distance[np.isfinite(distance)]
    return {
        "elements": int(ours.size),
        "equal_bits": int((ours == theirs).sum()),
        "largest_difference": float(finite.max()) if finite.size else None,
    }


def _bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def _kernel_rows(gpu: CudaGPU, target: Target, model: Chip | str) -> dict[str, object]:
    """Return the resources that ptxas and the driver report, and those that only one of them reports."""
    workload = target.workloads[0]
    problem = target.supports.task.draw(workload)
    kernel = target.candidate.load(problem)
    plan = plan_launches(kernel, gpu, {name: array.copy() for name, array in problem.arrays.items()})
    launches = []
    for launch in plan.launches:
        said = plan.binary.resources.get(launch.kernel.name)
        launches.append(
            {
                "kernel": launch.kernel.name,
                "registers": {"predicted": said.registers if said else None, "measured": launch.kernel.registers},
                "local_bytes": {"predicted": said.local_bytes if said else None, "measured": launch.kernel.local_bytes},
                "static_shared_bytes": {
                    "predicted": said.static_shared_bytes if said else None,
                    "measured": launch.kernel.static_shared_bytes,
                },
            }
        )
    row: dict[str, object] = {"rung": target.name, "workload": str(workload), "launches": launches}
    try:
        virtual = VirtualGPU(target.candidate.gpu)
        counted = kernel.run(virtual, problem.arrays, watch=watch_for(["wavefronts"])).run
        row["counters_predicted"] = dict(counted.counters)
    except WeftError as error:
        row["counters_predicted"] = {"missing": str(error)}
    row["time_predicted"] = _predicted(target, workload, model)
    return row


def _model(gpu: CudaGPU, asked: str) -> Chip | str:
    """Return the GPU of the cycle model, or the reason why it has none to compare with."""
    name = asked or CHIP_OF.get(gpu.device.name, "")
    if not name:
        return f"the cycle model has no {gpu.device.name}: --gpu names one of the same kind"
    found = find_chip(name)
    sms = int(gpu.device.properties.multiprocessor_count)
    if (found.architecture.target, found.sms) != (gpu.arch, sms):
        model = f"{found.title} of the cycle model is {found.architecture.target} with {found.sms} SMs"
        return f"{model}, this GPU is {gpu.arch} with {sms}"
    return found


def _predicted(target: Target, workload: Workload, model: Chip | str) -> dict[str, object]:
    """Return the cycle model's prediction for each state of L2, or the reason why there is none."""
    if isinstance(model, str):
        return {"missing": model}
    problem = target.supports.task.draw(workload)
    try:
        kernel = target.candidate.load(problem)
        profile = profile_kernel(kernel, model, target=target.name, arrays=problem.arrays)
    except WeftError as error:
        return {"missing": str(error)}
    return {
        str(Cache.COLD): _modelled(profile, profile.estimate_cold, profile.cold),
        str(Cache.WARM): _modelled(profile, profile.estimate, profile.warm),
    }


def _modelled(profile: KernelProfile, estimate: tuple[float, float], bound: int) -> dict[str, object]:
    """Return the range of the estimate and the lower bound, in cycles and as times at their clocks."""
    first = profile.launches[0]
    low, high = estimate
    return {
        "modelled": True,
        "gpu": profile.chip.name,
        "estimate_ms": {
            "low": first.warm.microseconds(low) / 1000,
            "high": first.warm.microseconds(high) / 1000,
        },
        "estimate_cycles": {"low": low, "high": high},
        "estimate_clock_ghz": first.warm.clock_ghz,
        "estimate_label": first.warm.label,
        "lower_bound_ms": first.bounds.microseconds(bound) / 1000,
        "lower_bound_cycles": bound,
        "lower_bound_clock_ghz": first.bounds.clock_ghz,
    }


def _bench(gpu: CudaGPU, target: Target, shapes: str, iters: int, model: Chip | str) -> list[dict[str, object]]:
    """Return the times of the rung and of PyTorch; the rung's row has the cycle model's prediction, too."""
    supports = target.supports
    choice = Choice(_names(shapes), ("unit_normal",), ("none",), supports.dtypes[:1], supports.encodings[:1], (0,))
    results = []
    for workload in workloads(supports, choice):
        predicted = _predicted(target, workload, model)
        for cache in Cache:
            settings = BenchSettings(rounds=iters, cache=cache)
            found = {target.name: (target.candidate, supports)}
            made = record(bench_workload(gpu, found, workload, settings))
            for row in _rows(made):
                if row["name"] == target.name:
                    row["time_predicted"] = predicted.get(cache, predicted)
                    print(f"  {made['workload']}, L2 {cache}: {_time_text(row)}")
            results.append(made)
    return results


def _time_text(row: dict[str, Any]) -> str:
    """Return the measured and the modelled time as text."""
    predicted, measured = row["time_predicted"], f"measured {1000 * row['time_ms']['median']:.1f} µs"
    if "missing" in predicted:
        return f"{measured}, not modelled: {predicted['missing']}"
    low, high = (1000 * predicted["estimate_ms"][end] for end in ("low", "high"))
    at_least = f"at least {1000 * predicted['lower_bound_ms']:.1f} µs"
    return f"{measured}, modelled {low:.1f} to {high:.1f} µs, {at_least}"


def _right(result: dict[str, object]) -> bool:
    return all(row["right"] for row in _rows(result))


def _rows(result: dict[str, object]) -> list[dict[str, object]]:
    rows = result["rows"]
    assert isinstance(rows, list)
    return rows


def _profile(target: Target) -> dict[str, object]:
    """Return ncu's counters of one run, or the reason why there are none."""
    program = shutil.which("ncu")
    if program is None:
        return {"missing": "ncu is not on the PATH"}
    work = target.workloads[0]
    arguments = [target.name, work.shape.name, work.dtype, work.mask, work.encoding]
    done = subprocess.run(ncu.command(program, arguments), capture_output=True, text=True, check=False)
    rows = ncu.parse_raw(done.stdout)
    if done.returncode or not rows:
        return {"missing": f"ncu ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}"}
    launches = [{"kernel": row.get("Kernel Name", ""), **dict(ncu.metrics_of(row))} for row in rows]
    return {"workload": str(work), "launches": launches}


def _environment(gpu: CudaGPU) -> dict[str, object]:
    versions = {}
    for package in ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "gpu": gpu.device.name,
        "arch": gpu.arch,
        "multiprocessors": int(gpu.device.properties.multiprocessor_count),
        "l2_bytes": int(gpu.device.properties.l2_cache_size),
        "shared_limit_bytes": gpu.shared_limit_bytes,
        "weft": weft.__version__,
        "packages": versions,
    }


def _write(out: Path, bundle: dict[str, object]) -> None:
    """Write one JSON file per part."""
    files = {f"{name}.json": json.dumps(part, indent=2) for name, part in bundle.items()}
    if out.suffix == ".zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / name).write_text(text)
