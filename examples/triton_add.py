"""A Triton kernel, compiled by Triton itself and run without a GPU."""

import sys

import numpy as np

import weft

try:
    import triton
    import triton.language as tl
except ImportError:
    print("Triton is not installed: pip install 'weft-gpu[triton]'")
    sys.exit()


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def main() -> None:
    n, block = 1000, 256
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    out = np.full(n, np.nan, np.float32)

    types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    binary = weft.compile_triton(add, signature=types, constexprs={"BLOCK": block})
    scratch = [np.zeros(1, np.uint8)] * 2  # Triton adds two scratch pointers to every kernel
    threads = 32 * binary.num_warps
    run = weft.VirtualGPU().launch(
        binary, "add", -(-n // block), threads, [x, y, out, n, *scratch], shared_bytes=binary.dynamic_shared_bytes
    )

    assert run.clean, "\n".join(map(str, run.findings))
    assert np.array_equal(out, x + y)
    print(f"{n} sums by Triton, all equal to NumPy's; {run.instructions} warp instructions")


if __name__ == "__main__":
    main()
