"""Torch extensions in many styles: imported, run on the virtual GPU, compared with NumPy; or refused with the line."""

import random
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import weft
from weft.core.errors import Unsupported, UsageError, WeftError
from weft.interop.torch_extension import import_file
from weft.interop.torch_extension.cpp_tokens import read_tokens
from weft.interop.torch_extension.import_file import Imported, import_torch
from weft.probes.tools import watch_for

Array = npt.NDArray[Any]
FILES = Path(__file__).parent / "torch_files"


def line_of(file: str, text: str) -> int:
    """Return the line of the only occurrence of the text in the file."""
    (line,) = [number for number, row in enumerate((FILES / file).read_text().splitlines(), 1) if text in row]
    return line


def run(found: Imported, tmp_path: Path, **given: Any) -> tuple[Any, dict[str, Array]]:
    file = tmp_path / "imported.cu"
    file.write_text(found.text)
    defines = given.pop("defines", {})
    kernel = weft.load(file, defines=defines)
    result = kernel.run(weft.VirtualGPU(), watch=watch_for(["all"]), **given)
    return result.run, {name: array.astype(np.float64) for name, array in result.arrays.items()}


def imported(file: str, **options: Any) -> Imported:
    found = import_torch(str(FILES / file), **options)
    assert found.problems == (), found.problems
    return found


@pytest.mark.parametrize("element", ["float", "half"])
def test_dispatch_macro(element: str, tmp_path: Path) -> None:
    found = imported("gelu_dispatch.cu")
    assert "torch" not in found.text.replace("torch_files", "") and "PYBIND" not in found.text
    ran, arrays = run(found, tmp_path, defines={"ELEMENT": element}, sizes={"size": 777})
    x = arrays["input"]
    expected = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
    assert ran.clean
    np.testing.assert_allclose(arrays["output"], expected, rtol=2e-3 if element == "half" else 1e-5, atol=2e-5)


def test_dim3_cdiv_and_shared_memory(tmp_path: Path) -> None:
    found = imported("softmax_rows.cu")
    assert found.function == "softmax_forward"
    ran, arrays = run(found, tmp_path, sizes={"rows": 11, "cols": 100}, defines={"ROWS_PER_BLOCK": "2"})
    weights = np.exp(arrays["x"])
    assert ran.clean and ran.entries == ("softmax::rows_kernel",)
    np.testing.assert_allclose(arrays["y"], weights / weights.sum(1, keepdims=True), rtol=1e-5)


def test_two_kernels_and_a_buffer_between_them(tmp_path: Path) -> None:
    found = imported("split_sum.cu")
    ran, arrays = run(found, tmp_path, sizes={"rows": 7, "cols": 1500})
    assert ran.clean and ran.entries == ("partial_sums", "merge_sums")
    np.testing.assert_allclose(arrays["y"], arrays["x"].sum(1), rtol=1e-4, atol=1e-4)
    assert any(line.startswith("// weft: workspace part : f32[rows, 8]") for line in found.lines)


