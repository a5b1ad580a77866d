"""`weft bench`: kernels against PyTorch's attention or each other, timed on a real GPU."""

import json
import secrets
import sys
from dataclasses import replace
from typing import Annotated, Any

import typer

from weft.bench.contender import Contender, KernelContender
from weft.bench.measure import BenchSettings, Cache
from weft.bench.run import BenchResult, bench, record
from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError
from weft.core.names import did_you_mean
from weft.engines.cuda_device import NoGPU, require_gpu
from weft.engines.cuda_gpu import CudaGPU
from weft.judge.candidate import Candidate
from weft.judge.select import Choice, Supports, find_candidate, workloads
from weft.tasks.registry import TASKS
from weft.tasks.task import PLAIN, Problem, Workload

from .tables import print_table
from .terminal import counted

EXIT_NO_GPU = 3
BACKENDS = ("auto", "flash", "efficient", "cudnn", "math")
DRAWS = 16
"""Input sets used in turn, generated from seeds chosen at run time."""


def bench_verb(
    targets: Annotated[list[str], typer.Argument(help="Rungs of the ladder, or files with launch lines.")],
    task: Annotated[str | None, typer.Option(help=f"Task of a file: {', '.join(TASKS)} or a Python file.")] = None,
    shapes: Annotated[str, typer.Option(help="Named shapes, with commas.")] = "mission",
    mask: Annotated[str, typer.Option(help="none, top_left or bottom_right.")] = "none",
    dtype: Annotated[str, typer.Option(help="f16, bf16 or f32 (default: the first that all targets have).")] = "",
    encoding: Annotated[str, typer.Option(help="sim_fp8 or e4m3 (default: the first of the target).")] = "",
    iters: Annotated[int, typer.Option(min=8, help="Rounds; every contender runs once in each.")] = 100,
    warmup: Annotated[int, typer.Option(min=0, help="Untimed rounds before the timed ones.")] = 10,
    l2: Annotated[str, typer.Option(help="What L2 holds before a call: cold, warm or both.")] = "both",
    against: Annotated[str, typer.Option(help="The baseline: sdpa (PyTorch), or `first`, the first target.")] = "sdpa",
    backend: Annotated[
        str, typer.Option(help="PyTorch's SDPA backend: auto, flash, efficient, cudnn or math.")
    ] = "auto",
    device: Annotated[int, typer.Option(min=0, help="Index of the GPU.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, all samples included.")] = False,
) -> int:
    """Time kernels on a GPU: interleaved A/B rounds, cold and warm L2, a confidence interval. Outputs are checked.

    Exit codes: 0 measured, 1 an output is wrong, 2 usage error or the timer failed, 3 there is no GPU.
    """
    caches = tuple(Cache) if l2 == "both" else _caches(l2)
    if against not in ("sdpa", "first"):
        raise UsageError(f"--against {against}: use sdpa or first")
    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}{did_you_mean(backend, BACKENDS)}: use one of {', '.join(BACKENDS)}")
    try:
        gpu = CudaGPU(require_gpu(device))
    except NoGPU as error:
        return _no_gpu(error, as_json=as_json)
    found = {target: find_candidate(target, task=task, arch=gpu.arch) for target in targets}
    chosen = Choice(tuple(filter(None, shapes.split(","))), ("unit_normal",), (mask,), seeds=(0,))
    todo = [(workload, cache) for workload in _workloads(found, chosen, dtype, encoding) for cache in caches]
    results = []
    for workload, cache in counted(todo, "timing"):
        settings = BenchSettings(rounds=iters, warmup=warmup, cache=cache)
        results.append(bench_workload(gpu, found, workload, settings, against=against, backend=backend))
    if not results:
        print("weft: nothing selected: the targets share none of these shapes, types and masks", file=sys.stderr)
        return 5
    if as_json:
        print(json.dumps({"results": [record(result) for result in results]}, indent=2))
    else:
        for result in results:
            show(result)
    return 0 if all(result.right for result in results) else 1


