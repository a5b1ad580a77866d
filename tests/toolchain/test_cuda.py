from pathlib import Path

import pytest

from weft.core.errors import CompileError, UsageError
from weft.toolchain import compile_cuda, nvrtc
from weft.toolchain.demangle import demangle, parameter_types
from weft.toolchain.nvrtc import Compilation, compile_program

HELLO = 'extern "C" __global__ void hello(float* a) { a[threadIdx.x] = 1.0f; }\n'
TEMPLATE = """
template <int D, bool causal> __global__ void attn(float* out) {
    __shared__ float row[D];
    row[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = row[causal ? 0 : D - 1];
}
"""


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names with which NVRTC was really called."""
    calls: list[str] = []

    def counted(source: str, **options: object) -> Compilation:
        calls.append(str(options["name"]))
        return compile_program(source, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(nvrtc, "compile_program", counted)
    return calls


def test_a_file_becomes_ptx_and_cubin(tmp_path: Path) -> None:
    file = tmp_path / "hello.cu"
    file.write_text(HELLO)
    binary = compile_cuda(file)
    assert ".target sm_89" in binary.ptx and ".entry hello(" in binary.ptx
    assert binary.cubin.startswith(b"\x7fELF")
    assert binary.entries == {"hello": "hello"}
    assert binary.source_name == str(file)
    assert f'.file\t1 "{file}"' in binary.ptx
    assert len(binary.source_digest) == len(binary.ptx_digest) == 64


def test_a_template_is_instantiated_by_name_expression() -> None:
    binary = compile_cuda(TEMPLATE, name="attn.cu", entries=["attn<64,true>", "attn< 128, false >"])
    assert binary.entries == {
        "attn<64,true>": "_Z4attnILi64ELb1EEvPf",
        "attn< 128, false >": "_Z4attnILi128ELb0EEvPf",
    }
    assert binary.resources["_Z4attnILi64ELb1EEvPf"].static_shared_bytes == 256
    assert binary.resources["_Z4attnILi128ELb0EEvPf"].static_shared_bytes == 512


def test_an_entry_must_exist_and_be_a_kernel() -> None:
    with pytest.raises(CompileError):
        compile_cuda(HELLO, name="h.cu", entries=["absent<3>"])
    with pytest.raises(UsageError, match="not a __global__"):
        compile_cuda(HELLO + "__constant__ float c[2];", name="h.cu", entries=["&c"])


def test_kernels_are_listed_under_readable_names() -> None:
    source = """
    namespace n { __global__ void inner(int* p) { *p = 1; } }
    static __global__ void hidden(int* p) { *p = 2; }
    template <class T, int N> __global__ void typed(T* p) { *p = N; }
    template __global__ void typed<float, -3>(float*);
    __global__ void twice(int* p) { *p = 3; }
    __global__ void twice(float* p) { *p = 3; }
    __device__ void (*keep)(int*) = hidden;
    """
    assert compile_cuda(source, name="k.cu").entries == {
        "n::inner": "_ZN1n5innerEPi",
        "hidden": "_Z6hiddenPi",
        "typed<float,-3>": "_Z5typedIfLin3EEvPT_",
        "_Z5twicePi": "_Z5twicePi",
        "_Z5twicePf": "_Z5twicePf",
    }


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain", "plain"),
        ("_ZL6hiddenPi", "hidden"),
        ("_ZN1a1bILj3EE1kILb0EfEEvPT0_", "a::b<3u>::k<false,float>"),
        ("_Z1kI3RowLi2EEvT_", "k<Row,2>"),
        ("_Z1kIN1a1bEEvT_", "k<a::b>"),
        ("_ZN1a1bB2v1B3tagE5ArrayIfE", "a::b"),  # as numba-cuda spells a kernel
        ("_Z1kIDhEvT_", "_Z1kIDhEvT_"),
        ("_Z9k", "_Z9k"),
        ("_Z1kILi", "_Z1kILi"),
    ],
)
def test_demangling_never_guesses(symbol: str, name: str) -> None:
    assert demangle(symbol) == name


@pytest.mark.parametrize(
    ("symbol", "types"),
    [
        ("plain", ()),
        ("_Z4nonev", ()),
        ("_Z2fdILi64EEvPK6__halfPS0_f", ("const __half*", "__half*", "float")),
        ("_Z3twoI6__halffEvPKT_PKT0_PS4_PS1_", ("const __half*", "const float*", "float*", "__half*")),
        (
            "_ZN1n5plainEPK6__halfPKNS_1PEPS3_PVKfPv",
            ("const __half*", "const n::P*", "n::P*", "const volatile float*", "void*"),
        ),
        ("_ZN1n4attnIfLi32EEEvPKT_NS_1m3BoxIS1_XT0_EEE", ("const float*", "n::m::Box<float,32>")),
        ("_ZN9_GLOBAL__3hidEPK6__halfPx", ("const __half*", "long long*")),
        ("_Z1kPFvvE", ()),
    ],
)  # the types that __cxa_demangle prints
def test_the_types_of_parameters(symbol: str, types: tuple[str, ...]) -> None:
    assert parameter_types(symbol) == types


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_architectures(arch: str) -> None:
    binary = compile_cuda(TEMPLATE, name="a.cu", arch=arch, entries=["attn<64,true>"])
    assert f".target {arch}" in binary.ptx
    used = binary.resources["_Z4attnILi64ELb1EEvPf"]
    assert used.registers > 0 and used.static_shared_bytes == 256 and used.spill_store_bytes == 0


def test_spills_and_local_memory_are_reported() -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(1024) k(float* a) {
        float r[128];
        for (int i = 0; i < 128; ++i) r[i] = a[i * 37 + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 128; ++i) a[i * 41 + threadIdx.x] = r[i] * r[(i * 7) % 128];
    }
    """
    used = compile_cuda(source, name="spill.cu").resources["k"]
    assert used.registers <= 64
    assert used.spill_store_bytes > 0 and used.spill_load_bytes > 0 and used.local_bytes > 0


