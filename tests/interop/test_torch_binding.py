"""The translation unit for PyTorch: NVRTC compiles all of it, with PyTorch's declarations in place of its headers."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import weft
from weft.core.errors import CompileError, UsageError
from weft.core.records import Binary
from weft.engines.kernel_file import load
from weft.interop.torch_binding import UNDEFINE, instances, torch_unit
from weft.kernels.ladder import RUNGS

STUBS = Path(__file__).parent / "torch_stub"
LAUNCH = "kernel<<<grid, block, shared_bytes, stream>>>("

TWO_KERNELS = """\
// weft: sizes     N=100 M=3
// weft: define    TILE = 64
// weft: in        x    : f32[M, N] = normal
// weft: workspace part : f32[M, cdiv(N, TILE)]
// weft: out       y    : f32[M]
// weft: scalar    gain : f32 = 0.5
// weft: launch    sum_tiles<{M}, TILE>(x, part, N) grid(cdiv(N, TILE), M) block(TILE) shared(TILE * 4) opt_in_shared
// weft: launch    sum_rows(part, y, cdiv(N, TILE), gain) grid(M) block(1)

template <int M, int SIZE>
__global__ void sum_tiles(const float* x, float* part, int n) {
    extern __shared__ float tile[];
    const int i = blockIdx.x * SIZE + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[blockIdx.y * n + i] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int j = 0; j < SIZE; ++j) sum += tile[j];
        part[blockIdx.y * gridDim.x + blockIdx.x] = sum;
    }
}

__global__ void sum_rows(const float* part, float* y, int tiles, float gain) {
    float sum = 0.0f;
    for (int j = 0; j < tiles; ++j) sum += part[blockIdx.x * tiles + j];
    y[blockIdx.x] = gain * sum;
}
"""


def compile_unit(text: str, entries: Sequence[str]) -> Binary:
    """Compile with the macros of PyTorch's builder. `<<<…>>>` becomes an object that converts the same arguments."""
    assert LAUNCH in text
    checkable = text.replace(LAUNCH, "Launch(kernel, grid, block, shared_bytes, stream)(")
    macros = {"TORCH_EXTENSION_NAME": "exported", **dict.fromkeys(UNDEFINE, "1")}
    return weft.compile_cuda(
        checkable, name="forward.cu", include_dirs=[STUBS], entries=entries, defines=macros, options=["-default-device"]
    )


def two_kernels(folder: Path, text: str = TWO_KERNELS) -> str:
    (folder / "two.cu").write_text(text)
    return torch_unit(load(folder / "two.cu"), [{"N": 100, "M": 3}, {"N": 9, "M": 5}], notes=["A head."], checks="")


@pytest.mark.parametrize("name, kernel", [("fp8_wmma", "fp8_wmma_attention"), ("fp8_scalar", "fp8_scalar")])
def test_the_extension_of_a_rung_compiles(name: str, kernel: str) -> None:
    sizes = [{"B": 1, "HQ": 2, "HKV": 1, "SQ": 65, "SKV": 70, "D": d} for d in (64, 80)]
    text = torch_unit(load(RUNGS[name].path), sizes, notes=["A head."], checks="")
    assert set(compile_unit(text, [f"{kernel}<64>", f"{kernel}<80>"]).entries) == {f"{kernel}<64>", f"{kernel}<80>"}
    assert RUNGS[name].path.read_text().rstrip() in text  # the kernel with its header, untouched


def test_the_macros_of_pytorch_would_break_the_kernel() -> None:
    """The reason why the file undefines them first."""
    text = torch_unit(
        load(RUNGS["fp8_wmma"].path), [dict(B=1, HQ=1, HKV=1, SQ=1, SKV=1, D=64)], notes=["A head."], checks=""
    )
    with pytest.raises(CompileError):
        compile_unit(re.sub("#undef .*", "", text), ["fp8_wmma_attention<64>"])


def test_two_launches_workspace_shared_memory_and_choice_of_template(tmp_path: Path) -> None:
    text = two_kernels(tmp_path)
    compile_unit(text, ["sum_tiles<3, 64>", "sum_tiles<5, 64>", "sum_rows"])
    assert "torch::Tensor part = torch::empty({M, cdiv(N, TILE)}, x.options().dtype(torch::kFloat));" in text
    opt_in = "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes))"
    assert text.count(f"C10_CUDA_CHECK({opt_in});") == 1
    assert "const int64_t shared_bytes = TILE * 4;" in text
    assert "if (M == 3) {\n        launch_1(sum_tiles<3, TILE>);" in text
    assert text.count("C10_CUDA_KERNEL_LAUNCH_CHECK();") == 2
    assert text.index("launch_1(") < text.index("launch_2(") < text.index("return y;")


def test_a_conditional_launch_is_in_an_if(tmp_path: Path) -> None:
    text = two_kernels(tmp_path, TWO_KERNELS.replace("grid(M) block(1)", "grid(M) block(1) when(N > TILE)"))
    compile_unit(text, ["sum_tiles<3, 64>", "sum_tiles<5, 64>", "sum_rows"])
    assert text.count("    if (N > TILE) {\n") == 1
    assert text.index("if (N > TILE) {") < text.index("launch_2(sum_rows);") < text.index("return y;")


def test_wrong_types_in_the_host_code_are_errors(tmp_path: Path) -> None:
    """The stub's checks detect errors: an argument of another type, an argument too few."""
    text = two_kernels(tmp_path)
    for old, new in (("static_cast<float*>(part", "static_cast<half*>(part"), ("            gain);", "            );")):
        assert old in text
        with pytest.raises(CompileError):
            compile_unit(text.replace(old, new), ["sum_rows"])


def test_one_instance_per_choice_of_sizes(tmp_path: Path) -> None:
    (tmp_path / "two.cu").write_text(TWO_KERNELS)
    shapes = [{"N": n, "M": m} for n in (1, 2) for m in (5, 3)]
    found = instances(load(tmp_path / "two.cu"), shapes)
    assert [each.sizes for each in found] == [{"M": 3}, {"M": 5}]
    assert found[0].callees == ("sum_tiles<3, TILE>", "sum_rows")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("out       y    :", "inout     y    :", "two.cu:5: no export to PyTorch for an array of role inout"),
        ("f32[M, N] = normal", "f64[M, N] = normal", "two.cu:3: no export to PyTorch for f64"),
        ("gain : f32", "gain : f16", "two.cu:6: no export to PyTorch for a scalar of type f16"),
        ("TILE = 64", "TILE = N", "TILE depends on the sizes; export one shape at a time"),
        ("f32[M, N] =", "f32[M * 1, N] =", "no input has M as a separate dimension"),
        ("(part, y, cdiv(N, TILE), gain)", "({part, y}, cdiv(N, TILE), gain)", "two.cu:8: no export"),
        ("in        x    ", "workspace x    ", "two.cu: no `in` array"),
    ],
)
def test_lines_without_an_export_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    changed = TWO_KERNELS.replace(old, new, 1)
    changed = changed.replace(" = normal", "") if "workspace x" in changed else changed
    with pytest.raises(UsageError, match=re.escape(message)):
        two_kernels(tmp_path, changed)
