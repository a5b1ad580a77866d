"""Kernel files with `link` lines: several CUDA and PTX files are one program."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from weft.bundle.gather import BundleOptions, from_kernel
from weft.core.errors import CompileError, Unsupported, UsageError
from weft.engines.virtual import VirtualGPU
from weft.interop.open_kernel import load
from weft.interop.shown_binaries import shown_binaries
from weft.judge.local_runs import check_debug_build
from weft.judge.runs import Refused
from weft.judge.select import Choice
from weft.probes.tools import watch_for
from weft.supervise.screen import screen
from weft.toolchain import compile_cuda

HEADER = """\
#pragma once
typedef float (*Activation)(float);
extern __device__ float bias[32];
extern __constant__ float scale;
extern __device__ Activation chosen;
__device__ float activate(float x);
template <int N> __device__ __noinline__ float times(float x) { return x * N; }
"""
MAIN = """\
// weft: sizes    N=32
// weft: link     parts.cu
// weft: constant scale : f32[1] = ones
// weft: in       x : f32[N] = arange
// weft: out      y : f32[N]
// weft: launch   layer<{N}>(x, y) grid(1) block(N)
#include "layer.h"
static __device__ int calls = 100;
static __device__ __noinline__ float count(float x) { return x + calls; }

template <int N>
__global__ void layer(const float* x, float* y) {
    __shared__ float all[N];
    const int t = threadIdx.x;
    all[t] = activate(x[t] + bias[t]) * scale;
    __syncthreads();
    y[t] = count(chosen(all[N - 1 - t])) + times<3>(1.0f);
}
"""
PARTS = """\
#include "layer.h"
static __device__ int calls = 7;
static __device__ __noinline__ float count(float x) { return x + calls; }
__device__ float bias[32] = {5, 5, 5, 5};
__constant__ float scale = 2.0f;
__device__ __noinline__ float activate(float x) { return count(x) + times<3>(2.0f); }
__device__ __noinline__ float negative(float x) { return -x; }
__device__ Activation chosen = negative;
"""
X = np.arange(32, dtype=np.float32)
EXPECTED = 100 - 3.0 * (X + np.where(X < 4, 5, 0) + 7 + 6)[::-1] + 3
"""`scale` is set to 3 by the caller."""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"layer.h": HEADER, "main.cu": MAIN, "parts.cu": PARTS}.items():
        Path(name).write_text(text)
    return tmp_path


def _check(path: str, **options: object) -> None:
    kernel = load(path, **options)  # type: ignore[arg-type]
    run, arrays = kernel.run(
        VirtualGPU(), {"scale": np.full(1, 3, np.float32)}, watch=watch_for(["racecheck", "initcheck"])
    )
    assert run.clean and not run.findings
    assert np.array_equal(arrays["y"], EXPECTED)


def test_two_files_are_one_program(program: Path) -> None:
    """A function, a variable, a constant, a function pointer and a template across files; statics of the same names."""
    _check("main.cu")


def test_the_debug_build_is_linked_too(program: Path) -> None:
    run = check_debug_build(load("main.cu"), {"scale": np.full(1, 3, np.float32)})
    assert not run.findings


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is optional: the product and its CI do without it")
def test_nvcc_gives_the_same(program: Path) -> None:
    _check("main.cu", compiler="nvcc")


def test_a_kernel_may_be_in_another_file(program: Path) -> None:
    head, _, device = MAIN.partition("#include")
    Path("main.cu").write_text(
        head.replace("<{N}>", "").replace("parts.cu", "parts.cu, kernel.cu")
        + "__global__ void layer(const float*, float*);\n"
    )
    Path("kernel.cu").write_text(
        "#include" + device.replace("template <int N>\n__global__", "constexpr int N = 32;\n__global__")
    )
    _check("main.cu")
    Path("kernel.cu").write_text("")
    with pytest.raises(UsageError, match=r"'layer' is not a __global__ function of main\.cu, parts\.cu, kernel\.cu"):
        _check("main.cu")


def test_ptx_files_are_linked_with_ptx_and_cuda_files(program: Path) -> None:
    lines, _, device = MAIN.partition("#include")
    main = compile_cuda("#include" + device, name="main.cu", options=("-rdc=true",), entries=["layer<32>"])
    Path("main.ptx").write_text(main.ptx)
    Path("parts.ptx").write_text(compile_cuda("parts.cu", options=("--relocatable-device-code=true",)).ptx)
    for linked in ("parts.cu", "parts.ptx"):
        Path("main.launch").write_text(lines.replace("parts.cu", linked))
        _check("main.ptx")


def test_a_finding_names_the_file_and_line_of_its_source(program: Path) -> None:
    Path("parts.cu").write_text(
        PARTS.replace("bias[32] =", "bias[8] =").replace("return count(x)", "return bias[11] + count(x)")
    )
    Path("layer.h").write_text(HEADER.replace("bias[32]", "bias[]"))
    run, _ = load("main.cu").run(VirtualGPU())
    assert {(each.code, str(each.place), each.name) for each in run.findings} == {
        ("M101", "main.cu:15", "bias"),
        ("M101", "parts.cu:6 (inlined at main.cu:15)", "bias"),
    }


def test_host_code_of_a_linked_file_is_left_out(program: Path) -> None:
    host = "#include <cstdio>\n#include <vector>\n__global__ void other(int* x) { *x = 1; }\n"
    host += 'int main() { std::vector<int> v(3); other<<<1, 1>>>(v.data()); printf("%d", v[0]); }\n'
    Path("parts.cu").write_text(PARTS + host)
    _check("main.cu")


def test_the_linked_program_is_shown_as_one_ptx_file(program: Path) -> None:
    """It can be bundled, or given to another tool."""
    binary = shown_binaries("main.cu", gpu="l4")[0]
    Path("whole.ptx").write_text(binary.ptx)
    Path("whole.launch").write_text(
        "".join(line for line in MAIN.splitlines(keepends=True) if "weft:" in line and "link" not in line)
    )
    _check("whole.ptx")


def test_what_is_missing_is_named(program: Path) -> None:
    Path("parts.cu").write_text(PARTS.replace("float activate(", "float deactivate("))
    with pytest.raises(CompileError, match=r"activate \(_Z8activatef\) is used in main\.cu, but no file defines it"):
        _check("main.cu")
    Path("main.cu").write_text(MAIN.replace("parts.cu", "nowhere.cu"))
    with pytest.raises(UsageError, match=r"main\.cu:2: link: no file nowhere\.cu in \.; give its folder with -I"):
        load("main.cu")
    Path("main.cu").write_text(MAIN.replace("parts.cu", "parts.o"))
    with pytest.raises(UsageError, match=r"main\.cu:2: 'parts\.o' is not a file to link"):
        load("main.cu")


def test_a_linked_file_is_found_in_include_folders(program: Path) -> None:
    Path("lib").mkdir()
    Path("parts.cu").rename("lib/parts.cu")
    _check("main.cu", include_dirs=["lib", "."])


def test_without_a_link_line_the_message_says_what_to_do(program: Path) -> None:
    """A file compiled with -rdc=true whose functions are elsewhere."""
    Path("main.cu").write_text(MAIN.replace("link     parts.cu", "option -rdc=true"))
    with pytest.raises(Unsupported, match="in a link line"):
        load("main.cu").run(VirtualGPU())


def test_untrusted_text_may_not_link(program: Path) -> None:
    """A link line reads a file of the host. A bundle has one file."""
    for text, launch, language in ((MAIN, "", "cuda"), ("", "// weft: link /etc/passwd.ptx", "ptx")):
        with pytest.raises(Refused, match="a candidate is one file"):
            screen(text.replace('#include "layer.h"', ""), language, launch)
    with pytest.raises(UsageError, match=r"main\.cu has link lines, but a bundle has one source file"):
        from_kernel("main.cu", BundleOptions(Choice()))


def test_a_triton_file_cannot_link(program: Path) -> None:
    Path("k.py").write_text("# weft: link parts.cu\n")
    with pytest.raises(UsageError, match=r"k\.py:1: link: Triton compiles a kernel with all that it calls"):
        load("k.py")