def test_debug_and_fmad_reach_the_compiler() -> None:
    source = 'extern "C" __global__ void k(float* a) { float x[4]; x[1] = a[0]; a[1] = x[1] * a[2] + a[3]; }'
    plain = compile_cuda(source, name="k.cu")
    assert "fma.rn.f32" in plain.ptx and "-lineinfo" in plain.flags and ".local" not in plain.ptx
    assert "fma.rn.f32" not in compile_cuda(source, name="k.cu", fmad=False).ptx
    assert ".local" in compile_cuda(source, name="k.cu", debug=True).ptx


def test_defines_are_read_back() -> None:
    source = 'extern "C" __global__ void k(int* a) { __shared__ int s[N]; s[0] = *a; a[1] = s[a[2]]; }'
    binary = compile_cuda(source, name="k.cu", defines={"N": "24", "TYPO": "1", "NDEBUG": "1"})
    assert binary.resources["k"].static_shared_bytes == 96
    assert binary.defines == {"N": "24", "TYPO": "1 (unused)", "NDEBUG": "1"}


def test_the_cache_hits_and_sees_a_changed_include(tmp_path: Path, compilations: list[str]) -> None:
    (tmp_path / "inner.cuh").write_text("#define SIZE 4\n")
    (tmp_path / "outer.cuh").write_text('#include "inner.cuh"\n')
    file = tmp_path / "k.cu"
    file.write_text('#include "outer.cuh"\nextern "C" __global__ void k(float* a) { a[SIZE] = SIZE; }\n')
    first = compile_cuda(file)
    assert compile_cuda(file) == first
    assert len(compilations) == 1
    (tmp_path / "inner.cuh").write_text("#define SIZE 5\n")
    second = compile_cuda(file)
    assert len(compilations) == 2 and second.ptx != first.ptx
    for change in ({"defines": {"X": "1"}}, {"arch": "sm_80"}, {"fmad": False}, {"entries": ["k"]}):
        compile_cuda(file, **change)
    assert len(compilations) == 6
    compile_cuda(file, cache=False)
    assert len(compilations) == 7


