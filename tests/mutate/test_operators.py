"""Every operator does what its example says, in both languages, and is one of the classes."""

import pytest

from weft.mutate.operators import CLASSES, OPERATORS, Operator
from weft.mutate.records import Language, Line
from weft.mutate.source import read_lines

BY_NAME = {operator.name: operator for operator in OPERATORS}


def lines_of(code: str, language: Language) -> tuple[Line, ...]:
    """Return the lines of code in the body of a kernel."""
    if language == "CUDA":
        return tuple(line for line in read_lines(f"__global__ void f() {{\n{code}\n}}\n", "CUDA") if line.number > 1)
    return read_lines(f"@triton.jit\ndef f(x):\n{code}\n", "Triton")


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_its_example(operator: Operator) -> None:
    before, after = operator.example
    assert after in list(operator.change(lines_of(before, "CUDA")[0]))


TRITON = [
    ("index_plus_one", "tl.store(o + rows, x, mask=inside)", "tl.store(o + rows + 1, x, mask=inside)"),
    ("index_term_lost", "k = tl.load(k_head + rows)", "k = tl.load(k_head)"),
    ("index_exchanged", "rows = keys[:, None] * D", "rows = keys[None, :] * D"),
    ("divide_for_modulo", "g = h // 4", "g = h % 4"),
    ("stride_off_by_one", "at = head * SKV + key", "at = head * (SKV + 1) + key"),
    ("base_exchanged", "k = tl.load(k_head + rows)", "k = tl.load(v_head + rows)"),
    ("base_of_query_head", "kv = b * HKV + h // (HQ // HKV)", "kv = b * HKV + h"),
    ("diagonal_shifted", "diagonal = 1 if C == 1 else 1 + SKV - SQ", "diagonal = 0 if C == 1 else 1 + SKV - SQ"),
    ("mask_lost", 's = tl.where(a < b, s, -float("inf"))', 's = tl.where((a < b) | True, s, -float("inf"))'),
    ("masked_score_zero", 's = tl.where(a < b, s, -float("inf"))', "s = tl.where(a < b, s, 0.0)"),
    ("guard_lost", "x = tl.load(p, mask=a < b, other=0.0)", "x = tl.load(p, mask=(a < b) | True, other=0.0)"),
    ("loop_ends_early", "for n in range(begin, end, N):", "for n in range(begin, end - 1, N):"),
    ("extreme_exchanged", "m = tl.maximum(m, s)", "m = tl.minimum(m, s)"),
    ("branches_exchanged", "x = tl.where(c, a, b)", "x = tl.where(c, b, a)"),
    ("cast_truncates", "p = p.to(v.dtype)", "p = p.to(tl.int32).to(v.dtype)"),
    ("starts_at_one", "l = tl.zeros((M,), tl.float32)", "l = 1.0 + tl.zeros((M,), tl.float32)"),
    ("starts_at_zero", 'm = tl.full((M,), -float("inf"), t)', "m = tl.full((M,), 0.0, t)"),
    ("scale_lost", "s = dot * scale_log2", "s = dot"),
    ("exponential_exchanged", "p = tl.math.exp2(s)", "p = tl.math.exp(s)"),
]


@pytest.mark.parametrize(("name", "before", "after"), TRITON, ids=[row[0] for row in TRITON])
def test_the_same_mistake_in_triton(name: str, before: str, after: str) -> None:
    indented = f"    {before}\n    pass" if before.endswith(":") else f"    {before}"
    assert f"    {after}" in list(BY_NAME[name].change(lines_of(indented, "Triton")[0]))


def test_classes_and_the_held_out_third() -> None:
    assert {operator.klass for operator in OPERATORS} == set(CLASSES)
    assert len(BY_NAME) == len(OPERATORS) >= 24
    assert 0.3 <= sum(operator.held_out for operator in OPERATORS) / len(OPERATORS) <= 0.4
    for klass in CLASSES:  # every class is scored both ways
        assert {operator.held_out for operator in OPERATORS if operator.klass == klass} == {True, False}, klass


@pytest.mark.parametrize(
    "code",
    [
        "// o[r * D + d] = m + l * 32;",
        'asm volatile("mul.f32 %0, %1, 32;" : "=f"(y[2 * i]) : "f"(x * 2.0f));',
        'static_assert(D % 8 == 0, "D < 128");',
        "assert(HQ % HKV == 0);",
        "#define TWICE(x) (x * 2)",
        "using H = Head<D + 1>;",
        "__shared__ float tile[32 * 33];",
    ],
)
def test_what_must_stay_as_it_is(code: str) -> None:
    for line in lines_of(code, "CUDA"):
        for operator in OPERATORS:
            assert list(operator.change(line)) == [], operator.name


def test_a_pointer_type_is_no_product() -> None:
    line, *_ = lines_of("const float* const x = reinterpret_cast<const float*>(y);", "CUDA")
    assert list(BY_NAME["times_for_divide"].change(line)) == []


def test_independent_statements_are_not_exchanged() -> None:
    line = lines_of("a = x;\nb = y;", "CUDA")[0]
    assert list(BY_NAME["order_of_statements"].change(line)) == []
