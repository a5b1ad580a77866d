"""Time to read one kernel of a PTX file of 21 MB with hundreds of kernels.

    python benchmarks/large_module.py [--megabytes N] [--rounds N] [--ptx FILE]

The file is one compiled kernel, repeated under other names; `--ptx` takes a real one. `cut_s`: finding all functions.
`index_s`: the same from the cache. `declarations_s`: headers and variables. `parse_s` and `compile_s`: one kernel, in
the middle of the file, after that. Times are medians of wall-clock time, `cpu_*` of CPU time. The last line of stdout
is one JSON object.
"""

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from weft.ptx import cut as cutting
from weft.ptx import parse
from weft.ptx.cut import cut, index_of
from weft.ptx.parse import parse_declarations, parse_kernel
from weft.toolchain.cuda import compile_cuda
from weft.vm.program import compile_program

SOURCE = """
extern "C" __global__ void part(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    #pragma unroll
    for (int k = 0; k < 300; ++k) {
        v = v * 1.5f + __shfl_xor_sync(0xffffffffu, v, 1 << (k % 5));
        asm volatile("{ .reg .pred p; setp.gt.f32 p, %0, 0f00000000; @p add.f32 %0, %0, %0; }" : "+f"(v));
    }
    if (i < n) x[i] = v;
}
"""


def repeated(size_bytes: int) -> str:
    """Return a PTX text of about this size: the kernel under many names."""
    text = compile_cuda(SOURCE, name="part.cu", arch="sm_89").ptx
    (piece,) = cut(text).pieces
    kernel = text[piece.start : piece.end]
    copies = -(-size_bytes // len(kernel))
    kernels = (re.sub(r"\bpart(?=\b|_)", f"part{number}", kernel) for number in range(copies))
    return text[: piece.start] + "\n".join(kernels) + text[piece.end :]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall-clock and CPU seconds."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=21.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ptx", type=Path)
    options = parser.parse_args()
    text = options.ptx.read_text() if options.ptx else repeated(int(options.megabytes * 1e6))
    entries = [piece.name for piece in cut(text).pieces if piece.entry]
    middle = entries[len(entries) // 2]

    def indexed() -> None:
        index_of.cache_clear()
        index_of(text)

    def declared() -> None:
        parse._declared.cache_clear()
        parse_declarations(text)

    indexed()  # the cache has it from here on
    found: dict[str, object] = {"megabytes": round(len(text) / 1e6, 1), "kernels": len(entries), "n": options.rounds}
    steps = {
        "cut": lambda: cutting.cut(text),
        "index": indexed,
        "declarations": declared,
        "parse": lambda: parse_kernel(text, middle),
    }
    for name, step in steps.items():
        wall, cpu = zip(*(timed(step) for _ in range(options.rounds)), strict=True)
        found |= {f"{name}_s": round(statistics.median(wall), 3), f"cpu_{name}_s": round(statistics.median(cpu), 3)}
    wall_once, cpu_once = timed(lambda: compile_program(text, middle, arch="sm_89"))
    found |= {"compile_s": round(wall_once, 3), "cpu_compile_s": round(cpu_once, 3), "load": os.getloadavg()[0]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
