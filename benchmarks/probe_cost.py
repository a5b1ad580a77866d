"""Cost of probes: run time relative to the plain virtual GPU, size of the IR and compile time, on attention kernels.

    python benchmarks/probe_cost.py [--rounds N] [--heads H] [--length S]

Every kernel runs with each set of probes in turn, round after round, so that a change of the machine's load affects all
equally; a ratio is the median over rounds of (probe / plain) of the same round. Times are CPU time of the one host
thread that runs. Two child processes, each with an empty cache, use this machine's CPU and `WEFT_CPU=x86-64-v3` (AVX2).
The last line is one JSON object.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
D = 64


@dataclass
class Compiled:
    """Size and time of one compilation."""

    functions: int = 0
    ir_kb: float = 0.0
    seconds: float = 0.0


@dataclass
class Log:
    """Compilations since the last `take`, by part."""

    parts: dict[str, Compiled] = field(default_factory=dict)

    def listen(self) -> None:
        """Record every compilation of the virtual GPU."""
        from weft.vm import jit

        compile_object = jit.compile_object

        def timed(text: str, what: str, *, level: int = 1) -> bytes:
            start = time.perf_counter()
            code = compile_object(text, what, level=level)
            part = "runtime" if level == 2 else "divergent" if what.endswith("(divergent)") else "in_step"
            row = self.parts.setdefault(part, Compiled())
            row.functions += 1
            row.ir_kb += len(text) / 1024
            row.seconds += time.perf_counter() - start
            return code

        jit.compile_object = timed

    def take(self) -> dict[str, Any]:
        parts, self.parts = self.parts, {}
        return {
            name: {"functions": c.functions, "ir_kb": round(c.ir_kb), "seconds": round(c.seconds, 3)}
            for name, c in sorted(parts.items())
        }


def probe_sets() -> dict[str, Any]:
    """Return the sets of probes by name."""
    from weft.probes import InitCheck, Probes, RaceCheck, Wavefronts
    from weft.vm.launch import PLAIN

    return {
        "plain": PLAIN,
        "init": InitCheck(),
        "race": RaceCheck(),
        "wavefronts": Wavefronts(),
        "init+race": Probes(InitCheck(), RaceCheck()),
        "all": Probes(InitCheck(), RaceCheck(), Wavefronts()),
    }


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to run; blocks of 128 threads."""

    gpu: Any
    binary: Any
    entry: str
    grid: tuple[int, int, int]
    args: list[Any]

    def launch(self, watch: Any) -> Any:
        shared_bytes = self.binary.dynamic_shared_bytes
        return self.gpu.launch(
            self.binary, self.entry, self.grid, 128, self.args, shared_bytes=shared_bytes, watch=watch
        )

    def compile_divergent(self) -> None:
        """Compile the copy for divergent warps, which these kernels need rarely or never."""
        self.gpu.program(self.binary, self.entry).divergent()


def kernels(heads: int, length: int) -> dict[str, Kernel]:
    """Return attention kernels on (1, heads, length, 64) fp16, by name."""
    sys.path.insert(0, str(REPOSITORY))
    import weft
    from tests.kernels import triton_kernels

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, length, D)).astype(np.float16) for _ in range(3))
    o, lse = np.zeros_like(q), np.zeros((1, heads, length), np.float32)
    gpu = weft.VirtualGPU(threads=1)
    scale = np.float32(D**-0.5)

    def wmma() -> Kernel:
        entry = "wmma_attention<32,64,4>"
        binary = weft.compile_cuda(REPOSITORY / "tests/kernels/cuda/wmma_attention.cu", entries=[entry])
        args = [q, k, v, o, np.int32(length), scale]
        return Kernel(gpu, binary, entry, (-(-length // 32), heads, 1), args)

    def triton(causal: bool) -> Kernel:
        tensors = {f"{name}_ptr": "*fp16" for name in "qkvo"}
        binary = weft.compile_triton(
            triton_kernels.flash_attention,
            signature={**tensors, "lse_ptr": "*fp32", "S": "i32", "scale": "fp32"},
            constexprs={"D": D, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": causal},
            arch="sm_89",
            num_warps=4,
            num_stages=3,
            attrs=dict.fromkeys((*tensors, "lse_ptr"), 16),
        )
        scratch = (np.uint64(0), np.uint64(0))
        args = [q, k, v, o, lse, np.int32(length), scale, *scratch]
        return Kernel(gpu, binary, "flash_attention", (-(-length // 64), heads, 1), args)

    return {"wmma": wmma(), "triton_flash": triton(False), "triton_flash_causal": triton(True)}


def measure(heads: int, length: int, rounds: int) -> dict[str, Any]:
    """Measure the compile cost of every kernel and set, then run times."""
    log = Log()
    chosen, sets = kernels(heads, length), probe_sets()
    log.listen()
    results: dict[str, Any] = {}
    for name, kernel in chosen.items():
        compiled = {}
        for label, watch in sets.items():
            run = kernel.launch(watch)
            kernel.compile_divergent()
            if run.findings:
                raise SystemExit(f"{name} with {label}: {run.findings[0]}")
            compiled[label] = log.take()
        times: dict[str, list[float]] = {label: [] for label in sets}
        for _ in range(rounds):
            for label, watch in sets.items():
                start = time.thread_time()
                kernel.launch(watch)
                times[label].append(time.thread_time() - start)
        ratios = {
            label: round(statistics.median(a / b for a, b in zip(row, times["plain"], strict=True)), 2)
            for label, row in times.items()
        }
        milliseconds = round(1000 * statistics.median(times["plain"]), 1)
        results[name] = {"ratio": ratios, "plain_ms": milliseconds, "compiled": compiled}
        results[name]["counters"] = dict(kernel.launch(sets["all"]).counters)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.heads, options.length, options.rounds)))
        return
    results: dict[str, Any] = {"shape": [1, options.heads, options.length, D], "rounds": options.rounds}
    for label, cpu in (("host", ""), ("x86-64-v3", "x86-64-v3")):
        with tempfile.TemporaryDirectory() as cache:
            environment = {name: value for name, value in os.environ.items() if name != "WEFT_CPU"}
            environment["WEFT_CACHE"] = cache
            if cpu:
                environment["WEFT_CPU"] = cpu
            command = [sys.executable, __file__, "--child", "--rounds", str(options.rounds)]
            command += ["--heads", str(options.heads), "--length", str(options.length)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            results[label] = json.loads(done.stdout.splitlines()[-1])
        for kernel, row in results[label].items():
            ratios = "  ".join(f"{name} {ratio:.2f}" for name, ratio in row["ratio"].items() if name != "plain")
            print(f"{label:10} {kernel:20} plain {row['plain_ms']:7.1f} ms  {ratios}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
