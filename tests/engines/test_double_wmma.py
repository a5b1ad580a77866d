"""Matrix products of doubles in CUDA C++ (nvcuda::wmma, m8n8k4), with every checker on."""

from pathlib import Path

import numpy as np
import pytest

from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

SOURCE = """\
// weft: sizes  K=12
// weft: define A_LAYOUT = "row_major"
// weft: define B_LAYOUT = "col_major"
// weft: define C_LAYOUT = "mem_row_major"
// weft: define A_ROWS = 1
// weft: define B_ROWS = 0
// weft: in     a : f64[8 * K] = normal
// weft: in     b : f64[8 * K] = normal
// weft: in     c : f64[8, 8] = normal
// weft: out    d : f64[8, 8]
// weft: launch product(a, b, c, d, K) grid(1) block(32)
#include <mma.h>
using namespace nvcuda;

__global__ void product(const double* a, const double* b, const double* c, double* d, int K) {
    __shared__ double tile[8 * 6];  // 6: the rows of A and B have gaps, and are aligned to 16 bytes
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::A_LAYOUT> x;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::B_LAYOUT> y;
    wmma::fragment<wmma::accumulator, 8, 8, 4, double> z;
    wmma::load_matrix_sync(z, c, 8, wmma::C_LAYOUT);
    for (int k = 0; k < K; k += 4) {
        wmma::load_matrix_sync(x, a + (A_ROWS ? k : 8 * k), A_ROWS ? K : 8);
        for (int i = threadIdx.x; i < 32; i += 32) tile[i / 4 * 6 + i % 4] = B_ROWS ? 0 : b[i / 4 * K + k + i % 4];
        __syncwarp();
        if (B_ROWS) wmma::load_matrix_sync(y, b + 8 * k, 8);
        else wmma::load_matrix_sync(y, tile, 6);
        wmma::mma_sync(z, x, y, z);
        __syncwarp();
    }
    for (int i = 0; i < z.num_elements; ++i) z.x[i] *= 2;
    wmma::store_matrix_sync(d, z, 8, wmma::C_LAYOUT);
}
"""

LAYOUTS = [(a, b, c) for a in ("row", "col") for b in ("row", "col") for c in ("row", "col")]


@pytest.mark.parametrize(("a_layout", "b_layout", "c_layout"), LAYOUTS, ids="-".join)
def test_a_product_of_doubles(a_layout: str, b_layout: str, c_layout: str, tmp_path: Path) -> None:
    """A sum of K products in increasing k, each rounded once; checked exactly, with halves of small integers too."""
    (tmp_path / "product.cu").write_text(SOURCE)
    defines = {
        "A_LAYOUT": f"{a_layout}_major",
        "B_LAYOUT": f"{b_layout}_major",
        "C_LAYOUT": f"mem_{c_layout}_major",
        "A_ROWS": str(int(a_layout == "row")),
        "B_ROWS": str(int(b_layout == "row")),
    }
    kernel = load(tmp_path / "product.cu", defines=defines)
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(-50, 50, (8, 12)) / 2, rng.integers(-50, 50, (12, 8)) / 2, rng.integers(-50, 50, (8, 8)) / 2
    arrays = {
        "a": np.ravel(a if a_layout == "row" else a.T),
        "b": np.ravel(b if b_layout == "row" else b.T),
        "c": c if c_layout == "row" else np.ascontiguousarray(c.T),
    }
    run, out = kernel.run(VirtualGPU(), arrays, watch=watch_for(["racecheck", "initcheck"]))
    assert not run.findings
    got = out["d"] if c_layout == "row" else out["d"].T
    assert np.array_equal(got, 2 * (a @ b + c))


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (("a + (A_ROWS ? k : 8 * k)", "a + 4 + (A_ROWS ? k : 8 * k)"), {"M101"}),
        (("wmma::store_matrix_sync(d, z, 8", "wmma::store_matrix_sync(d, z, 9"), {"M101"}),
        (("double tile[8 * 6];", "double tile_[8 * 6 + 1]; double* tile = (double*)((char*)tile_ + 4);"), {"M102"}),
        (("block(32)", "block(64)"), {"R101", "R102"}),  # the second warp reads the first one's tile without a barrier
        (("for (int i = threadIdx.x; i < 32;", "for (int i = threadIdx.x; i < 31;"), {"I201"}),
    ],
    ids=["outside", "store outside", "misaligned", "race", "uninitialised"],
)
def test_mistakes_with_doubles_are_found(change: tuple[str, str], codes: set[str], tmp_path: Path) -> None:
    assert SOURCE.count(change[0]) == 1
    (tmp_path / "product.cu").write_text(SOURCE.replace(*change))
    run, _ = load(tmp_path / "product.cu").run(VirtualGPU(), watch=watch_for(["racecheck", "initcheck"]))
    assert {finding.code for finding in run.findings} == codes
