"""How fast the virtual GPU is: two attention kernels against PyTorch's SDPA and Triton's own interpreter.

    python benchmarks/vm_speed.py [--quick] [--rounds N] [--heads H] [--length S]

Inputs are (1, H, S, 64) fp16, not causal; SDPA gets the same numbers as fp32. In every round each contender runs
once, so that a change of the machine's load meets all alike; times are medians over rounds, ratios are ratios of
those medians. Wall-clock times use two threads for PyTorch and for Weft. `cpu_*` are CPU times of one thread, which
are steadier on a shared machine. Triton's interpreter must be chosen before Triton is imported, so it runs in a
child process that waits between its turns, which are interleaved with the rounds. Outputs are compared with SDPA
before anything is timed. Progress goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

REPOSITORY = Path(__file__).resolve().parent.parent
D = 64
SCALE = D**-0.5
THREADS = 2
AVX2 = "x86-64-v3"
KERNELS = ("cuda_wmma", "triton_fa")
MODES = ("ieee", "hardware")
LARGEST_ERROR = 4e-3
"""|O| < 1 here for S >= 64; P and O are rounded to fp16, whose unit roundoff is 2^-11 = 5e-4."""
WMMA_ENTRY = "wmma_attention<32,32,4>"
NOTES = {
    "jit_cold_s": "fresh process, empty cache: PTX text to the end of the first launch, runtime functions included; "
    "Triton's compile and Python imports excluded",
    "jit_warm_ms": "fresh process, filled cache: PTX text to the end of the first launch (hashing of the emitter's "
    "sources, reading and linking objects, LLVM's start) minus the fastest of five later launches; "
    "Python imports (jit_import_ms) excluded",
    "triton_interpreter_ms": "child process, its turns interleaved with the rounds",
    "avx2_ratio": "two child processes in turn, WEFT_CPU=x86-64-v3 over this CPU, wall clock, 2 threads; "
    "avx2_cpu_ratio: CPU time of one thread",
}

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """The shape (1, heads, length, 64) and its inputs."""

    heads: int
    length: int

    def inputs(self) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(0)
        shape = (1, self.heads, self.length, D)
        q, k, v = (rng.standard_normal(shape).astype(np.float16) for _ in range(3))
        return q, k, v


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


# -- the kernels -------------------------------------------------------------------------------------------------


def compile_kernels(folder: Path) -> None:
    """Compile both kernels and leave them in `folder`, where children find them as PTX."""
    import weft
    from tests.kernels import triton_kernels
    from weft.toolchain import binary_file

    tensors = {f"{name}_ptr": "*fp16" for name in "qkvo"}
    flash = weft.compile_triton(
        triton_kernels.flash_attention,
        signature={**tensors, "lse_ptr": "*fp32", "S": "i32", "scale": "fp32"},
        constexprs={"D": D, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": False},
        attrs=dict.fromkeys((*tensors, "lse_ptr"), 16),
    )
    wmma = weft.compile_cuda(REPOSITORY / "tests/kernels/cuda/wmma_attention.cu", entries=[WMMA_ENTRY])
    for name, binary in zip(KERNELS, (wmma, flash), strict=True):
        (folder / name).write_bytes(binary_file.pack(binary))


class Launcher:
    """Runs the kernels of a folder; one device for each mode and number of threads."""

    def __init__(self, folder: Path, problem: Problem) -> None:
        from weft.toolchain import binary_file

        self.problem = problem
        self.q, self.k, self.v = problem.inputs()
        self.o, self.lse = np.zeros_like(self.q), np.zeros(self.q.shape[:3], np.float32)
        self.binaries = {name: binary_file.unpack((folder / name).read_bytes()) for name in KERNELS}
        self.devices: dict[tuple[str, int], Any] = {}

    def launch(self, kernel: str, mode: str, threads: int) -> Array:
        """Run once; the output."""
        import weft

        binary = self.binaries[kernel]
        assert binary is not None
        if (mode, threads) not in self.devices:
            self.devices[mode, threads] = weft.VirtualGPU(mode=mode, threads=threads)
        heads, length = self.problem.heads, self.problem.length
        entry, rows = (WMMA_ENTRY, 32) if kernel == "cuda_wmma" else ("flash_attention", 64)
        args = [self.q, self.k, self.v, self.o, np.int32(length), np.float32(SCALE)]
        if kernel == "triton_fa":
            args = [*args[:4], self.lse, *args[4:], np.uint64(0), np.uint64(0)]  # Triton's scratch pointers
        run = self.devices[mode, threads].launch(
            binary, entry, (-(-length // rows), heads, 1), 128, args, shared_bytes=binary.dynamic_shared_bytes
        )
        if run.findings:
            raise SystemExit(f"{kernel} in mode {mode}: {run.findings[0]}")
        return self.o


def timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds of one call."""
    start = clock()
    call()
    return clock() - start


# -- children ----------------------------------------------------------------------------------------------------


