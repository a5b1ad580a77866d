"""Statements of a text: which statement contains which lines."""

from pathlib import Path

import pytest

from weft.core.statements import Statements

CUDA = """\
__global__ void f(float* o,
                  int n) {
    for (int t = 0; t < n; ++t) {
        load(sK, t);  // {
        __syncthreads();
        #pragma unroll
        for (int d = 0; d < 8; ++d)
            for (int i = 0; i < 4; ++i) {
                s[i] += sQ[d] * sK[d];
            }
        load(sV, t);
        if (t)
            o[t] = sV[t];
        else
            o[t] = 0;
    }
    o[0] = 1;
}
"""
TRITON = """\
def f(x):
    for n in range(4):
        # a remark
        k = tl.load(
            x)
        if n:
            k += 1
    tl.store(x, k)
"""


@pytest.fixture
def cuda(tmp_path: Path) -> Statements:
    file = tmp_path / "f.cu"
    file.write_text(CUDA)
    return Statements(str(file))


def test_chains_of_blocks_and_of_heads_without_braces(cuda: Statements) -> None:
    assert cuda.chain(4) == (1, 3, 4)
    assert cuda.chain(9) == (1, 3, 7, 8, 9)
    assert cuda.chain(11) == (1, 3, 11)
    assert cuda.chain(13) == (1, 3, 12, 13)
    assert cuda.chain(15)[:2] == (1, 3)
    assert cuda.chain(17) == (1, 17)
    assert cuda.chain(99) == ()
    assert cuda.loops(9) == (3, 7, 8)
    assert cuda.loops(17) == ()


def test_the_statement_that_holds_one_line_and_not_another(cuda: Statements) -> None:
    assert (cuda.apart(9, 11), cuda.apart(11, 9)) == (7, 11)
    assert cuda.last(7) == 10, "a loop ends at its bracket"
    assert cuda.apart(9, 9) == 0


def test_triton(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text(TRITON)
    found = Statements(str(file))
    assert found.chain(7) == (1, 2, 6, 7)
    assert found.loops(7) == (2,)
    assert found.chain(8) == (1, 8)


def test_a_missing_file_has_no_statements() -> None:
    assert Statements("nowhere.cu").chain(1) == ()
