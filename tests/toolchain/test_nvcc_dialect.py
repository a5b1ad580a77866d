"""Sources and options that are written for nvcc, compiled by NVRTC and, where it is installed, by nvcc."""

import re
import shutil
from pathlib import Path

import pytest

from weft.core.errors import CompileError, UsageError
from weft.toolchain import compile_cuda

NVCC = pytest.param("nvcc", marks=pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is optional"))
COMPILERS = ["nvrtc", NVCC]

RELAXED = """\
constexpr int twice(int x) { return 2 * x; }
template <typename T>
constexpr T
larger(T a, T b) { return a > b ? a : b; }
struct Pair {
    int first;
    constexpr Pair(int x) : first(x) {}
    constexpr int get() const { return first; }
};
__global__ void k(int* p) {
    constexpr int four = twice(2);
    p[0] = larger(twice(p[1]), four) + Pair(p[2]).get();
}
"""
LAMBDA = """\
template <typename F> __device__ int apply(F f, int x) { return f(x); }
[[nodiscard]] __device__ int kept(int x) { return x; }
__global__ void k(int* p) {
    p[0] = apply([=] __device__(int x) { return x + p[1]; }, 2);
    p[1] = apply([] __host__ __device__ (int x) mutable -> int { return kept(x); }, 3);
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_constexpr_functions_are_called_from_device_code(compiler: str) -> None:
    binary = compile_cuda(RELAXED, name="k.cu", options=["--expt-relaxed-constexpr"], compiler=compiler)
    assert not binary.diagnostics and "max.s32" in binary.ptx


@pytest.mark.parametrize("compiler", COMPILERS)
def test_constants_outside_device_code_need_no_option(compiler: str) -> None:
    """The usual helper of a kernel: it computes a size. NVRTC accepts more than nvcc then, so there is a warning."""
    source = "constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }\nconstexpr int tiles = cdiv(100, 32);\n"
    source += "__global__ void k(int* p) { p[0] = tiles; }"
    binary = compile_cuda(source, name="k.cu", compiler=compiler)
    assert re.search(r"mov\.\w+\s+%r\d+, 4;", binary.ptx)
    places = [(each.severity, str(each.place)) for each in binary.diagnostics]
    assert places == ([("warning", "k.cu:1")] if compiler == "nvrtc" else [])
    relaxed = ["--expt-relaxed-constexpr"]
    assert not compile_cuda(source, name="k.cu", compiler=compiler, options=relaxed).diagnostics


def test_constexpr_functions_of_a_header(tmp_path: Path) -> None:
    (tmp_path / "sizes.h").write_text("#pragma once\nconstexpr int half_of(int x) { return x / 2; }\n")
    (tmp_path / "k.cu").write_text('#include "sizes.h"\n__global__ void k(int* p) { p[0] = half_of(p[1]); }\n')
    assert "_Z1kPi" in compile_cuda(tmp_path / "k.cu", options=["-expt-relaxed-constexpr"]).ptx


def test_a_host_function_is_still_an_error_at_its_line() -> None:
    source = RELAXED.replace("__global__", "int on_the_host(int x) { return x; }\n__global__")
    with pytest.raises(CompileError) as error:
        compile_cuda(source, name="k.cu", options=["--expt-relaxed-constexpr"])
    assert [(each.place.line, each.severity) for each in error.value.diagnostics if each.place] == [(10, "error")]
    assert "host function" in str(error.value)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_extended_lambdas(compiler: str) -> None:
    binary = compile_cuda(LAMBDA, name="k.cu", options=["--extended-lambda"], compiler=compiler)
    assert not binary.diagnostics
    with pytest.raises(CompileError, match=r"weft: option --extended-lambda"):
        compile_cuda(LAMBDA, name="k.cu", compiler=compiler)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_options_of_a_build_are_taken(compiler: str) -> None:
    source = "__global__ void k(float* p) { if constexpr (__cplusplus > 201703L) p[0] = expf(p[1]) / p[2]; }"
    options = ["-std=c++20", "--use_fast_math", "-O3", "-Xcompiler=-fPIC", "--threads=4", "--maxrregcount=64"]
    ptx = compile_cuda(source, name="k.cu", options=options, compiler=compiler).ptx
    assert "ex2.approx.ftz.f32" in ptx and "div.approx.ftz.f32" in ptx
    with pytest.raises(UsageError, match="use arch instead"):
        compile_cuda(source, name="k.cu", options=["-gencode=arch=compute_80,code=sm_80"], compiler=compiler)
    with pytest.raises(UsageError, match="use defines instead"):
        compile_cuda(source, name="k.cu", options=["-DN=1"], compiler=compiler)


CONSTANTS = """\
constexpr float lowest = -INFINITY;
static constexpr double top = HUGE_VAL;
__constant__ float start[2] = {-INFINITY, NAN};
__device__ float best = -HUGE_VALF;
template <typename T> struct Limit { static constexpr T value = -INFINITY; };
__global__ void k(float* p, double* q) {
    p[0] = lowest + start[0] + best + Limit<float>::value;
    p[1] = MAXFLOAT;
    q[0] = top;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_infinity_is_a_constant_expression(compiler: str) -> None:
    """No header is included: nvcc reads <math.h> before the file."""
    ptx = compile_cuda(CONSTANTS, name="k.cu", compiler=compiler).ptx
    assert "start[8] = {0, 0, 128, 255, 0, 0, 192, 127}" in ptx  # -INFINITY and NAN have nvcc's bits
    assert "best = 0fFF800000" in ptx
    assert f"{0x7F7FFFFF}" in ptx and f"{0x7FF0000000000000}" in ptx


@pytest.mark.parametrize(
    ("use", "header"),
    [
        ("FLT_MAX", "cfloat"),
        ("uint32_t(1)", "cstdint"),
        ("CUDART_INF_F", "math_constants.h"),
        ("half(1)", "cuda_fp16.h"),
    ],
)
def test_a_missing_header_is_named(use: str, header: str) -> None:
    """nvcc refuses these, too; with the header both take them."""
    source = f"__global__ void k(float* p) {{ p[0] = {use}; }}"
    with pytest.raises(CompileError, match=rf"is undefined: #include <{header}>"):
        compile_cuda(source, name="k.cu")
    compile_cuda(f"#include <{header}>\n{source}", name="k.cu")
