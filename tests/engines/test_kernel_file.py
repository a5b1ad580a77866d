"""Launch lines: what they declare, what is refused, and how a run uses them."""

import textwrap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.core.errors import CompileError, LaunchError, UsageError
from weft.core.records import Binary
from weft.engines import compile_file
from weft.engines.expressions import Expression
from weft.engines.kernel_file import KernelFile, NoLaunchLines
from weft.toolchain.cuda import compile_cuda

SCALE = """
// weft: sizes   N=100
// weft: define  TWICE = 0
// weft: in      x : f32[N] = arange
// weft: out     y : f32[N]
// weft: scalar  factor : f32 = 3
// weft: launch  scale(x, y, N, factor)  grid(cdiv(N, 32)) block(32)
__global__ void scale(const float* x, float* y, int n, float factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor * (TWICE ? 2 : 1);
}
"""


@pytest.fixture
def gpu() -> weft.VirtualGPU:
    return weft.VirtualGPU(threads=1)


def written(folder: Path, text: str, **options: object) -> KernelFile:
    file = folder / "kernel.cu"
    file.write_text(textwrap.dedent(text).lstrip("\n"))
    return weft.load(file, **options)  # type: ignore[arg-type]


# -- formulas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 * 4", 14),
        ("-7 // 2", -4),
        ("S % 64", 52),
        ("2 ** 10", 1024),
        ("cdiv(S, 64)", 8),
        ("min(S, 64, D)", 32),
        ("max(1, 2)", 2),
        ("1 / sqrt(D * 2)", 0.125),
        ("ceil(S / 64)", 8),
        ("log2(D)", 5.0),
        ("S > D == 1", False),
        ("0 < D < S", True),
    ],
)
def test_arithmetic(text: str, expected: float) -> None:
    value = Expression.parse(text).value({"S": 500, "D": 32})
    assert value == expected and type(value) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')", "S.bit_length()", "[1]", "x[0]", "'a'", "lambda: 1", "1 if S else 2", "S and D",
        "not S", "open(S)", "min()", "min(*S)", "cdiv(S, b=2)", "~S", "S << 2", "f'{S}'", "True", "1j", "",
        "1 +", "(S := 3)", "S; D",
    ],
)  # fmt: skip
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Expression.parse(text).value({"S": 1, "D": 2, "x": 3})


@pytest.mark.parametrize("text", ["1 // 0", "10 ** 10 ** 10", "2 ** 64", "sqrt(0 - 1)", "(0 - 1) ** 0.5", "1e308 * 10"])
def test_a_formula_without_a_value(text: str) -> None:
    with pytest.raises(UsageError):
        Expression.parse(text).value({})


# -- runs --------------------------------------------------------------------------------------------------------


