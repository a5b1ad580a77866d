"""The sizes at which a kernel takes another path are found in its code and in its launch lines."""

from pathlib import Path

import pytest

from weft.coverage.boundaries import Axis, Code, find_boundaries
from weft.engines.kernel_file import KernelFile, load
from weft.engines.virtual import VirtualGPU

HEAD = """
// weft: sizes  N=8 M=4
// weft: in     x : f32[N] = normal
// weft: in     z : f32[M] = normal
// weft: out    y : f32[N]
"""
BODY = HEAD + "// weft: launch f(x, y, N, M) grid({grid}) block(32)\n{text}"


def boundaries(folder: Path, text: str, largest: int = 5000, size: str = "N") -> set[int]:
    path = folder / "kernel.cu"
    path.write_text(text)
    kernel = load(path)

    def shapes(value: int) -> dict[str, tuple[int, ...]]:
        sizes = {"N": 8, "M": 4, size: value}
        return {"x": (sizes["N"],), "z": (sizes["M"],)}

    return {each.value for each in find_boundaries(kernel, codes_of(kernel), Axis(size, shapes, largest))}


def codes_of(kernel: KernelFile) -> list[Code]:
    gpu = VirtualGPU(kernel.gpu)
    return [Code(gpu.program(binary, entry), binary, entry) for entry, binary in kernel.binaries().items()]


CASES = {
    "a threshold": ("if (n > 300) y[0] = x[0]; else y[1] = x[1];", {301}),
    "one size": ("if (n == 777) y[0] = x[0]; else y[1] = x[1];", {777, 778}),
    "blocks of 256": ("if ((n + 255) / 256 > 3) y[0] = x[0]; else y[1] = x[1];", {769}),
    "both ends": ("if (n >= 100 && n < 1000) y[0] = x[0]; else y[1] = x[1];", {100, 1000}),
    "a smaller of two": ("const int k = min(n, 640); for (int i = 0; i < k; i += 64) y[i] = x[i];", {65, 129, 640}),
    # Its last thread reaches 200 in the seventh CTA, the first thread of a CTA in the eighth.
    "an index": ("const int i = blockIdx.x * 32 + threadIdx.x; y[i] = i >= 200 ? x[i] : x[2 * i];", {193, 225}),
}


@pytest.mark.parametrize("name", CASES)
def test_comparisons_of_a_size_are_found(name: str, tmp_path: Path) -> None:
    body, expected = CASES[name]
    text = f"__global__ void f(const float* x, float* y, int n, int m) {{ {body} }}"
    assert expected <= boundaries(tmp_path, BODY.format(grid="cdiv(N, 32)", text=text))


def test_edges_of_tiles_are_no_boundaries(tmp_path: Path) -> None:
    """`if (i < n)` changes at every size: it is about a thread, not about the size."""
    text = """__global__ void f(const float* x, float* y, int n, int m) {
        const int i = blockIdx.x * 32 + threadIdx.x;
        if (i < n) y[i] = x[i];
    }"""
    assert boundaries(tmp_path, BODY.format(grid="cdiv(N, 32)", text=text)) == set()


def test_values_from_memory_are_unknown(tmp_path: Path) -> None:
    text = "__global__ void f(const float* x, float* y, int n, int m) { if (x[0] > 300.0f) y[0] = 1; else y[1] = 2; }"
    assert boundaries(tmp_path, BODY.format(grid="1", text=text)) == set()


def test_a_loop_that_starts_a_second_iteration_is_a_boundary(tmp_path: Path) -> None:
    text = """__global__ void f(const float* x, float* y, int n, int m) {
        float sum = 0;
        for (int first = 0; first < n; first += 384) { __syncthreads(); sum += x[first]; }
        y[0] = sum;
    }"""
    assert 385 in boundaries(tmp_path, BODY.format(grid="1", text=text))


def test_the_other_size_does_not_move_it(tmp_path: Path) -> None:
    text = "__global__ void f(const float* x, float* y, int n, int m) { if (n > 300) y[0] = x[0]; else y[1] = x[1]; }"
    assert boundaries(tmp_path, BODY.format(grid="1", text=text), size="M") == set()


def test_sizes_whose_arguments_do_not_fit_are_left_out(tmp_path: Path) -> None:
    text = "__global__ void f(const float* x, float* y, short n, int m) { if (n > 300) y[0] = x[0]; else y[1] = x[1]; }"
    # A short is negative from 32,768 on; from 65,536 on the argument is refused.
    assert boundaries(tmp_path, BODY.format(grid="1", text=text), largest=100_000) == {301, 32_768}


def test_launch_lines_choose_other_code(tmp_path: Path) -> None:
    text = HEAD + (
        "// weft: define PARTS = min(4, cdiv(N, 500))\n"
        "// weft: launch short_(x, y) grid(1) block(32) when(N < 1234)\n"
        "// weft: launch long_(x, y) grid(1) block(32) when(N >= 1234)\n"
        "__global__ void short_(const float* x, float* y) { y[0] = x[0]; }\n"
        "__global__ void long_(const float* x, float* y) { y[0] = x[0] * PARTS; }\n"
    )
    assert boundaries(tmp_path, text) == {501, 1001, 1234, 1501}
