"""Launch lines from typical host code. Nothing is compiled here: only the lines are checked."""

import re
from pathlib import Path

import pytest

from weft.core.errors import Unsupported
from weft.interop.torch_extension import import_file
from weft.interop.torch_extension.import_file import Imported, import_torch

KERNEL = "__global__ void k(const float* x, float* y, int n) { y[threadIdx.x] = x[threadIdx.x]; }\n"
TILED = "template <int D, bool C> __global__ void t(const half* q, half* o, int n) { o[0] = q[0]; }\n"


@pytest.fixture(autouse=True)
def only_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_file, "_compile", lambda *arguments: None)


def follow(text: str, folder: Path, **options: str) -> Imported:
    file = folder / "a.cu"
    file.write_text(text)
    return import_torch(str(file), **options)  # type: ignore[arg-type]


def launches(found: Imported) -> list[str]:
    """Each launch with its clauses on one line."""
    text = "\n".join(line.removeprefix("// weft: ") for line in found.lines)
    return [re.sub(r"\s+", " ", each).strip() for each in re.findall(r"launch +(.*?)(?=\nlaunch|\Z)", text, re.DOTALL)]


def lines(found: Imported, keyword: str) -> list[str]:
    rows = [line.removeprefix("// weft: ") for line in found.lines]
    return [" ".join(row.split()[1:]) for row in rows if row.split()[0] == keyword]


def test_a_macro_that_writes_host_functions(tmp_path: Path) -> None:
    bind = """#define BIND(name, T, n) \\
  void run_##name(torch::Tensor x, torch::Tensor y) { \\
    const int N = x.numel(); \\
    name##_kernel<<<(N + 256 - 1) / 256, 256 / (n)>>>((T*)x.data_ptr(), (T*)y.data_ptr(), N); }
"""
    kernels = "".join(f"__global__ void {name}_kernel(float* x, float* y, int n) {{}}\n" for name in ("add", "add4"))
    module = 'PYBIND11_MODULE(M, m) { m.def("a", &run_add); m.def("b", &run_add4); }\n'
    found = follow(kernels + bind + "BIND(add, float, 1)\nBIND(add4, float, 4)\n" + module, tmp_path)
    assert found.function == "run_add" and found.others == ("run_add4",) and not found.problems
    assert launches(found) == ["add_kernel(x, y, N) grid(cdiv(N, 256)) block(256)"]
    other = follow(
        kernels + bind + "BIND(add, float, 1)\nBIND(add4, float, 4)\n" + module, tmp_path, function="run_add4"
    )
    assert launches(other) == ["add4_kernel(x, y, N) grid(cdiv(N, 256)) block(64)"]
    assert "BIND" not in found.device.replace("#define BIND", "")


SWITCH = """
template <int D> void launch(at::Tensor q, at::Tensor o, bool causal) {
  const int n = q.size(0);
  constexpr int block = D < 128 ? 64 : 128;
  if (causal) t<D, true><<<n / block, block>>>((half*)q.data_ptr(), (half*)o.data_ptr(), n);
  else t<D, false><<<n / block, block>>>((half*)q.data_ptr(), (half*)o.data_ptr(), n);
}
void f(at::Tensor q, at::Tensor o, bool causal) {
  const int d = q.size(1);
  switch (d) {
    case 32: case 64: launch<64>(q, o, causal); break;
    case 128: launch<128>(q, o, causal); break;
    default: throw std::runtime_error("no");
  }
}
"""


def test_a_switch_over_templated_launchers(tmp_path: Path) -> None:
    found = follow(TILED + SWITCH, tmp_path)
    assert launches(found) == [
        "t<64, {causal != 0}>(q, o, n) grid(n // 64) block(64) when(max(d == 32, d == 64))",
        "t<128, {causal != 0}>(q, o, n) grid(n // 128) block(128) when(d == 128)",
    ]
    assert lines(found, "require") == ["max(max(d == 32, d == 64), d == 128) : required by the host function"]