def test_switch_over_template_arguments_and_opt_in_shared_memory(tmp_path: Path) -> None:
    head_dim = 64
    found = imported("attention_optin.cu")
    assert "attention_kernel<{D}>" in found.text and "opt_in_shared" in found.text
    ran, arrays = run(found, tmp_path, sizes={"B": 1, "H": 2, "S": 37})
    q, k, v = (arrays[name] for name in "qkv")
    weights = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(head_dim))
    assert ran.clean and ran.entries == (f"attention_kernel<{head_dim}>",)
    np.testing.assert_allclose(arrays["o"], weights @ v / weights.sum(-1, keepdims=True), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(arrays["lse"], np.log(weights.sum(-1)), rtol=1e-4)


@pytest.mark.parametrize("mirror", [0, 1])
def test_namespaces_constants_and_instantiations(mirror: int, tmp_path: Path) -> None:
    found = imported("fir_constant.cu")
    taps = np.array([1, 2, 3, 4, 5], np.float32)
    (symbol,) = re.findall(r"constant +(\w+)", found.text)
    ran, arrays = run(found, tmp_path, arrays={symbol: taps}, sizes={"n": 100, "mirror": mirror})
    padded = np.pad(arrays["x"], 2)
    order = taps[::-1] if mirror else taps
    expected = sum(order[t] * padded[t : t + 100] for t in range(5))
    assert ran.clean and "extern template" not in found.text
    np.testing.assert_allclose(arrays["y"], expected, rtol=1e-5, atol=1e-5)


def test_inline_ptx_and_text_that_looks_like_code(tmp_path: Path) -> None:
    found = imported("inline_ptx.cu")
    assert "c10" not in found.text and "cvt.rn.bf16.f32 a, %1;" in found.text
    ran, arrays = run(found, tmp_path, sizes={"x_0": 130})
    expected = (arrays["x"] * 0.5).astype(ml_dtypes.bfloat16).astype(np.float64)
    assert ran.clean
    np.testing.assert_array_equal(arrays["y"], expected)


def test_what_the_host_does_not_state_is_a_hole_until_it_is_given(tmp_path: Path) -> None:
    found = import_torch(str(FILES / "layer_norm.cu"))
    assert [problem.text.split(":")[0] for problem in found.problems] == [
        "the host never reads the shape of gamma",
        "the host never reads the shape of beta",
    ]
    assert found.text.count("???") == 2
    assert any(note.text.startswith("eps is a parameter of the host function") for note in found.notes)
    with pytest.raises(UsageError, match=r"imported\.cu:4: .*'\?\?\?' is not a formula"):
        run(found, tmp_path)
    full = imported("layer_norm.cu", shapes={"gamma": ["D"], "beta": ["D"]}, values={"eps": "1e-5"})
    ran, arrays = run(full, tmp_path, sizes={"D": 80})
    x = arrays["x"]
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    assert ran.clean
    np.testing.assert_allclose(arrays["y"], normal * arrays["gamma"] + arrays["beta"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("causal", [0, 1])
def test_what_pytorch_computes_becomes_an_input(causal: int, tmp_path: Path) -> None:
    found = imported("torch_between.cu")
    assert {note.line for note in found.notes} == {line_of("torch_between.cu", "torch::matmul")}
    assert any("computed by PyTorch" in note.text for note in found.notes)
    ran, arrays = run(found, tmp_path, sizes={"n": 40, "causal": causal})
    expected = np.tril(arrays["scores"]) if causal else arrays["scores"]
    assert ran.clean
    np.testing.assert_array_equal(arrays["out"], expected)


def test_a_launch_in_a_loop_gets_a_caveat(tmp_path: Path) -> None:
    found = import_torch(str(FILES / "loop_scan.cu"))
    loop = line_of("loop_scan.cu", "for (int shift")
    assert {problem.line for problem in found.problems} == {loop}
    assert "it is launched in a loop" in found.problems[0].text
    with pytest.raises(UsageError):
        run(found, tmp_path)


def test_findings_point_into_the_users_file(tmp_path: Path) -> None:
    found = imported("past_the_end.cu")
    ran, _ = run(found, tmp_path)
    assert {finding.code for finding in ran.findings} == {"M101"}
    expected = (str(FILES / "past_the_end.cu"), line_of("past_the_end.cu", "y[i] = -x[i];"))
    assert {(finding.place.file, finding.place.line) for finding in ran.findings} == {expected}


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("packed_accessor.cu", "const torch::PackedTensorAccessor32", "give the kernel a pointer"),
        ("cooperative.cu", "    cudaLaunchCooperativeKernel(", "launch with <<<"),
    ],
)
def test_unsupported_with_the_line(file: str, text: str, what: str) -> None:
    with pytest.raises(Unsupported, match=rf"{file}:{line_of(file, text)}: .*{what}"):
        import_torch(str(FILES / file))


HEAD = (
    "#include <torch/extension.h>\n__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 0.0f; }\n"
)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("int main() { return 0; }", 1, "no __global__ function"),
        (HEAD, 1, "no host function launches"),
        (HEAD + "void f(at::Tensor x) {\n  other<<<1, 32>>>(x.data_ptr<float>(), 1);\n}", 4, "other is not a kernel"),
        (HEAD + "void f(at::Tensor x) {\n#ifdef A\n  k<<<1, 32>>>(x.data_ptr<float>(), 1);\n#endif\n}", 1, "no host"),
        ("__global__ void k(float* x) {\n  *x = std::vector<int>().size();\n}\nvoid f(float* x) { k<<<1, 1>>>(x); }", 2,
         "does not compile by itself"),
        ("__global__ void k(float* x) {\n  *x = at::abs(*x);\n}\nvoid f(float* x) { k<<<1, 1>>>(x); }", 2, "at::abs"),
    ],
)  # fmt: skip
def test_refusals(text: str, line: int, what: str, tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text(text)
    with pytest.raises(Unsupported, match=rf"a\.cu:{line}: .*{what}"):
        import_torch(str(file))


@pytest.mark.parametrize(
    ("host", "hole", "line"),
    [
        ("  k<<<n, 32>>>(x.data_ptr<float>() + 4, n);", "a pointer into x", 5),
        ("  auto p = x.data_ptr<float>();\n  if (x.is_cuda())\n  k<<<1, 32>>>(p, n);\n  else\n  k<<<2, 32>>>(p, n);",
         "a condition decides", 6),
        ("  k<<<int(std::pow(n, 2)), 32>>>(x.data_ptr<float>(), n);", "cannot be followed", 5),
        ("  k<<<-n / -3, 32>>>(x.data_ptr<float>(), n);", "cannot be followed", 5),
        ("  DISPATCH(n, [&] { k<<<1, 32>>>(x.data_ptr<float>(), n); });", "the macro DISPATCH decides", 5),
    ],
)  # fmt: skip
def test_holes(host: str, hole: str, line: int, tmp_path: Path) -> None:
    """A part that cannot be derived is never guessed: it is a ??? that no run accepts."""
    file = tmp_path / "a.cu"
    file.write_text(f"{HEAD}void f(at::Tensor x) {{\n  int n = x.numel();\n{host}\n}}\n")
    found = import_torch(str(file))
    assert [problem.line for problem in found.problems] == [line] and hole in found.problems[0].text
    with pytest.raises(UsageError):
        run(found, tmp_path)


def test_checks_of_the_host_choose_the_default_sizes(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    body = "int n = x.size(1), m = x.size(0); TORCH_CHECK(n % 48 == 0 && m >= 100, n);"
    body += "k<<<m, n>>>(x.data_ptr<float>(), n);"
    file.write_text(f"{HEAD}void f(at::Tensor x) {{ {body} }}\n")
    found = import_torch(str(file))
    (sizes,) = re.findall(r"sizes +(.*)", found.text)
    chosen = {name: int(value) for name, value in (pair.split("=") for pair in sizes.split())}
    assert chosen["n"] % 48 == 0 and chosen["m"] >= 100 and not found.problems


def test_two_functions_choose_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    functions = "".join(
        f"void {name}(at::Tensor x) {{ k<<<{grid}, 32>>>(x.data_ptr<float>(), x.numel()); }}\n"
        for name, grid in (("forward", 1), ("backward", 2))
    )
    file.write_text(HEAD + functions)
    assert "grid(1)" in import_torch(str(file)).text
    assert "grid(2)" in import_torch(str(file), function="backward").text
    with pytest.raises(UsageError, match="no host function 'sideways'"):
        import_torch(str(file), function="sideways")


def test_mutated_files_give_a_result_or_a_weft_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_file, "_compile", lambda *arguments: None)
    rng, file = random.Random(0), tmp_path / "a.cu"
    ended = {True: 0, False: 0}
    for _ in range(150):
        text = rng.choice(sorted(FILES.glob("*.cu"))).read_text()
        tokens = read_tokens(text, "a.cu").tokens
        one, other = rng.choice(tokens), rng.choice(tokens)
        replacement = rng.choice(["", other.text, one.text * 2])
        file.write_text(text[: one.start] + replacement + (text[one.end :] if rng.random() < 0.8 else ""))
        try:
            import_torch(str(file))
            ended[True] += 1
        except WeftError:
            ended[False] += 1
    assert min(ended.values()) > 10  # both occur


def test_what_torchs_headers_declare_is_included(tmp_path: Path) -> None:
    """FLT_MAX, INFINITY in constants, a type of function pointers, and constexpr functions without __device__."""
    source = tmp_path / "largest.cu"
    source.write_text("""\
#include <torch/extension.h>
typedef float (*Combine)(float, float);
constexpr float lowest = -INFINITY;
constexpr int threads_for(int n) { return n < 32 ? n : 32; }
__device__ float larger(float a, float b) { return fmaxf(a, b); }
__global__ void largest(const float* x, float* out, int n) {
    Combine combine = larger;
    float best = lowest, least = FLT_MAX;
    for (int i = 0; i < threads_for(n); ++i) {
        best = combine(best, x[i]);
        least = fminf(least, x[i]);
    }
    out[0] = best;
    out[1] = fmaxf(least, std::numeric_limits<float>::lowest());
}
torch::Tensor run(torch::Tensor x) {
    auto out = torch::empty({2}, x.options());
    largest<<<1, 1>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(0));
    return out;
}
""")
    found = import_torch(str(source))
    assert found.problems == ()
    x = np.array([3, -7, 5, 2], np.float32)
    _, arrays = run(found, tmp_path, arrays={"x": x})
    assert np.array_equal(arrays["out"], [5, -7])
