"""`weft doctor`: show what is installed, what is missing, and whether a kernel runs."""

import dataclasses
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import weft

from . import host_state
from .installed import Package, packages
from .tables import print_table
from .terminal import paint

ELEMENTS = 1000
TINY_KERNEL = f"""// weft: sizes   N={ELEMENTS}
// weft: in      x : f32[N] = normal
// weft: out     y : f32[N]
// weft: launch  twice(x, y, N) grid(cdiv(N, 256)) block(256)
extern "C" __global__ void twice(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}}
"""
"""Tests the installation from CUDA C++ through PTX and LLVM to the results."""


def doctor(
    run: Annotated[
        bool,
        typer.Option("--try", help="Run one tiny kernel and test the isolation of child processes."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Show what is installed, what is missing and how to install it, and what this machine provides.

    Exit codes: 0 Weft works, 1 something it needs is missing, or the kernel of --try gave wrong results.
    """
    found = packages()
    problems = [f"{each.name} is missing: {each.install}" for each in found if each.required and each.missing]
    state: dict[str, Any] = {
        "weft": {"version": weft.__version__, "path": str(Path(weft.__file__).parent)},
        "python": {"version": platform.python_version(), "path": sys.executable},
        "cpu": dataclasses.asdict(host_state.cpu()),
        "gpu": dataclasses.asdict(host_state.gpu()),
        "isolation": {"promised": host_state.isolation()},
        "cache": dataclasses.asdict(host_state.cache()),
        "store": dataclasses.asdict(host_state.store()),
        "packages": [dataclasses.asdict(each) for each in found],
    }
    if run and not problems:
        from weft.supervise.isolation_probe import probe_here

        held = probe_here()
        state["isolation"] |= {"level": held.level, "missing": dict(held.missing)}
        trial = _run_tiny_kernel()
        state["try"] = dataclasses.asdict(trial)
        problems += [trial.problem] if trial.problem else []
    state["problems"] = problems
    if as_json:
        print(json.dumps(state, indent=2))
    else:
        _show(state, found)
    return 1 if problems else 0


def _show(state: dict[str, Any], found: tuple[Package, ...]) -> None:
    print_table(
        ["package", "version", "used for"],
        [[each.name, each.version or ("MISSING" if each.required else "not installed"), each.gives] for each in found],
    )
    absent = [each for each in found if each.missing and not each.required]
    for each in absent:
        print(f"to add {each.name}: {each.install}")
    for name, line in _lines(state).items():
        print(f"{paint(f'{name:<10}', 'heading')} {line}")
    for problem in state["problems"]:
        print(f"{paint('problem', 'bad')}    {problem}")
    if state["problems"]:
        print(f"problems: {len(state['problems'])}; see above")
    else:
        print(f"{paint('ready', 'good')}: everything Weft needs is installed; {len(absent)} optional packages are not")


def _lines(state: dict[str, Any]) -> dict[str, str]:
    cpu, gpu, cache, store = state["cpu"], state["gpu"], state["cache"], state["store"]
    forced = "; no GPU is needed" if not gpu["present"] else "; weft bench and weft validate-gpu can use it"
    names = ", ".join(gpu["names"]) or ("present" if gpu["present"] else "none")
    counted = f"{cache['files']:,} files, {_size(cache['size_bytes'])}"
    counted = counted if cache["complete"] else f"more than {counted}; du -sh shows the total"
    kept = "not created yet" if not store["exists"] else _size(store["size_bytes"])
    if store["schema"] is not None:
        kept += f", schema {store['schema']}, {store['runs'] or 0} runs"
    entries = store["journal_entries"]
    lines = {
        "weft": f"{state['weft']['version']} in {state['weft']['path']}",
        "python": f"{state['python']['version']} at {state['python']['path']}",
        "CPU": f"{cpu['model']}, {cpu['threads']} threads, {cpu['vectors']}",
        "LLVM": f"{cpu['llvm_version']}, compiles for {cpu['llvm']}",
        "GPU": f"{names}{forced}" + (f" ({gpu['driver']})" if gpu["driver"] else ""),
        "isolation": _isolation(state["isolation"]),
        "cache": f"{cache['path']}: {counted}",
        "store": f"{store['where']}: {store['problem'] or kept}",
        "journal": f"{entries} entries" if entries is not None else "empty; to begin: weft journal start TITLE",
    }
    if "try" in state:
        trial = state["try"]
        right = f"a kernel of {trial['elements']} elements, exact, in {trial['seconds']:.1f} s"
        lines["try"] = trial["problem"] or right
    return lines


def _isolation(state: dict[str, Any]) -> str:
    if "level" not in state:
        promised = [name for name, there in state["promised"].items() if there]
        return f"the kernel offers {', '.join(promised) or 'process limits only'}; --try tests it"
    why = "; ".join(f"{layer}: {reason}" for layer, reason in state["missing"].items())
    return f"level {state['level']} of 3, tested" + (f" (missing: {why})" if why else "")


def _size(count: int) -> str:
    if count < 1 << 20:
        return f"{count / 1024:.0f} KiB"
    return f"{count / (1 << 20):,.0f} MiB"


@dataclasses.dataclass(frozen=True)
class TinyRun:
    """The result of the tiny kernel of --try."""

    elements: int
    seconds: float
    problem: str


def _run_tiny_kernel() -> TinyRun:
    """Run the tiny kernel. Never raises: an error is returned as the problem."""
    import numpy as np  # `weft doctor` without --try does not need these

    from weft.core.errors import WeftError
    from weft.engines.kernel_file import load
    from weft.engines.virtual import VirtualGPU

    start = time.perf_counter()
    x = np.linspace(-1.0, 1.0, ELEMENTS, dtype=np.float32)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "twice.cu"
            file.write_text(TINY_KERNEL)
            run, results = load(file).run(VirtualGPU(), {"x": x})
        # Doubling is exact in binary floating point: any difference is a fault of this installation.
        right = run.clean and np.array_equal(results["y"], x + x)
        problem = "" if right else "the tiny kernel of --try ran but gave wrong numbers"
    except (WeftError, OSError) as error:
        problem = f"the tiny kernel of --try did not run: {error}"
    return TinyRun(ELEMENTS, time.perf_counter() - start, problem)
