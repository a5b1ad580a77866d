"""One tiny kernel from CUDA C++ over PTX and LLVM to its numbers: whether this installation works."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.core.errors import WeftError
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU

N = 1000
SOURCE = f"""// weft: sizes   N={N}
// weft: in      x : f32[N] = normal
// weft: out     y : f32[N]
// weft: launch  twice(x, y, N) grid(cdiv(N, 256)) block(256)
extern "C" __global__ void twice(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}}
"""


@dataclass(frozen=True)
class Trial:
    """How it went."""

    elements: int
    seconds: float
    problem: str


def run_tiny_kernel() -> Trial:
    """Never raises: what goes wrong is the answer."""
    start = time.perf_counter()
    x = np.linspace(-1.0, 1.0, N, dtype=np.float32)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "twice.cu"
            file.write_text(SOURCE)
            run, results = load(file).run(VirtualGPU(), {"x": x})
        # Doubling is exact in binary floating point: any other bit is a fault of this installation.
        right = run.clean and np.array_equal(results["y"], x + x)
        problem = "" if right else "the tiny kernel of --try ran, and gave wrong numbers"
    except (WeftError, OSError) as error:
        problem = f"the tiny kernel of --try did not run: {error}"
    return Trial(N, time.perf_counter() - start, problem)