def serve(folder: Path, problem: Problem) -> None:
    """Child: for every `kernel mode` on stdin, time one run on the wall (2 threads) and in CPU time (1 thread)."""
    launcher = Launcher(folder, problem)
    for line in sys.stdin:
        kernel, mode = line.split()
        wall = timed(lambda: launcher.launch(kernel, mode, THREADS), time.perf_counter)  # noqa: B023
        cpu = timed(lambda: launcher.launch(kernel, mode, 1), time.thread_time)  # noqa: B023
        print(wall, cpu, flush=True)


def serve_interpreter(problem: Problem) -> None:
    """Child with TRITON_INTERPRET=1: one run of the Triton kernel for every line on stdin; the first says its error."""
    import torch

    from tests.kernels import triton_kernels

    torch.set_num_threads(THREADS)
    q, k, v = (torch.from_numpy(array) for array in problem.inputs())
    o, lse = torch.full_like(q, torch.nan), torch.zeros(q.shape[:3])
    reference = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float())
    grid = (-(-problem.length // 64), problem.heads)

    def launch() -> None:
        triton_kernels.flash_attention[grid](
            q, k, v, o, lse, problem.length, SCALE, D=D, BLOCK_M=64, BLOCK_N=64, CAUSAL=False
        )

    for _ in sys.stdin:
        print(timed(launch, time.perf_counter), float((o.float() - reference).abs().max()), flush=True)


def first_launch(folder: Path, problem: Problem) -> None:
    """Child: seconds from PTX text to the end of the first launch, of a steady one, and of the imports."""
    start = time.perf_counter()
    import_module("weft.engines.virtual")
    imported = time.perf_counter() - start
    launcher = Launcher(folder, problem)
    first = timed(lambda: launcher.launch("triton_fa", "hardware", THREADS), time.perf_counter)
    steady = [timed(lambda: launcher.launch("triton_fa", "hardware", THREADS), time.perf_counter) for _ in range(5)]
    print(first, min(steady), imported)


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what would change a child's measurement."""
    kept = {name: value for name, value in os.environ.items() if name not in ("WEFT_CPU", "TRITON_INTERPRET")}
    return {**kept, **changes}


def command(part: str, folder: Path, problem: Problem) -> list[str]:
    """This file as a child."""
    sizes = ["--heads", str(problem.heads), "--length", str(problem.length)]
    return [sys.executable, __file__, "--child", part, "--folder", str(folder), *sizes]


class Child:
    """A child that waits for its turns."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str = "") -> tuple[float, float]:
        """Give it a turn; the two numbers it answers."""
        assert self.process.stdin and self.process.stdout
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"a child ended with status {self.process.wait()}")
        return float(answer[0]), float(answer[1])


@contextmanager
def child(argv: list[str], env: dict[str, str]) -> Iterator[Child]:
    """A Child for the length of a with statement."""
    started = Child(argv, env)
    try:
        yield started
    finally:
        assert started.process.stdin
        started.process.stdin.close()
        started.process.wait()


# -- measurements ------------------------------------------------------------------------------------------------


def compare(folder: Path, problem: Problem, rounds: int, turns: int) -> dict[str, Any]:
    """Both kernels in both modes, SDPA, and Triton's interpreter in `turns` of the rounds."""
    import torch

    launcher = Launcher(folder, problem)
    tensors = [torch.from_numpy(array.astype(np.float32)) for array in problem.inputs()]

    def sdpa() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*tensors)

    reference = sdpa().numpy()
    contenders = [(kernel, mode) for kernel in KERNELS for mode in MODES]
    errors = {}
    for kernel, mode in contenders:
        worst = []
        for threads in (THREADS, 1):
            launcher.o.fill(np.nan)  # or the result of the contender before would pass as this one's
            output = launcher.launch(kernel, mode, threads).astype(np.float32)
            worst.append(float(np.abs(output - reference).max()))
        errors[f"{kernel}_{mode}"] = float(np.max(worst))
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    interpreter: list[float] = []
    with child(command("interpreter", folder, problem), environment(TRITON_INTERPRET="1")) as triton:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for threads, clock, rows in ((THREADS, time.perf_counter, wall), (1, time.thread_time, cpu)):
                torch.set_num_threads(threads)
                sdpa()  # the thread pool has just changed
                rows.setdefault("sdpa", []).append(timed(sdpa, clock))
                for kernel, mode in contenders:
                    seconds = timed(lambda: launcher.launch(kernel, mode, threads), clock)  # noqa: B023
                    rows.setdefault(f"{kernel}_{mode}", []).append(seconds)
            if number * turns // rounds != (number + 1) * turns // rounds:
                seconds, errors["triton_interpreter"] = triton.ask()
                interpreter.append(seconds)
    for name, error in errors.items():
        if not error < LARGEST_ERROR:
            raise SystemExit(f"{name} is off by {error}: its time means nothing")
    return _summary(_medians(wall), _medians(cpu), interpreter, errors)


def _medians(rows: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(row) for name, row in rows.items()}


def _summary(
    wall: dict[str, float], cpu: dict[str, float], interpreter: list[float], errors: dict[str, float]
) -> dict[str, Any]:
    interpreted = statistics.median(interpreter)
    results: dict[str, Any] = {
        "torch_sdpa_fp32_ms": _ms(wall["sdpa"]),
        "torch_sdpa_fp32_cpu_ms": _ms(cpu["sdpa"]),
        "triton_interpreter_ms": _ms(interpreted),
        "triton_interpreter_rounds": len(interpreter),
        "speedup_vs_interpreter": round(interpreted / wall["triton_fa_hardware"], 1),
    }
    for kernel, of_kernel in (("cuda_wmma", "_wmma"), ("triton_fa", "")):
        for mode, of_mode in (("ieee", ""), ("hardware", "_hardware")):
            name = f"{kernel}_{mode}"
            results[f"{kernel}{of_mode}_ms"] = _ms(wall[name])
            results[f"{kernel}{of_mode}_cpu_ms"] = _ms(cpu[name])
            results[f"slowdown_vs_sdpa{of_kernel}{of_mode}"] = round(wall[name] / wall["sdpa"], 2)
            results[f"cpu_slowdown_vs_sdpa{of_kernel}{of_mode}"] = round(cpu[name] / cpu["sdpa"], 2)
    results["largest_error"] = {name: round(error, 6) for name, error in errors.items()}
    return results


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def jit_times(folder: Path, problem: Problem, cold: int, warm: int) -> dict[str, Any]:
    """First launches in fresh processes, `cold` times on an empty cache and `warm` times on the last one's."""
    say("first launches")
    colds, warms, imports = [], [], []
    for number in range(cold):
        with tempfile.TemporaryDirectory() as cache:
            for again in range(1 + (warm if number == cold - 1 else 0)):
                done = subprocess.run(
                    command("first", folder, problem),
                    env=environment(WEFT_CACHE=cache),
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                first, steady, imported = map(float, done.stdout.split())
                if again:
                    warms.append(first - steady)
                    imports.append(imported)
                else:
                    colds.append(first)
    return {
        "jit_cold_s": round(statistics.median(colds), 3),
        "jit_cold_rounds": cold,
        "jit_warm_ms": _ms(statistics.median(warms)),
        "jit_warm_rounds": warm,
        "jit_import_ms": _ms(statistics.median(imports)),
    }


def avx2_ratios(folder: Path, problem: Problem, rounds: int) -> dict[str, Any]:
    """What the kernels lose without AVX-512; empty where the CPU is no x86."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return {"avx2_ratio": {}, "avx2_cpu_ratio": {}}
    say("without AVX-512")
    argv = command("serve", folder, problem)
    wall: dict[str, float] = {}
    cpu: dict[str, float] = {}
    with child(argv, environment()) as host, child(argv, environment(WEFT_CPU=AVX2)) as small:
        for name, line in ((f"{kernel}_{mode}", f"{kernel} {mode}") for kernel in KERNELS for mode in MODES):
            host.ask(line), small.ask(line)  # the first run compiles
            pairs = [(small.ask(line), host.ask(line)) for _ in range(rounds)]
            for clock, ratios in enumerate((wall, cpu)):
                times = (statistics.median(pair[who][clock] for pair in pairs) for who in (0, 1))
                ratios[name] = round(next(times) / next(times), 3)
    return {"avx2_ratio": wall, "avx2_cpu_ratio": cpu}


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    import weft
    from weft.vm import jit

    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        model = next((value.strip() for name, _, value in lines if name.strip() == "model name"), model)
    packages = ("numpy", "llvmlite", "torch", "triton")
    return {
        "cpu": f"{model} ({jit.host()[0]}), {len(os.sched_getaffinity(0))} cores",
        "threads": THREADS,
        "versions": {
            "python": platform.python_version(),
            "weft": weft.__version__,
            **{name: version(name) for name in packages},
        },
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, not how fast it is")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--child", choices=("serve", "interpreter", "first"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    problem = Problem(options.heads, options.length)
    sys.path.insert(0, str(REPOSITORY))
    if options.child == "serve":
        serve(options.folder, problem)
    elif options.child == "interpreter":
        serve_interpreter(problem)
    elif options.child == "first":
        first_launch(options.folder, problem)
    else:
        rounds, turns, cold, warm = (3, 1, 1, 1) if options.quick else (options.rounds, 3, 3, 5)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            say("compiling the kernels")
            compile_kernels(folder)
            results = {
                "shape": [1, problem.heads, problem.length, D],
                "rounds": rounds,
                **compare(folder, problem, rounds, turns),
                **jit_times(folder, problem, cold, warm),
                **avx2_ratios(folder, problem, rounds),
                **machine(),
                "notes": NOTES,
            }
        print(json.dumps(results))


if __name__ == "__main__":
    main()