def bench_workload(
    gpu: CudaGPU,
    found: dict[str, tuple[Candidate, Supports]],
    workload: Workload,
    settings: BenchSettings,
    *,
    against: str = "sdpa",
    backend: str = "auto",
) -> BenchResult:
    """Time all targets on one workload; the baseline is the first contender."""
    supports = next(iter(found.values()))[1]
    problems = [supports.task.draw(replace(workload, seed=secrets.randbelow(1 << 31))) for _ in range(DRAWS)]
    contenders: list[Contender] = []
    notes = [] if workload.encoding == PLAIN else ["the inputs are quantised already: quantising is not timed"]
    if against == "sdpa":
        try:
            if supports.task.outputs[0].name != "o":
                raise UsageError(f"it computes attention, not {supports.task.name}")
            contenders.append(torch_sdpa(gpu, problems[0], backend))
        except (ToolMissing, UsageError) as error:
            notes.append(f"no comparison with PyTorch SDPA: {error}")
    for target, (candidate, own) in found.items():
        contenders.append(KernelContender(target, gpu, candidate, own.task, problems[0]))
    try:
        result = bench(gpu.device, contenders, problems, settings)
    finally:
        for contender in contenders:
            contender.close()
    return replace(result, notes=(*notes, *result.notes))


def torch_sdpa(gpu: CudaGPU, problem: Problem, backend: str) -> Contender:
    """Return PyTorch's attention as a contender that runs in the GPU's stream."""
    try:
        from weft.torch.baseline import TorchSdpa, cuda_stream
    except ImportError as error:
        raise ToolMissing(f"PyTorch is not installed: {install_command('torch')} ({error})") from error
    contender: Any = TorchSdpa(problem, backend=backend, stream=cuda_stream(gpu.device))
    found: Contender = contender
    return found


def show(result: BenchResult) -> None:
    """Print a table, notes about what limits its precision, and one summary line."""
    print(f"{result.workload} · {result.gpu} ({result.arch}) · L2 {result.cache}")
    rows = []
    for row in result.rows:
        time = row.time_ms
        spread = f"{1000 * time.low:.1f} … {1000 * time.high:.1f}"
        compared = str(row.against) if row.against else "baseline"
        rows.append([row.name, row.detail, f"{1000 * time.median:.1f}", spread, compared, row.wrong or "right"])
    print_table(["contender", "what ran", "median µs", "99 % interval", "against the baseline", "outputs"], rows)
    for note in result.notes:
        print(f"note: {note}")
    if result.clocks_mhz:
        print(f"SM clock {min(result.clocks_mhz)} … {max(result.clocks_mhz)} MHz in {len(result.clocks_mhz)} readings")


def _workloads(
    found: dict[str, tuple[Candidate, Supports]], chosen: Choice, dtype: str, encoding: str
) -> list[Workload]:
    """Return the workloads that every target supports, of one type and encoding."""
    all_supports = [supports for _, supports in found.values()]
    tasks = {supports.task.name for supports in all_supports}
    if len(tasks) > 1:
        raise UsageError(f"the targets compute different things ({', '.join(sorted(tasks))}): bench them one by one")
    shared = [name for name in all_supports[0].dtypes if all(name in each.dtypes for each in all_supports)]
    codes = [name for name in all_supports[0].encodings if all(name in each.encodings for each in all_supports)]
    choice = replace(
        chosen, dtypes=(dtype,) if dtype else tuple(shared[:1]), encodings=(encoding,) if encoding else tuple(codes[:1])
    )
    if not choice.dtypes or not choice.encodings:
        return []
    each_has = [list(workloads(supports, choice)) for supports in all_supports]
    return [workload for workload in each_has[0] if all(workload in others for others in each_has)]


def _caches(text: str) -> tuple[Cache, ...]:
    if text not in list(Cache):
        raise UsageError(f"--l2 {text}: use cold, warm or both")
    return (Cache(text),)


def _no_gpu(error: NoGPU, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"gpu": None, "why": str(error)}, indent=2))
    print(f"weft: nothing was timed: {error}", file=sys.stderr)
    return EXIT_NO_GPU
