"""nvcc as a front end. Tests that run it need a CUDA toolkit, which neither Weft nor its CI requires."""

import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from weft.core.errors import CompileError, ToolMissing, UsageError
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.toolchain import compile_cuda, nvcc

needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is optional: the product and its CI do without a CUDA toolkit"
)

WITH_HOST_CODE = """\
// weft: sizes   N=40
// weft: in      x : f32[N] = arange
// weft: out     y : f32[N]
// weft: launch  twice<{N}>(x, y) grid(1) block(N)
#include <cstdio>
#include <vector>

template <int N>
__global__ void twice(const float* x, float* y) {
    __shared__ float all[N];
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = 2.0f * all[N - 1 - threadIdx.x];
}

int main() {
    std::vector<float> host(40);
    twice<40><<<1, 40>>>(nullptr, host.data());
    printf("%zu", host.size());
}
"""


@pytest.fixture
def no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without nvcc."""
    nvcc._tool.cache_clear()
    monkeypatch.setattr(nvcc, "_places", list)


def test_without_nvcc_the_error_says_what_to_do(no_tool: None) -> None:
    with pytest.raises(ToolMissing, match="install the CUDA toolkit, or omit --compiler nvcc"):
        compile_cuda("__global__ void k() {}", name="k.cu", compiler="nvcc")


def test_an_unknown_compiler_is_refused() -> None:
    with pytest.raises(UsageError, match="nvrtc or nvcc"):
        compile_cuda("__global__ void k() {}", name="k.cu", compiler="clang")


def test_a_program_that_is_not_nvcc_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nvcc"
    fake.write_text("#!/bin/sh\necho hello\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    nvcc._tool.cache_clear()
    monkeypatch.setattr(nvcc, "_places", lambda: [str(fake)])
    with pytest.raises(ToolMissing, match="does not print a release"):
        compile_cuda("__global__ void k() {}", name="k.cu", compiler="nvcc")


@needs_nvcc
def test_a_file_with_host_code_runs(tmp_path: Path) -> None:
    file = tmp_path / "twice.cu"
    file.write_text(WITH_HOST_CODE)
    with pytest.raises(CompileError, match="host"):
        load(file).compile()
    kernel = load(file, compiler="nvcc")
    binary = kernel.compile()
    assert binary.compiler.startswith("nvcc ")
    symbol = binary.entries["twice<40>"]
    assert symbol == "_Z5twiceILi40EEvPKfPf" and f".entry {symbol}(" in binary.ptx
    assert binary.resources[symbol].static_shared_bytes == 160
    assert [row.size_bytes for row in binary.shared[symbol]] == [160]
    assert "weft_entry" not in binary.ptx
    run, arrays = kernel.run(VirtualGPU())
    assert run.clean
    np.testing.assert_array_equal(arrays["y"], 2.0 * np.arange(40, dtype=np.float32)[::-1])


@needs_nvcc
def test_flags_lines_and_cache_are_those_of_nvrtc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "k.cu"
    (tmp_path / "inner.cuh").write_text("#define SIZE 4\n")
    file.write_text(
        '#include "inner.cuh"\n#include <weft.h>\n'
        'extern "C" __global__ void k(float* a) {\n  float x[4]; x[1] = a[0];\n  a[SIZE] = x[1] * a[2] + a[3];\n}\n'
    )
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DSIZE=9")
    plain = compile_cuda(file, compiler="nvcc")
    assert "fma.rn.f32" in plain.ptx and ".local" not in plain.ptx
    assert f'"{file}"' in plain.ptx and ".loc\t1 5 " in plain.ptx
    assert "fma.rn.f32" not in compile_cuda(file, compiler="nvcc", fmad=False).ptx
    assert ".local" in compile_cuda(file, compiler="nvcc", debug=True).ptx

    ran: list[str] = []
    original = nvcc.compile_program
    monkeypatch.setattr(nvcc, "compile_program", lambda *args, **rest: ran.append("") or original(*args, **rest))
    assert compile_cuda(file, compiler="nvcc") == plain and not ran
    (tmp_path / "inner.cuh").write_text("#define SIZE 5\n")
    assert compile_cuda(file, compiler="nvcc").ptx != plain.ptx and len(ran) == 1


@needs_nvcc
def test_the_same_source_gives_the_same_bits() -> None:
    """nvcc names symbols with internal linkage after the path of its input."""
    source = "namespace { __device__ int here; }\n__global__ void k(int* a) { here = a[1]; *a = here; }\n"
    for debug in (False, True):
        first, second = (compile_cuda(source, name="k.cu", compiler="nvcc", debug=debug, cache=False) for _ in "12")
        assert first == second


@needs_nvcc
def test_errors_name_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("\n__global__ void k(int* a) { *a = absent; }\n")
    with pytest.raises(CompileError) as caught:
        compile_cuda(file, compiler="nvcc")
    assert [str(item.place) for item in caught.value.diagnostics] == [f"{file}:2"]
    file.write_text('#include "nowhere.cuh"\n')
    with pytest.raises(
        CompileError, match=r"nowhere.cuh: No such file or directory: give its folder with -I"
    ) as caught:
        compile_cuda(file, compiler="nvcc")
    assert [str(item.place) for item in caught.value.diagnostics] == [f"{file}:1"]


@needs_nvcc
def test_a_kernel_that_a_launch_line_misspells_is_an_error_of_that_line(tmp_path: Path) -> None:
    file = tmp_path / "twice.cu"
    file.write_text(WITH_HOST_CODE.replace("launch  twice", "launch  thrice"))
    with pytest.raises(CompileError, match=r"twice\.cu:4: thrice<40>: identifier"):
        load(file, compiler="nvcc").compile()