def test_a_run_generates_arrays_that_are_not_passed(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    run, arrays = written(tmp_path, SCALE).run(gpu)
    assert run.clean and run.entries == ("scale",) and run.instructions > 0
    assert run.defines == {"TWICE": "0"}
    assert np.array_equal(arrays["x"], np.arange(100)) and np.array_equal(arrays["y"], 3.0 * np.arange(100))


def test_sizes_and_defines_of_the_caller(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    run, arrays = written(tmp_path, SCALE, defines={"TWICE": "1"}).run(gpu, sizes={"N": 5})
    assert run.defines == {"TWICE": "1"}
    assert arrays["y"].tolist() == [0, 6, 12, 18, 24]


def test_given_arrays_decide_the_sizes_and_outputs_change_in_place(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    x, y = np.array([1, 2, 4], np.float32), np.zeros(3, np.float32)
    _, arrays = written(tmp_path, SCALE).run(gpu, {"x": x, "y": y})
    assert y.tolist() == [3, 6, 12] and np.shares_memory(arrays["y"], y)
    assert x.tolist() == [1, 2, 4]


def test_an_output_that_is_not_written_is_nan(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    file = SCALE.replace("if (i < n)", "if (i < n - 1)")
    y = np.zeros(100, np.float32)
    _, arrays = written(tmp_path, file).run(gpu, {"y": y})
    assert np.isnan(y[99]) and not np.isnan(arrays["y"][:99]).any()


def test_the_seed_decides_and_every_array_has_its_own_stream(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    text = SCALE.replace("x : f32[N] = arange", "x, z : f32[N] = normal")
    kernel = written(tmp_path, text)
    first, again, other = (kernel.run(gpu, seed=seed).arrays for seed in (1, 1, 2))
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"]) and not np.array_equal(first["x"], first["z"])
    alone = written(tmp_path, SCALE.replace("= arange", "= normal")).run(gpu, seed=1).arrays
    assert np.array_equal(alone["x"], first["x"])


SPLIT = """
// weft: sizes      N=100 SPLITS=3
// weft: in         x : f32[SPLITS, N] = ones
// weft: workspace  part : f32[SPLITS]
// weft: inout      total : f32[1] = zeros
// weft: scalar     scale : f32 = 1 / 4
// weft: launch     partial<{N}>(x, part) grid(SPLITS) block(1)
// weft: launch     reduce({part, total, SPLITS, scale})
// weft:            grid(1) block(1)
struct Reduce { const float* part; float* total; int splits; float scale; };
template <int N> __global__ void partial(const float* x, float* part) {
    float sum = 0.0f;
    for (int i = 0; i < N; ++i) sum += x[blockIdx.x * N + i];
    part[blockIdx.x] = sum;
}
__global__ void reduce(Reduce r) {
    for (int i = 0; i < r.splits; ++i) *r.total += r.part[i] * r.scale;
}
"""


def test_a_sequence_with_a_workspace_a_template_and_a_struct(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    kernel = written(tmp_path, SPLIT)
    run, arrays = kernel.run(gpu)
    assert run.entries == ("partial<100>", "reduce")
    assert arrays["part"].tolist() == [100, 100, 100] and arrays["total"].tolist() == [75]
    assert run.counters["inst_executed"] == run.instructions
    x = np.full((5, 8), 2, np.float32)
    run, arrays = kernel.run(gpu, {"x": x})
    assert run.entries == ("partial<8>", "reduce") and arrays["total"].tolist() == [20]


def test_a_launch_is_skipped_where_its_condition_is_false(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    kernel = written(tmp_path, SPLIT.replace("grid(1) block(1)", "grid(1) block(1) when(SPLITS > 1)"))
    assert kernel.run(gpu).run.entries == ("partial<100>", "reduce")
    run, arrays = kernel.run(gpu, sizes={"SPLITS": 1})
    assert run.entries == ("partial<100>",) and arrays["total"].tolist() == [0]
    assert kernel.grids(sizes={"SPLITS": 1}) == ((1, 1, 1),)
    nothing = written(tmp_path, SPLIT.replace("block(1)", "block(1) when(N < 0)"))
    with pytest.raises(UsageError, match="nothing to launch"):
        nothing.run(gpu)


def test_parts_of_a_kernel_file(tmp_path: Path) -> None:
    kernel = written(tmp_path, SPLIT)
    assert kernel.sizes == {"N": 100, "SPLITS": 3}
    assert [line.name for line in kernel.arrays] == ["x", "total"]
    assert [line.name for line in kernel.outputs] == ["total"]
    assert [line.name for line in kernel.workspaces] == ["part"]
    assert [line.name for line in kernel.scalars] == ["scale"]
    assert [launch.name for launch in kernel.launches] == ["partial", "reduce"]


def test_findings_of_a_launch_end_the_sequence(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    text = SPLIT.replace("part[blockIdx.x] = sum;", "part[blockIdx.x] = sum;\n    assert(blockIdx.x != 1);")
    run, _ = written(tmp_path, text).run(gpu)
    assert run.entries == ("partial<100>",)
    (finding,) = run.findings
    line = textwrap.dedent(text).lstrip("\n").splitlines().index("    assert(blockIdx.x != 1);") + 1
    assert finding.place and (finding.place.file, finding.place.line) == (str(tmp_path / "kernel.cu"), line)


def test_a_constant_is_set_before_the_first_launch(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    kernel = written(
        tmp_path,
        """
        // weft: sizes N=4
        // weft: constant table : f32[N] = arange
        // weft: out y : f32[N]
        // weft: launch copy(y) grid(1) block(N)
        __constant__ float table[4];
        __global__ void copy(float* y) { y[threadIdx.x] = table[threadIdx.x]; }
        """,
    )
    assert kernel.run(gpu).arrays["y"].tolist() == [0, 1, 2, 3]
    assert kernel.run(gpu, {"table": np.full(4, 9, np.float32)}).arrays["y"].tolist() == [9, 9, 9, 9]
    assert [line.name for line in kernel.constants] == ["table"]


def test_text_defines_choose_a_type(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    text = """
        // weft: define ELEMENT = "float"
        // weft: define WIDE = 1 < 2
        // weft: inout y : f64[1] = zeros
        // weft: launch size<{ELEMENT}, {WIDE}, {2 > 3}>(y) grid(1) block(1)
        template <typename U, bool A, bool B> __global__ void size(double* y) { *y = sizeof(ELEMENT) + sizeof(U) + A; }
        """
    assert written(tmp_path, text).run(gpu).arrays["y"].tolist() == [9]
    run, arrays = written(tmp_path, text, defines={"ELEMENT": "double"}).run(gpu)
    assert run.entries == ("size<double, true, false>",) and arrays["y"].tolist() == [17]


ELEMENT = """
// weft: define  ELEMENT = "half"
// weft: in      x : ELEMENT[4] = arange
// weft: out     y : ELEMENT[4]
// weft: scalar  half_one : ELEMENT = 0.5
// weft: launch  add(x, y, half_one) grid(1) block(4)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void add(const ELEMENT* x, ELEMENT* y, ELEMENT half_one) {
    y[threadIdx.x] = ELEMENT(float(x[threadIdx.x]) + float(half_one));
}
"""


@pytest.mark.parametrize(
    ("chosen", "dtype"),
    [(None, np.float16), ("float", np.float32), ("double", np.float64), ("__nv_bfloat16", ml_dtypes.bfloat16)],
)
def test_a_define_chooses_an_element_type(
    tmp_path: Path, gpu: weft.VirtualGPU, chosen: str | None, dtype: object
) -> None:
    kernel = written(tmp_path, ELEMENT, defines={"ELEMENT": chosen} if chosen else {})
    run, arrays = kernel.run(gpu)
    assert run.clean and arrays["x"].dtype == arrays["y"].dtype == dtype
    assert arrays["y"].tolist() == [0.5, 1.5, 2.5, 3.5]
    with pytest.raises(UsageError, match="array x is int32, declared"):
        kernel.run(gpu, {"x": np.zeros(4, np.int32)})


@pytest.mark.parametrize(
    ("text", "defines", "message"),
    [
        (ELEMENT, {"ELEMENT": "float4"}, r"kernel\.cu:2: ELEMENT is 'float4', neither a supported C\+\+ type"),
        (ELEMENT.replace("x : ELEMENT", "x : OTHER"), {}, r"kernel\.cu:2: 'OTHER' is not a type; there are f16"),
        (ELEMENT.replace('"half"', "16"), {}, r"kernel\.cu:2: 'ELEMENT' is not a type"),
    ],
)
def test_a_define_that_chooses_no_type(tmp_path: Path, text: str, defines: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        written(tmp_path, text, defines=defines)


def test_small_types(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    kernel = written(
        tmp_path,
        """
        // weft: sizes N=8
        // weft: in h : bf16[N] = arange
        // weft: in e : e4m3[N] = ones
        // weft: in i : i8[N] = uniform(-3, 0)
        // weft: in b : bool[N] = ones
        // weft: out y : f32[N]
        // weft: scalar bias : f16 = 0.5
        // weft: scalar flag : bool = N == 8
        // weft: launch mix(h, e, i, b, y, bias, flag) grid(1) block(N)
        #include <cuda_bf16.h>
        #include <cuda_fp16.h>
        #include <cuda_fp8.h>
        __global__ void mix(const __nv_bfloat16* h, const __nv_fp8_e4m3* e, const signed char* i, const bool* b,
                            float* y, half bias, bool flag) {
            const int t = threadIdx.x;
            y[t] = __bfloat162float(h[t]) + float(e[t]) + i[t] * 100 + (b[t] ? 1000 : 0) + __half2float(bias) + flag;
        }
        """,
    )
    run, arrays = kernel.run(gpu)
    assert run.clean and arrays["h"].dtype == ml_dtypes.bfloat16
    assert set(arrays["i"].tolist()) <= {-3, -2, -1}
    assert arrays["y"].tolist() == [t + 1 + 100 * int(i) + 1000 + 0.5 + 1 for t, i in enumerate(arrays["i"])]
    bits = np.array([0x4000] * 8, np.uint16)  # 2.0
    assert kernel.run(gpu, {"h": bits, "i": np.zeros(8, np.int8)}).arrays["y"].tolist() == [1004.5] * 8


def test_torch_tensors(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.tensor([1.0, 2.0]), torch.zeros(2)
    written(tmp_path, SCALE).run(gpu, {"x": x, "y": y})
    assert y.tolist() == [3, 6]


def test_a_changed_input_is_a_finding(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    text = SCALE.replace("const float* x", "float* x").replace("y[i] =", "y[i] = x[7] =")
    run, _ = written(tmp_path, text).run(gpu)
    (finding,) = run.findings
    assert finding.code == "K501" and "first at element 7" in finding.message
    assert finding.place and finding.place.line == 3


def test_a_read_only_input_is_accepted(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    x = np.arange(6, dtype=np.float32)[::2]
    x.flags.writeable = False
    assert written(tmp_path, SCALE).run(gpu, {"x": x}).arrays["y"].tolist() == [0, 6, 12]


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sizes   N=100", "sizes   N", r"kernel\.cu:1: 'N' must have the form S=512"),
        ("sizes   N=100", "size    N=100", r"kernel\.cu:1: 'size' .did you mean sizes.*: a line starts with sizes, in"),
        ("sizes   N=100", "sizes   N=100 N=3", r"kernel\.cu:1: N is declared twice"),
        ("f32[N] = arange", "f33[N] = arange", r"kernel\.cu:3: 'f33' is not a type .did you mean f32..; there are"),
        ("f32[N] = arange", "f32[M] = arange", r"kernel\.cu:3: 'M' is not known here; known names: N, TWICE, factor"),
        ("f32[N] = arange", "f32 = arange", r"kernel\.cu:3: .* must have the form"),
        ("= arange", "= random", r"kernel\.cu:3: 'random' is not an initialiser .*; there are normal"),
        ("y : f32[N]", "y : f32[N] = zeros", r"kernel\.cu:4: an array of role out starts as 0xFF"),
        ("y : f32[N]", "x : f32[N]", r"kernel\.cu:4: x is declared twice"),
        ("y : f32[N]", "min : f32[N]", r"kernel\.cu:4: min is the name of a function"),
        ("f32 = 3", "f32 = exec(3)", r"kernel\.cu:5: .* is not allowed in a formula"),
        ("(x, y, N, factor)", "(x, y, M, factor)", r"kernel\.cu:6: 'M' is not known here"),
        ("(x, y, N, factor)", "(x + 1, y, N, factor)", r"kernel\.cu:6: 'x \+ 1' computes with the array x"),
        ("(x, y, N, factor)", "(x, y, N, factor", r"kernel\.cu:6: .* a parenthesis is not closed"),
        ("block(32)", "", r"kernel\.cu:6: the launch has no block"),
        ("block(32)", "block(32) block(32)", r"kernel\.cu:6: block is given twice"),
        ("block(32)", "block(32) stream(0)", r"kernel\.cu:6: 'stream\(0\)': only grid"),
        ("block(32)", "block(1, 2, 3, 4)", r"kernel\.cu:6: block takes one to three sizes; 4 are given"),
        ("block(32)", "block(32) when(M)", r"kernel\.cu:6: 'M' is not known here"),
        ("// weft: sizes   N=100", "// weft: grid(1)", r"kernel\.cu:1: grid must follow a launch line"),
    ],
)  # fmt: skip
def test_errors_in_launch_lines_name_their_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SCALE
    with pytest.raises(UsageError, match=message):
        written(tmp_path, SCALE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(x, y, N, factor)", "(x, y, N)", r"kernel\.cu:6: the kernel takes 4 arguments; its launch line passes 3"),
        ("(x, y, N, factor)", "(x, y, factor, N)", r"kernel\.cu:6: factor is declared float32; parameter 3 is u32"),
        ("(x, y, N, factor)", "(x, y, N / 3, factor)", r"kernel\.cu:6: N / 3 is 33.3.*; parameter 3 is an integer"),
        ("(x, y, N, factor)", "(x, y, y, factor)", r"kernel\.cu:6: y is an array; parameter 3 is u32"),
        ("(x, y, N, factor)", "({x}, y, N, factor)", r"kernel\.cu:6: argument 1 is a struct"),
        ("(x, y, N, factor)", "(x, y, 2 ** 33, factor)", r"kernel\.cu:6: .* does not fit parameter 3"),
        ("grid(cdiv(N, 32))", "grid(N / 32)", r"kernel\.cu:6: grid: 'N / 32' is 3.125, not an integer; use //, cdiv"),
        ("grid(cdiv(N, 32))", "grid(0)", r"kernel\.cu:6: .*at least 1"),
        ("block(32)", "block(2048)", r"kernel\.cu:6: .*2048"),
        ("block(32)", "block(32) shared(49156)", r"kernel\.cu:6: scale needs 49156 .* add opt_in_shared"),
        ("block(32)", "block(32) shared(101377) opt_in_shared", r"kernel\.cu:6: .*sm_89 has 101376 per CTA"),
    ],
)  # fmt: skip
def test_refused_launches_name_their_line(
    tmp_path: Path, gpu: weft.VirtualGPU, old: str, new: str, message: str
) -> None:
    assert old in SCALE
    with pytest.raises((LaunchError, UsageError), match=message):
        written(tmp_path, SCALE.replace(old, new)).run(gpu)


def test_shared_memory_up_to_48_kb_needs_no_opt_in(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    assert written(tmp_path, SCALE.replace("block(32)", "block(32) shared(48 * 1024)")).run(gpu).run.clean
    opted = SCALE.replace("block(32)", "block(32) shared(64 * 1024) opt_in_shared")
    assert written(tmp_path, opted).run(gpu).run.clean


def test_a_missing_kernel_is_an_error_at_its_line(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    with pytest.raises(CompileError, match=r'kernel\.cu:6: skale: identifier "skale" is undefined') as caught:
        written(tmp_path, SCALE.replace("launch  scale", "launch  skale")).run(gpu)
    assert [d.place.line for d in caught.value.diagnostics if d.place] == [6]


@pytest.mark.parametrize(
    ("arrays", "sizes", "message"),
    [
        ({"z": np.zeros(1, np.float32)}, {}, "'z' is not an array of this kernel; it has x, y"),
        ({}, {"M": 3}, "'M' is not a size of this kernel; it has N"),
        ({"x": np.zeros(3, np.float32)}, {"N": 4}, "N is 4 from the caller and 3 from array x"),
        ({"x": np.zeros(3, np.float32), "y": np.zeros(4, np.float32)}, {}, "N is 3 from array x and 4 from array y"),
        ({"x": np.zeros((3, 3), np.float32)}, {}, r"array x has the shape \(3, 3\), declared \[N\]"),
        ({"x": np.zeros(3)}, {}, r"array x is float64, declared f32 \(float32\)"),
        ({"x": [1.0, 2.0]}, {}, "array x is a list; give a NumPy array or a CPU tensor"),
        ({"y": np.zeros(6, np.float32)[::2]}, {}, "array y is not C-contiguous"),
        ({"y": np.frombuffer(bytes(12), np.float32)}, {}, "array y is read-only"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, gpu: weft.VirtualGPU, arrays: dict[str, object], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises((UsageError, LaunchError), match=message):
        written(tmp_path, SCALE).run(gpu, arrays, sizes=sizes)


def test_an_output_that_is_an_input_too_is_refused_before_it_is_poisoned(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    x = np.ones(4, np.float32)
    with pytest.raises(UsageError, match="y and x share memory; declare the array once, as inout"):
        written(tmp_path, SCALE).run(gpu, {"x": x, "y": x})
    assert x.tolist() == [1, 1, 1, 1]


def test_an_input_without_an_initialiser_must_be_given(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    kernel = written(tmp_path, SCALE.replace(" = arange", ""))
    with pytest.raises(UsageError, match=r"kernel\.cu:3: array x was not given"):
        kernel.run(gpu)
    assert kernel.run(gpu, {"x": np.ones(2, np.float32)}).arrays["y"].tolist() == [3, 3]


def test_another_architecture(tmp_path: Path) -> None:
    kernel = written(tmp_path, SCALE, arch="sm_80")
    with pytest.raises(UsageError, match="was loaded for sm_80; this GPU is sm_89"):
        kernel.run(weft.VirtualGPU("sm_89"))
    assert kernel.run(weft.VirtualGPU("sm_80")).run.clean


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*gone\.cu"):
        weft.load(tmp_path / "gone.cu")


def test_a_file_without_launch_lines_gets_a_draft_that_runs(tmp_path: Path, gpu: weft.VirtualGPU) -> None:
    text = """
        __global__ void __launch_bounds__(128) scale(const float* __restrict__ x, float *y, int n, float factor) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = x[i] * factor;
        }
        """
    with pytest.raises(NoLaunchLines, match="has no `// weft: launch` line") as caught:
        written(tmp_path, text)
    run, arrays = written(tmp_path, caught.value.draft + textwrap.dedent(text)).run(gpu)
    assert run.clean and np.array_equal(arrays["y"], arrays["x"])


ATTENTION = """
    #include <cuda_fp16.h>
    __global__ void attend(const half* Q, const half* K, const half* V, half* O, float sm_scale, int N, int d) {
        const int row = blockIdx.x * blockDim.x + threadIdx.x, head = HEAD;
        const float product = sm_scale * __half2float(Q[0]) * __half2float(K[0]) * __half2float(V[0]);
        if (row < N && d > 0) O[(head * N + row) * d] = __float2half(product);
    }
"""


@pytest.mark.parametrize(
    ("head", "batch", "grid"),
    [
        ("blockIdx.y", "B, H, ", "grid(cdiv(N, ???), B * H)"),
        ("blockIdx.z * gridDim.y + blockIdx.y", "B, H, ", "grid(cdiv(N, ???), H, B)"),
        ("0", "", "grid(???)"),
    ],
)
def test_the_draft_of_attention_has_its_shapes(head: str, batch: str, grid: str, tmp_path: Path) -> None:
    """Sizes that no parameter has come from the grid; what cannot be known is left open."""
    text = textwrap.dedent(ATTENTION).replace("HEAD", head)
    with pytest.raises(NoLaunchLines) as caught:
        written(tmp_path, text)
    draft = [" ".join(line.split()[2:]) for line in caught.value.draft.splitlines()]
    assert draft == [
        f"sizes {'B=2 H=2 ' if batch else ''}N=33 d=64",
        *(f"in {name} : f16[{batch}N, d] = normal" for name in "QKV"),
        f"out O : f16[{batch}N, d]",
        "scalar sm_scale : f32 = 1 / sqrt(d)",
        f"launch attend(Q, K, V, O, sm_scale, N, d) {grid} block(???)",
    ]
    with pytest.raises(UsageError, match=r"replace each \?\?\?"):
        written(tmp_path, caught.value.draft + text)


def test_the_draft_of_a_template_leaves_its_arguments_open(tmp_path: Path) -> None:
    text = "template <int D>\n__global__ void k(const half* q, half* o, int S) {}\n"
    with pytest.raises(NoLaunchLines) as caught:
        written(tmp_path, "#include <cuda_fp16.h>\n" + text)
    draft = caught.value.draft.splitlines()
    assert "// weft: in        q : f16[S] = normal" in draft and "// weft: out       o : f16[S]" in draft
    assert "// weft: launch    k<...>(q, o, S) grid(cdiv(S, 128)) block(128)" in draft


TYPED = """// weft: sizes N=4
// weft: define ELEMENT = "float"
// weft: define STEP = 1
// weft: out y : ELEMENT[N]
// weft: launch fill<{N}>(y) grid(1) block(N)
template <int N> __global__ void fill(ELEMENT* y) { y[threadIdx.x] = ELEMENT(STEP * N); }
"""


def test_a_file_is_read_once_and_compiled_once_per_macros_and_template_arguments(
    tmp_path: Path, gpu: weft.VirtualGPU, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def counting(*args: Any, **options: Any) -> Binary:
        compiled.append((options["defines"]["ELEMENT"], options["defines"]["STEP"], *options["entries"]))
        return compile_cuda(*args, **options)

    monkeypatch.setattr(compile_file, "compile_cuda", counting)
    kernel = written(tmp_path, TYPED)
    (tmp_path / "kernel.cu").unlink()
    for _ in range(2):
        for element, step, n, dtype in [("float", 1, 4, "f4"), ("int", 3, 4, "i4"), ("int", 3, 6, "i4")]:
            chosen = kernel.with_macros({"STEP": str(step), "ELEMENT": element})
            assert chosen.numbers(sizes={"N": n}) == {"ELEMENT": element, "STEP": str(step)}
            run, arrays = chosen.run(gpu, sizes={"N": n})
            assert run.clean and arrays["y"].dtype == dtype and arrays["y"].tolist() == [step * n] * n
    assert compiled == [("float", "1", "fill<4>"), ("int", "3", "fill<4>"), ("int", "3", "fill<6>")]
    assert kernel.lines.arrays[0].element == "f32", "the kernel itself keeps its own macros"


def test_macros_are_refused_for_compiled_code(tmp_path: Path) -> None:
    source = written(tmp_path, TYPED).compile().ptx
    (tmp_path / "kernel.ptx").write_text(source)
    lines = "".join(f"{line}\n" for line in TYPED.splitlines() if line.startswith("// weft:"))
    (tmp_path / "kernel.launch").write_text(lines)
    kernel = weft.load(tmp_path / "kernel.ptx")
    assert kernel.with_macros({"STEP": "1"}).run(weft.VirtualGPU()).arrays["y"].tolist() == [4] * 4
    with pytest.raises(UsageError, match="STEP is compiled with 1"):
        kernel.with_macros({"STEP": "2"})


def test_bound_launches_are_values_that_any_engine_runs(tmp_path: Path) -> None:
    bound = written(tmp_path, SPLIT).bind()
    assert [launch.entry for launch in bound.launches] == ["partial<100>", "reduce"]
    assert bound.launches[0].names[0] in bound.arrays
    assert bound.uninitialised == ("part",)
    run, arrays = bound.run(weft.VirtualGPU(), max_steps=1 << 20)
    assert run.clean and arrays is bound.arrays and arrays["total"].tolist() == [75]


def test_a_gpu_line_chooses_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(
        "// weft: gpu    a100\n// weft: in     x : f32[4] = ones\n// weft: out    y : f32[4]\n"
        "// weft: launch twice(x,\n// weft:               y, 2.0)\n// weft:        grid(1) block(4)\n"
        'extern "C" __global__ void twice(const float* x, float* y, float by) '
        "{ y[threadIdx.x] = by * x[threadIdx.x]; }\n"
    )
    kernel = weft.load(path)
    assert (kernel.gpu, kernel.arch) == ("a100", "sm_80")
    run, arrays = kernel.run(weft.VirtualGPU(kernel.gpu))
    assert run.clean and arrays["y"].tolist() == [2.0] * 4
    with pytest.raises(UsageError, match="is for sm_80, not for l4: choose one of a100"):
        weft.load(path, gpu="l4")
    path.write_text("// weft: gpu a100\n// weft: gpu l4\n")
    with pytest.raises(UsageError, match=r"kernel\.cu:2: gpu is given twice"):
        weft.load(path)
    path.write_text("// weft: gpu a1000\n")
    with pytest.raises(UsageError, match=r"unknown GPU 'a1000'.* a100"):
        weft.load(path)
