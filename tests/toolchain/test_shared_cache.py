"""Several processes compile and run the same kernels at once, with one cache: all results right, no incomplete file."""

import os
import subprocess
import sys
from pathlib import Path

from weft.toolchain.cache import Cache

PROGRAM = r"""
import sys
import numpy as np
import weft

kernels, start = int(sys.argv[1]), int(sys.argv[2])
for step in range(kernels):
    number = (start + step) % kernels  # each process begins elsewhere, so that all write and read at all times
    text = f'''
    extern "C" __global__ void affine_{number}(const int* x, int* y, int n) {{
        __shared__ int tile[64];
        int i = blockIdx.x * 64 + threadIdx.x;
        tile[threadIdx.x] = i < n ? x[i] : 0;
        __syncthreads();
        int value = tile[63 - threadIdx.x] * {number + 3} + {number * number};
        while (value % {number + 2}) ++value;
        if (i < n) y[i] = value;
    }}'''
    binary = weft.compile_cuda(text, name=f"affine_{number}.cu")
    x = np.arange(128, dtype=np.int32) * 7 + number
    y = np.full(128, -1, np.int32)
    run = weft.VirtualGPU(threads=2).launch(binary, f"affine_{number}", 2, 64, [x, y, np.int32(128)])
    value = x.reshape(2, 64)[:, ::-1].reshape(-1) * (number + 3) + number * number
    expected = -(-value // (number + 2)) * (number + 2)
    assert run.clean, run.findings
    assert (y == expected).all(), number
print("right")
"""
"""Lanes leave the loop at different times, so both copies of every kernel are compiled."""


def _environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "WEFT_CACHE": str(cache), "WEFT_DEBUG": "1"}


def run_processes(processes: int, kernels: int, cache: Path) -> None:
    """Start all at once, then check every file of the cache against its own header."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(kernels), str(kernels * number // processes)],
            env=_environment(cache),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for process in started:
        printed, complaint = process.communicate(timeout=1200)
        assert process.returncode == 0, complaint
        assert printed.splitlines()[-1] == "right"
    files = [path for path in cache.rglob("*") if path.is_file()]
    for path in files:
        kind, folder, name = path.relative_to(cache).parts
        assert not name.startswith(".tmp-"), f"{path} was left behind"
        assert Cache(kind, root=cache).get(folder + name) is not None, f"{path} is torn"
    kinds = [path.relative_to(cache).parts[0] for path in files]
    assert kinds.count("cuda") == kernels


def test_processes_share_one_cache(tmp_path: Path) -> None:
    processes, kernels = 4, 6
    run_processes(processes, kernels, tmp_path)
    again = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(kernels), "0"], env=_environment(tmp_path), capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    compiled = [line for line in (again.stdout + again.stderr).splitlines() if line.startswith("weft:")]
    assert compiled == [], "everything was in the cache"