def test_a_header_that_appears_first_in_the_search_order_is_noticed(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    (far / "size.cuh").write_text("#define SIZE 4\n")
    source = '#include <size.cuh>\nextern "C" __global__ void k(int* a) { *a = SIZE; }\n'
    before = compile_cuda(source, name="k.cu", include_dirs=[near, far])
    (near / "size.cuh").write_text("#define SIZE 77\n")
    after = compile_cuda(source, name="k.cu", include_dirs=[near, far])
    assert "77" not in before.ptx and "77" in after.ptx


def test_an_include_by_macro_is_followed(tmp_path: Path, compilations: list[str]) -> None:
    (tmp_path / "pick.cuh").write_text("#if 0\n#define FROM(x) <none/x>\n#else\n#define FROM(x) <far/x>\n#endif\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.cuh").write_text("#define SIZE 4\n")
    file = tmp_path / "k.cu"
    file.write_text('#include "pick.cuh"\n#include FROM(a.cuh) // by macro\n__global__ void k(int* a) { *a = SIZE; }\n')
    first = compile_cuda(file, include_dirs=[tmp_path])
    assert compile_cuda(file, include_dirs=[tmp_path]) == first
    assert len(compilations) == 1
    (tmp_path / "far" / "a.cuh").write_text("#define SIZE 5\n")
    assert compile_cuda(file, include_dirs=[tmp_path]).ptx != first.ptx
    assert len(compilations) == 2


def test_an_include_by_a_macro_from_outside_is_never_cached(tmp_path: Path, compilations: list[str]) -> None:
    (tmp_path / "a.cuh").write_text("#define SIZE 4\n")
    file = tmp_path / "k.cu"
    file.write_text("#include WHICH\n__global__ void k(int* a) { *a = SIZE; }\n")
    for _ in range(2):
        compile_cuda(file, defines={"WHICH": '"a.cuh"'})
    assert len(compilations) == 2


def test_warnings_about_the_users_file_survive_the_cache(compilations: list[str]) -> None:
    source = '#include <cuda_fp8.h>\nextern "C" __global__ void k(int* a) {\n  int unused;\n  *a = 1;\n}\n'
    for _ in range(2):
        (warning,) = compile_cuda(source, name="w.cu").diagnostics
        assert warning.severity == "warning" and '"unused"' in warning.message
        assert warning.place is not None and (warning.place.file, warning.place.line) == ("w.cu", 3)
    assert len(compilations) == 1


def test_a_compile_error_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "bad.cuh").write_text("\n__device__ int f() { return missing; }\n")
    file = tmp_path / "k.cu"
    file.write_text('#include "bad.cuh"\n\n__global__ void k(int* a) {\n  *a = absent;\n}\n')
    with pytest.raises(CompileError) as caught:
        compile_cuda(file)
    places = [(str(d.place), d.message) for d in caught.value.diagnostics if d.severity == "error"]
    assert places == [
        (f"{tmp_path / 'bad.cuh'}:2", 'identifier "missing" is undefined'),
        (f"{file}:4", 'identifier "absent" is undefined'),
    ]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (HELLO + "int main() { return 0; }", 2),
        (HELLO + "\n__host__ void launch() {}", 3),
        (HELLO + "int counter = 3;", 2),
        ("#include <vector>\n" + HELLO, 1),
    ],
)
def test_host_code_is_refused_with_the_cure(source: str, line: int) -> None:
    with pytest.raises(CompileError, match=r"docs/tutorials/own_kernel\.md") as caught:
        compile_cuda(source, name="host.cu")
    place = caught.value.diagnostics[0].place
    assert place is not None and place.line == line


def test_guarded_host_code_compiles() -> None:
    compile_cuda(HELLO + "#ifndef __CUDACC_RTC__\nint main() { return 0; }\n#endif\n", name="host.cu")


@pytest.mark.parametrize("option", ["-I/usr", "-DX=1", "--include-path=/usr", "-arch=sm_80", "-G"])
def test_options_that_are_parameters_are_refused(option: str) -> None:
    with pytest.raises(UsageError, match="use "):
        compile_cuda(HELLO, name="h.cu", options=[option])


def test_misuse() -> None:
    with pytest.raises(UsageError, match="sm_89"):
        compile_cuda(HELLO, name="h.cu", arch="ada")
    with pytest.raises(UsageError, match="name="):
        compile_cuda(HELLO)
    with pytest.raises(UsageError, match="cannot read"):
        compile_cuda("absent.cu")
