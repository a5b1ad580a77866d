"""Lines that signatures name, found from a load, a directive or a call."""

from pathlib import Path

import pytest

from weft.core.records import Place
from weft.diagnose.signatures.lines import below, layout_of, outermost

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
