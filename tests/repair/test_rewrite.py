"""An edit of the -G build is written into the source: the right text is among those that are tested."""

from pathlib import Path

import pytest

from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.repair.repair import Repair
from weft.repair.rewrite import rewrites
from weft.repair.source_fix import Attempt, Known, Tried, find_source_fix
from weft.repair.templates import Kind
from weft.tasks.registry import TASKS

CASES = [
    ("int warp = t / 33;", Kind.CONSTANT, "33 → 32", "int warp = t / 32;"),
    ("float m = 0.0f;", Kind.CONSTANT, "0 → -inf", "float m = -INFINITY;"),
    ("float m = -INFINITY;", Kind.CONSTANT, "-inf → 0", "float m = 0.0f;"),
    ("float y = 2.0f / l;", Kind.CONSTANT, "2 → 1", "float y = 1.0f / l;"),
    ("unsigned mask = 7u;", Kind.CONSTANT, "7 → 8", "unsigned mask = 8u;"),
    ("int end = N;", Kind.CONSTANT, "64 → 63", "int end = (N - 1);"),
    ("for (int k = 1; k < N; k++)", Kind.CONSTANT, "1 → 0", "for (int k = 0; k < N; k++)"),
    ("for (int d = t; d < N; d += 2 * 32)", Kind.CONSTANT, "64 → 32", "for (int d = t; d < N; d += 32)"),
    ("for (int d = t; d < N; d += STEP * 2)", Kind.CONSTANT, "64 → 32", "for (int d = t; d < N; d += STEP)"),
    ("if (k < n) x = 1;", Kind.OPERATION, "< → <=", "if (k <= n) x = 1;"),
    ("if (k < n) x = 1;", Kind.OPERATION, ">= → >", "if (k <= n) x = 1;"),
    ("if (k < n) x = 1;", Kind.OPERATION, "> → >=", "if (k <= n) x = 1;"),
    ("i -= step;", Kind.OPERATION, "- → +", "i += step;"),
    ("m = fminf(m, s);", Kind.OPERATION, "min → max", "m = fmaxf(m, s);"),
    ("x = floorf(y * z);", Kind.OPERATION, "without cutting to an integer", "x = (y * z);"),
    ("x = a * D + b - c;", Kind.TERM, "without the second operand of +", "x = a * D - c;"),
    ("x = a * D + b - c;", Kind.TERM, "without the first operand of +", "x = b - c;"),
    ("x = p[a + i * 2] * scale;", Kind.TERM, "without the second operand of *", "x = p[a + i * 2];"),
    ("l += p;", Kind.TERM, "without the first operand of +", "l = p;"),
    ("s += __shfl_down_sync(m, s, o);", Kind.CALL, "__shfl_down_sync → shfl.bfly", "s += __shfl_xor_sync(m, s, o);"),
    ("p = exp2f(s - m);", Kind.CALL, "without the call of exp2f", "p = (s - m);"),
    ("acc[i] = p * v;", Kind.VALUE, "= → +=", "acc[i] += p * v;"),
    ("p = exp2f(s - m);", Kind.VALUE, "the value times log2(e)", "p = exp2f(s - m) * 1.44269504f;"),
    ("p = s - m;", Kind.VALUE, "the value times log2(e)", "p = (s - m) * 1.44269504f;"),
    ("x = row * D + head;", Kind.EXCHANGE, "two variables exchanged", "x = head * D + row;"),
]


@pytest.mark.parametrize(("line", "kind", "words", "right"), CASES)
def test_the_right_text_is_tested(line: str, kind: Kind, words: str, right: str) -> None:
    before, after = "__global__ void f() {\n    ", "\n}\n"
    texts = rewrites(before + line + after, "f.cu", 2, kind, words)
    assert before + right + after in texts
    assert before + line + after not in texts and len(texts) == len(set(texts))


def test_variables_sizes_and_limits_of_other_lines_are_tested() -> None:
    text = """__global__ void f(float* o, int HQ, int HKV) {
    int row = threadIdx.x;
    int column = blockIdx.x;
    if (row < HQ) o[row] = 1;
    o[column] = 2;
    int kv = head * 4;
}
"""
    assert text.replace("o[column]", "o[row]") in rewrites(text, "f.cu", 5, Kind.OPERAND, "another variable")
    guarded = text.replace("    o[column]", "    if (row < HQ) o[column]")
    assert guarded in rewrites(text, "f.cu", 5, Kind.GUARDED, "only below a limit of other lines")
    ended = text.replace("= 2;", "= row < HQ ? 2 : -INFINITY;")
    assert ended in rewrites(text, "f.cu", 5, Kind.GUARDED, "-inf from a limit of other lines on")
    grouped = text.replace("head * 4", "(head / (HQ / HKV)) * 4")
    assert grouped in rewrites(text, "f.cu", 6, Kind.VALUE, "a variable divided by HQ / HKV")


def test_arrays_of_the_kernel_are_tested() -> None:
    text = """__global__ void f(const float* __restrict__ k, const float *v, float* o, int N) {
    o[N] = k[N] * 2;
}
"""
    texts = rewrites(text, "f.cu", 2, Kind.OPERAND, "another variable in place of an operand")
    assert text.replace("k[N]", "v[N]") in texts and text.replace("o[N]", "k[N]") in texts


def test_a_factor_may_belong_into_a_call() -> None:
    text = "__global__ void f(float scale) {\n    x = half(u[i]);\n}\n"
    texts = rewrites(text, "f.cu", 2, Kind.VALUE, "the value times another variable")
    assert text.replace("half(u[i])", "half((u[i]) * scale)") in texts


def test_parameters_of_the_kernel_are_tested() -> None:
    text = """__global__ void other(float* o, float wrong) {}
__global__ void f(const float* q, int N, float scale) {
    float s = sum(q[N]);
}
"""
    texts = rewrites(text, "f.cu", 3, Kind.VALUE, "the value times another variable")
    assert texts[0] == text.replace("sum(q[N]);", "sum(q[N]) * scale;") and "wrong;" not in "".join(texts)


def test_a_comparison_is_not_taken_for_an_assignment() -> None:
    text = "__global__ void f() {\n    if (k <= n) x = 1;\n}\n"
    assert rewrites(text, "f.cu", 2, Kind.OPERATION, "< → <=") == []


def test_a_file_that_cannot_be_read_has_no_fix(tmp_path: Path) -> None:
    file = tmp_path / "f.cu"
    file.write_text("__global__ void f() { x = 33;\n")
    repair = Repair(Place(str(file), 1, 1), "33 → 32")
    attempt = Attempt(Candidate(file), TASKS["sdpa"], (), lambda candidate: (None, 1))
    assert find_source_fix(attempt, [repair], Known(), 60.0) == Tried(None, ())