def test_equal_launchers_of_a_switch_are_one_launch(tmp_path: Path) -> None:
    text = SWITCH.replace("case 32: case 64", "case 64").replace("D < 128 ? 64 : 128", "64")
    found = follow(TILED + text, tmp_path)
    assert launches(found) == ["t<{d}, {causal != 0}>(q, o, n) grid(n // 64) block(64)"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("if (n % 4 == 0) { k<<<n / 4, 32>>>(p, r, n); } else { k<<<n, 1>>>(p, r, n); }",
         ["k(x, y, n) grid(n // 4) block(32) when(n % 4 == 0)", "k(x, y, n) grid(n) block(1) when(n % 4 != 0)"]),
        ("if (n > 9) { k<<<9, 32>>>(p, r, n); return; }\nk<<<n, 1>>>(p, r, n);",
         ["k(x, y, n) grid(9) block(32) when(n > 9)", "k(x, y, n) grid(n) block(1) when(n <= 9)"]),
        ("dim3 grid(1); if (n > 9) grid.x = 2;\nk<<<grid, 32>>>(p, r, n);",
         ["k(x, y, n) grid(2 * (n > 9) + (n <= 9)) block(32)"]),
        ("int m = 1; for (int i = 0; i < 3; ++i) m *= n;\nk<<<m, 32>>>(p, r, n);",
         ["k(x, y, n) grid(n * n * n) block(32)"]),
        ("for (int i = 1; i < 8; i *= 2) k<<<i, 32>>>(p, r, n);",
         [f"k(x, y, n) grid({grid}) block(32)" for grid in (1, 2, 4)]),
        ("auto go = [&](int b) { k<<<n, b>>>(p, r, n); };\ngo(64);", ["k(x, y, n) grid(n) block(64)"]),
        ("do { k<<<n, 32>>>(p, r, n); } while (0);", ["k(x, y, n) grid(n) block(32)"]),
        ("constexpr int B = 1 << 5; using T = float;\nk<<<(n + 63) & ~63, B * sizeof(T)>>>(p, r, n);",
         ["k(x, y, n) grid(cdiv(n, 64) * 64) block(128)"]),
    ],
)  # fmt: skip
def test_conditions_and_loops(host: str, expected: list[str], tmp_path: Path) -> None:
    head = "void f(at::Tensor x, at::Tensor y) {\n  int n = x.size(0);\n"
    head += "  float *p = x.data_ptr<float>(), *r = y.data_ptr<float>();\n"
    found = follow(f"{KERNEL}{head}{host}\n}}\n", tmp_path)
    assert launches(found) == expected and not found.problems


def test_conditions_of_a_branch_hold_only_for_its_sizes(tmp_path: Path) -> None:
    host = "void f(at::Tensor x, at::Tensor y) {\n  int n = x.size(0);\n"
    host += "  float *p = x.data_ptr<float>(), *r = y.data_ptr<float>();\n"
    host += "  TORCH_CHECK(n % 2 == 0);\n  if (n > 9) { TORCH_CHECK(n % 4 == 0); k<<<9, 32>>>(p, r, n); }\n"
    found = follow(KERNEL + host + "  else { k<<<1, 32>>>(p, r, n); }\n}\n", tmp_path)
    conditions = [row.split(" : ")[0] for row in lines(found, "require")]
    allowed = [n for n in range(1, 20) if all(eval(each, {"max": max, "n": n}) for each in conditions)]
    assert allowed == [2, 4, 6, 8, 12, 16]


PROGRAM = """
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { printf("%d", e); exit(1); } } while (0)
#define ROUNDS 100
int main(int argc, char** argv) {
  const int B = 2, N = argc > 1 ? atoi(argv[1]) : 128;
  int threads = 64;
  size_t bytes = B * N * sizeof(float);
  float *h = (float*)malloc(bytes), *d_x, *d_y;
  CHECK(cudaMalloc(&d_x, bytes));
  CHECK(cudaMalloc((void**)&d_y, B * N * sizeof(float)));
  CHECK(cudaMemcpy(d_x, h, bytes, cudaMemcpyHostToDevice));
  k<<<(B * N + threads - 1) / threads, threads>>>(d_x, d_y, B * N);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(h, d_y, bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < ROUNDS; i++) k<<<1, threads>>>(d_x, d_y, N);
  return 0;
}
"""


def test_a_program_is_followed_until_it_copies_results_back(tmp_path: Path) -> None:
    found = follow(KERNEL + PROGRAM, tmp_path)
    assert launches(found) == ["k(x, y, B * N) grid(cdiv(B * N, 64)) block(64)"]
    assert lines(found, "sizes") == ["B=2 N=128"]
    assert lines(found, "in") == ["x : f32[B, N] = normal"] and lines(found, "out") == ["y : f32[B, N]"]
    assert any("after the first results are copied back" in note.text for note in found.notes)


def test_a_library_call_between_launches_is_never_ignored_silently(tmp_path: Path) -> None:
    call = "cublasSgemm(handle, N, N, d_x, d_y);\n  CHECK(cudaGetLastError());"
    found = follow(KERNEL + PROGRAM.replace("CHECK(cudaGetLastError());", call), tmp_path)
    assert len(found.problems) == 1 and "cublasSgemm also changes the arrays" in found.problems[0].text


def test_a_copy_between_arrays_is_never_ignored_silently(tmp_path: Path) -> None:
    copy = "cudaMemcpy(d_x, d_y, bytes, cudaMemcpyDeviceToDevice);\n  k<<<1, 32>>>(d_x, d_y, N);"
    found = follow(KERNEL + PROGRAM.replace("CHECK(cudaGetLastError());", copy), tmp_path)
    assert any("copies y to x between launches" in problem.text for problem in found.problems)


