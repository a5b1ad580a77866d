"""Lines that signatures name, found from a load, a directive or a call."""

from pathlib import Path

import pytest

from weft.core.records import Place
from weft.diagnose.signatures.lines import below, bound_of_loop, dead_mask, index_function, layout_of, outermost

SOURCE = """// weft: launch k(q)
// weft:        grid(1) block(32)
// weft:        shared(64)
wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
wmma::load_matrix_sync(a, sQ, 16);
wmma::load_matrix_sync(b, sK, 16);
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "k.cu"
    path.write_text(SOURCE)
    return str(path)


def test_a_fragment_is_declared_with_its_layout(file: str) -> None:
    for load, declared in ((6, 4), (7, 5)):
        assert layout_of(Place(file, load), "row_major") == Place(file, declared)
    assert layout_of(Place(file, 7), "col_major") == Place(file, 7)
    assert layout_of(Place("/no/such/file.cu", 7), "row_major") == Place("/no/such/file.cu", 7)
    assert layout_of(None, "row_major") is None


def test_a_directive_may_span_several_lines(file: str) -> None:
    assert below(Place(file, 1), "shared(") == Place(file, 3)
    assert below(Place(file, 1), "grid(") == Place(file, 2)
    assert below(Place(file, 1), "nowhere") == Place(file, 1)


def test_the_outermost_line_is_the_call_in_the_kernel(file: str) -> None:
    inner = Place(file, 2, inlined_at=Place(file, 4, inlined_at=Place(file, 7)))
    assert outermost(inner) == Place(file, 7) and outermost(None) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("s = q * k;\nx = 1;\ns = true ? s : -INFINITY;", 3),
        ("s = seen ? q * k : 0.0f;\nx = 1;\ns = late ? s : -INFINITY;", 1),  # the line of the scores is a mask itself
        ("s = q * k\ns = tl.where(True, s, -float('inf'))", 1),  # no such text: the line of the scores
    ],
)
def test_a_mask_that_the_compiler_removed_is_found_in_the_text(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(text)
    assert dead_mask(Place(str(path), 1)) == Place(str(path), line)


def test_bounds_that_are_only_names_are_defined_above(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "int begin = 2;\nint end = n - 1;\nfor (int i = begin; i < end; ++i) {\nfor (int i = 0; i < n; ++i) {\n"
    )
    loop = Place(str(path), 3)
    assert bound_of_loop(loop, last=True) == Place(str(path), 2)
    assert bound_of_loop(loop, last=False) == Place(str(path), 1)
    assert bound_of_loop(Place(str(path), 4), last=True) == Place(str(path), 4), "a loop with a number may be wrong"


INDEXED = """__device__ int row_of(int h, int query) {
    // The row of a head.
    return h * 4 + query;
}
__global__ void merge(const float* part_m, float* o) {
    const int query = threadIdx.x;
    o[query] = part_m[row_of(1, query)];
    o[query + 4] = part_m[query];
    o[query + 8] = part_m[min(query, 3)];
}
"""


def test_the_index_of_an_access(tmp_path: Path) -> None:
    file = tmp_path / "merge.cu"
    file.write_text(INDEXED)
    assert index_function(Place(str(file), 7)) == Place(str(file), 3)
    assert index_function(Place(str(file), 8)) is None  # no function
    assert index_function(Place(str(file), 9)) is None  # not of this file
