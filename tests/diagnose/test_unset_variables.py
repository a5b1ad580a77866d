"""Variables that are read before anything gives them a value are found in the text, and named as the cause."""

from pathlib import Path

import pytest

from tests.diagnose.edited import explained, line_of, write
from weft.attention.shapes import Shape
from weft.diagnose.conclusion import place_of, sentence
from weft.diagnose.unset_names import unset_names

KERNEL = """struct Sums {{
    float held;
    __device__ void add(float x) {{ held += x; }}
}};
__device__ void first(float& to) {{ to = 0.0f; }}
__global__ void k(const float* x, float* y, int n) {{
    {declared}
    for (int i = 0; i < n; ++i) {{
        {used}
    }}
}}
"""
DECLARED, USED = 7, 9


def _unset(folder: Path, declared: str, used: str) -> list[tuple[str, int, int]]:
    file = folder / "k.cu"
    file.write_text(KERNEL.format(declared=declared, used=used))
    return [(each.name, each.declared.line, each.read.line) for each in unset_names(str(file))]


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        ("float sum;", "sum += x[i];"),
        ("float m = 0.0f, sum;", "sum = sum * m + x[i];"),
        ("float sum[4], b = 2.0f;", "sum[i % 4] -= x[i];"),
        ("int sum;", "if (x[i] > 0.0f) ++sum;"),
        ("float sum;", "const float largest = fmaxf(sum, x[i]);"),
        ("float sum;", "y[i] = x[i] + (sum - 1.0f);"),
    ],
)
def test_found(declared: str, used: str, tmp_path: Path) -> None:
    assert _unset(tmp_path, declared, used) == [("sum", DECLARED, USED)]


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        ("float sum = 0.0f;", "sum += x[i];"),
        ("float sum[4] = {};", "sum[i % 4] += x[i];"),
        ("__shared__ float sum;", "sum += x[i];"),
        ("float sum;", "sum = x[i]; y[i] = sum;"),
        ("float sum[2], l[2];", "sum[0] = sum[1] = 0.0f; l[0] = l[1] = x[i];"),
        ("float sum;", "first(sum); y[i] = sum;"),
        ("float sum;", "float* to = &sum; *to = x[i]; y[i] = sum;"),
        ("unsigned sum;", 'asm("mov.u32 %0, %tid.x;" : "=r"(sum));'),
        ("float sum[4];", "reinterpret_cast<float4&>(sum) = *reinterpret_cast<const float4*>(x); y[i] = sum[0];"),
        ("float sum;", "if (i > 0) y[i] = sum; sum = x[i];"),  # a loop sets it before it is read
        ("float sum;", "Sums of; of.sum += x[i];"),
    ],
)
def test_not_found(declared: str, used: str, tmp_path: Path) -> None:
    assert _unset(tmp_path, declared, used) == []


@pytest.mark.parametrize(
    ("declared", "used", "order"),
    [
        ("float score[4];", "y[i] = fmaxf(x[i], score[i]);\n        score[i] = x[i];", True),
        ("", "float s; y[i] = fmaxf(x[i], s);\n        s = x[i];", True),
        ("float sum;", "const float old = sum * 2.0f;\n        sum = old + x[i];", False),  # of the last iteration
        ("float score[4];", "y[i] = fmaxf(x[i], score[i]);\n        score[0] = x[i];", False),
    ],
)
def test_statements_in_the_wrong_order(declared: str, used: str, order: bool, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(KERNEL.format(declared=declared, used=used))
    (found,) = unset_names(str(file))
    assert (found.set_after is not None and found.set_after.line == USED + 1) == order


def test_the_declaration_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "paged_decode", "float products = 0.0f;", "float products;")
    found = explained(file, task="paged_decode", shape=Shape("decode", 1, 1, 1, 1, 5, 32))
    read = line_of(file, "products += ")
    assert f"`products` is declared without a value, and line {read} reads it first" in sentence(found)
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "float products;")
