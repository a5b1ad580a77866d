"""Whether the array of a launch line fits the pointer it is passed as; an unknown type is never an error."""

from pathlib import Path

import pytest

from weft.core.errors import LaunchError
from weft.engines.kernel_file import load
from weft.engines.parameter_types import declared_types, fits

FITS = [
    ("f16", "const half*"), ("f16", "__half*"), ("bf16", "const __nv_bfloat16*"), ("f32", "float*"), ("i64", "long*"),
    ("e4m3", "const __nv_fp8_e4m3*"), ("e4m3", "unsigned char*"), ("u8", "float*"), ("i8", "half*"), ("u16", "half*"),
    ("i16", "__nv_bfloat16*"), ("u32", "const half*"), ("f32", "int*"), ("f16", "unsigned int*"), ("i32", "unsigned*"),
    ("f16", "const float4*"), ("f16", "void*"), ("f16", "const T*"), ("f16", "half**"), ("bool", "unsigned char*"),
]  # fmt: skip
MISFITS = [
    ("f32", "const half*"), ("f16", "float*"), ("f16", "const __nv_bfloat16*"), ("bf16", "half*"), ("f64", "float*"),
    ("e4m3", "const __nv_fp8_e5m2*"), ("i32", "float*"), ("i64", "double*"), ("i64", "const int*"),
    ("i32", "long long*"),
    ("bool", "int*"), ("bool", "float*"), ("i16", "float*"),
]  # fmt: skip


@pytest.mark.parametrize(("element", "pointer"), FITS)
def test_types_that_fit(element: str, pointer: str) -> None:
    assert fits(element, pointer)


@pytest.mark.parametrize(("element", "pointer"), MISFITS)
def test_types_that_do_not_fit(element: str, pointer: str) -> None:
    assert not fits(element, pointer)


def test_the_declaration_of_a_kernel_that_is_not_mangled() -> None:
    text = """
    using real = float;
    #define half other
    // extern "C" __global__ void k(double* commented) {}
    extern "C" __global__ void k(
        const __nv_bfloat16* __restrict__ a, float *b, real* c, half* d, int n, const int e[]) {}
    """
    assert declared_types(text, "k") == ("const __nv_bfloat16*", "float*", "?", "?", "?", "?")
    assert declared_types(text, "other") == ()
    twice = """#ifdef A
    extern "C" __global__ void k(float* a) {}
    #else
    extern "C" __global__ void k(half* a) {}
    #endif"""
    assert declared_types(twice, "k") == (), "which of the two is compiled is not known"


KERNEL = """\
// weft: sizes  N=32
// weft: in     x : {element}[N] = ones
// weft: out    y : f32[N]
// weft: launch {call}(x, y) grid(1) block(32)
#include <cuda_fp16.h>
typedef half mine;
{kernel} {{ y[threadIdx.x] = float(x[threadIdx.x]); }}
"""


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        ("k", "__global__ void k(const mine* x, float* y)"),
        ("k", 'extern "C" __global__ void k(const half* __restrict__ x, float* y)'),
        ("k<half>", "template <typename T> __global__ void k(const T* x, float* y)"),
        ("k<32>", "template <int D> static __global__ void k(const half* x, float* y)"),
    ],
)
def test_a_type_mismatch_is_an_error_before_anything_runs(tmp_path: Path, call: str, kernel: str) -> None:
    file = tmp_path / "k.cu"
    file.write_text(KERNEL.format(element="f16", call=call, kernel=kernel))
    load(file).bind()
    file.write_text(KERNEL.format(element="f32", call=call, kernel=kernel))
    with pytest.raises(LaunchError, match=r"k.cu:4: x is declared f32; parameter 1 of k.* is `const (__)?half\*`"):
        load(file).bind()
