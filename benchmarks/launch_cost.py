"""Cost of a small warm launch in this process: set-up, checkers that are always on (memcheck, synccheck), outcome.

    python benchmarks/launch_cost.py [--launches N] [--exec]

`empty`: a kernel without instructions, one CTA of 32 threads. `small`: 8 CTAs of 128 threads that add two vectors.
`engine` runs `small` through `VirtualGPU.launch`, with arrays copied in and out. Kernels run in turn, so that other
load affects all of them. Times are wall-clock milliseconds of one launch; stalls are launches that took longer than
ten medians, with the CPU time of this thread during them: a stall without CPU time is the machine's, not Weft's.
--exec adds `exec`: `small` launched by <<<>>> and waited for in a program of nvcc (on PATH) under `weft exec`.
The last line of stdout is one JSON object.
"""

import argparse
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import weft
from weft.core.records import Binary
from weft.toolchain.cuda import compile_cuda
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory
from weft.vm.program import compile_program

SOURCE = """
extern "C" __global__ void empty() {}
extern "C" __global__ void small(const float* a, const float* b, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = a[i] + b[i];
}
"""
PROGRAM = """
#include <chrono>
#include <cstdio>
int main(int, char** words) {
    int n, rounds;
    sscanf(words[1], "%d", &n);
    sscanf(words[2], "%d", &rounds);
    float* p[3];
    for (float*& each : p) { cudaMalloc(&each, 4 * n); cudaMemset(each, 0, 4 * n); }
    for (int i = 0; i < rounds; i++) {
        auto start = std::chrono::steady_clock::now();
        small<<<8, 128>>>(p[0], p[1], p[2], n);
        cudaDeviceSynchronize();
        printf("%.6f\\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return cudaGetLastError();
}
"""
N = 1024
WARM_UP = 20
STALL = 10


def direct(binary: Binary, entry: str, grid: int, block: int, arguments: int) -> Callable[[], None]:
    """Return a launch on device memory that stays, as a program with cudaMalloc has it."""
    program, memory = compile_program(binary.ptx, entry, arch="sm_89"), GlobalMemory()
    params = b"".join(struct.pack("<Q", memory.allocate(4 * N)) for _ in range(arguments))
    spec = LaunchSpec(entry, (grid, 1, 1), (block, 1, 1), params + (struct.pack("<i", N) if arguments else b""))

    def launch() -> None:
        if run(program, spec, memory, globals_at={}).findings:
            raise SystemExit(f"{entry} has findings")

    return launch


def through_engine(binary: Binary) -> Callable[[], None]:
    """Return a launch on NumPy arrays."""
    gpu = weft.VirtualGPU("l4", threads=1)
    a, b, o = np.arange(N, dtype=np.float32), np.ones(N, np.float32), np.zeros(N, np.float32)

    def launch() -> None:
        gpu.launch(binary, "small", 8, 128, [a, b, o, np.int32(N)])

    launch()
    if not (o == a + 1).all():
        raise SystemExit("wrong result")
    return launch


def measure(launches: dict[str, Callable[[], None]], rounds: int) -> dict[str, object]:
    """Return the statistics of every launch by name."""
    times: dict[str, list[float]] = {name: [] for name in launches}
    cpu: dict[str, list[float]] = {name: [] for name in launches}
    for number in range(rounds + WARM_UP):
        for name, launch in launches.items():
            before, start = time.thread_time(), time.perf_counter()
            launch()
            took, used = time.perf_counter() - start, time.thread_time() - before
            if number >= WARM_UP:
                times[name].append(1000 * took)
                cpu[name].append(1000 * used)
    found: dict[str, object] = {}
    for name, wall in times.items():
        middle = statistics.median(wall)
        slow = [number for number, took in enumerate(wall) if took > STALL * middle]
        found |= {
            f"{name}_ms": round(middle, 4),
            f"{name}_cpu_ms": round(statistics.median(cpu[name]), 4),
            f"{name}_mean_ms": round(statistics.fmean(wall), 4),
            f"{name}_p99_ms": round(statistics.quantiles(wall, n=100)[-1], 4),
            f"{name}_stalls": len(slow),
            f"{name}_stalls_with_cpu": sum(cpu[name][number] > STALL / 2 * middle for number in slow),
        }
    return found


def under_exec(rounds: int) -> dict[str, object]:
    """Return the statistics of launches by <<<>>>, as the program measures them."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "launches.cu"), Path(folder, "launches")
        source.write_text(SOURCE + PROGRAM)
        subprocess.run(["nvcc", "-arch=sm_89", "-o", str(program), str(source)], check=True)
        command = [sys.executable, "-m", "weft", "exec", str(program), str(N), str(rounds + WARM_UP)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wall = [float(line) for line in printed.splitlines()[WARM_UP:]]
    middle = statistics.median(wall)
    return {
        "exec_ms": round(middle, 4),
        "exec_mean_ms": round(statistics.fmean(wall), 4),
        "exec_p99_ms": round(statistics.quantiles(wall, n=100)[-1], 4),
        "exec_stalls": sum(took > STALL * middle for took in wall),
    }


def main() -> None:
    """Print the statistics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=2000)
    parser.add_argument("--exec", action="store_true", help="also a program of nvcc under weft exec")
    options = parser.parse_args()
    rounds = options.launches
    binary = compile_cuda(SOURCE, name="launch_cost.cu", arch="sm_89")
    launches = {
        "empty": direct(binary, "empty", 1, 32, 0),
        "small": direct(binary, "small", 8, 128, 3),
        "engine": through_engine(binary),
    }
    found = {"launches": rounds, **measure(launches, rounds), **(under_exec(rounds) if options.exec else {})}
    found |= {"load": os.getloadavg()[0], "host": platform.processor()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