def test_structs_are_passed_member_by_member(tmp_path: Path) -> None:
    text = """struct P { const float* x; float* y; int n, m; float scale = 2.0f; };
__global__ void s(P p) { p.y[0] = p.x[0]; }
void fill(P& p, int n) { p.n = n; p.m = 2 * n; }
void f(at::Tensor x, at::Tensor y) {
  P p;
  p.x = x.data_ptr<float>(); p.y = y.data_ptr<float>();
  fill(p, x.size(0));
  s<<<p.m, 32>>>(p);
}
"""
    found = follow(text, tmp_path)
    assert launches(found) == ["s({x, y, x_0, 2 * x_0, 2.0}) grid(2 * x_0) block(32)"] and not found.problems


def test_a_launcher_of_any_kernel_with_a_pack(tmp_path: Path) -> None:
    text = """template <typename K, typename... Args> void go(K* kernel, int blocks, int smem, Args... args) {
  if (smem > 48000) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  kernel<<<blocks, 128, smem>>>(args...);
}
void f(at::Tensor q, at::Tensor o) {
  auto kernel = t<64, false>;
  go(kernel, 8, 65536, (half*)q.data_ptr(), (half*)o.data_ptr(), q.size(0));
}
"""
    found = follow(TILED + text, tmp_path)
    assert launches(found) == ["t<64, false>(q, o, q_0) grid(8) block(128) shared(65536) opt_in_shared"]


def test_the_binding_may_be_in_a_cpp_file(tmp_path: Path) -> None:
    (tmp_path / "bind.cpp").write_text(
        "using Fn = void(const float*, float*, int);\nFn run;\n"
        "template <Fn fn> at::Tensor call(at::Tensor x) { at::Tensor y = at::empty_like(x);\n"
        "  fn(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0)); return y; }\n"
        'PYBIND11_MODULE(M, m) { m.def("run", &call<run>); }\n'
    )
    found = follow(KERNEL + "void run(const float* x, float* y, int n) { k<<<n, 32>>>(x, y, n); }\n", tmp_path)
    assert found.function == "call" and not found.problems and found.returned == ("y",)
    assert launches(found) == ["k(x, y, x_0) grid(x_0) block(32)"]
    assert any("bind.cpp" in note.text for note in found.notes)


def test_if_of_the_preprocessor_in_a_host_function(tmp_path: Path) -> None:
    host = "void f(at::Tensor x, at::Tensor y) {\n  auto p = x.data_ptr<float>();\n  auto r = y.data_ptr<float>();\n"
    host += "#ifdef FAST\n  k<<<2, 64>>>(p, r, 1);\n#else\n  k<<<1, 32>>>(p, r, x.numel());\n#endif\n}\n"
    plain = follow(KERNEL + host, tmp_path)
    assert launches(plain) == ["k(x, y, x_0) grid(1) block(32)"]
    assert "FAST is assumed to be undefined" in "".join(note.text for note in plain.notes)
    defined = follow("#define FAST\n" + KERNEL + host, tmp_path, function="f")
    assert "grid(2)" in launches(defined)[0] and not any("FAST" in note.text for note in defined.notes)


def test_an_assumed_shape_is_a_note(tmp_path: Path) -> None:
    host = "void f(at::Tensor x, at::Tensor y) {\n"
    host += "  k<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));\n}\n"
    found = follow(KERNEL + host, tmp_path)
    assert not found.problems and lines(found, "inout") + lines(found, "out") == ["y : f32[x_0, x_1] = normal"]
    assert any("never reads the shape of y: it is assumed to have the shape of x" in note.text for note in found.notes)


def test_a_missing_header_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = "#include <cute/tensor.hpp>\n" + KERNEL.replace("int n)", "cute::X n)")
    text += "void f(float* x) { k<<<1, 1>>>(x, x, 1); }\n"
    with pytest.raises(Unsupported, match=r"a\.cu:2: .*header not found: cute/tensor\.hpp"):
        follow(text, tmp_path)


def test_a_partly_read_shape_is_a_note(tmp_path: Path) -> None:
    host = "void f(at::Tensor q, at::Tensor o) {\n  t<64, true><<<q.size(0) * q.size(1), q.size(3)>>>("
    host += "(half*)q.data_ptr(), (half*)o.data_ptr(), q.size(2) + o.size(2));\n}\n"
    found = follow(TILED + host, tmp_path)
    assert lines(found, "inout") == ["o : f16[q_0, q_1, o_2, q_3] = normal"]
    assert any("reads a part of the shape of o" in note.text for note in found.notes)


def test_shapes_that_the_host_compares_are_equal(tmp_path: Path) -> None:
    check = 'if (x.size(0) != y.size(0) || x.size(1) != y.size(1)) { throw std::runtime_error("shape"); }\n'
    host = f"void f(at::Tensor x, at::Tensor y) {{\n  {check}"
    host += "  k<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), 1);\n}\n"
    found = follow(KERNEL + host, tmp_path)
    assert lines(found, "sizes") == ["x_0=33 x_1=64"] and lines(found, "require") == []
