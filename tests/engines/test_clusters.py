"""Clusters in CUDA C++: cooperative groups, `cluster(…)` on a launch line, `__cluster_dims__`."""

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.errors import LaunchError
from weft.core.records import Severity
from weft.engines.kernel_file import load
from weft.probes import InitCheck, Probes, RaceCheck

HISTOGRAM = """
// weft: sizes   N=2048 BINS=256 CTAS=2
// weft: in      x : i32[N] = uniform(0, 255)
// weft: inout   h : i32[BINS] = zeros
// weft: launch  histogram(x, h, N, BINS) grid(8) block(128) cluster(CTAS) shared(BINS * 4)
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Each CTA of a cluster keeps a part of the bins in its shared memory.
__global__ void ATTRIBUTE histogram(const int* x, int* h, int n, int bins) {
    extern __shared__ int part[];
    cg::cluster_group cluster = cg::this_cluster();
    int per = bins / cluster.num_blocks();
    for (int i = threadIdx.x; i < per; i += blockDim.x) part[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(cluster.map_shared_rank(part, x[i] / per) + x[i] % per, 1);
    cluster.sync();
    for (int i = threadIdx.x; i < per; i += blockDim.x) atomicAdd(&h[cluster.block_rank() * per + i], part[i]);
}
"""


def _written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "histogram.cu"
    file.write_text(text)
    return file


@pytest.mark.parametrize("ctas", [1, 4])
def test_bins_in_the_memory_of_several_ctas(tmp_path: Path, ctas: int) -> None:
    file = _written(tmp_path, HISTOGRAM.replace("ATTRIBUTE ", ""))
    done = load(file, gpu="h100").run(
        weft.VirtualGPU("h100"), sizes={"CTAS": ctas}, watch=Probes(InitCheck(), RaceCheck())
    )
    assert [str(finding) for finding in done.run.findings if finding.level is not Severity.INFO] == []
    x, h = (np.asarray(done.arrays[name]) for name in "xh")
    np.testing.assert_array_equal(h, np.bincount(x, minlength=256))


def test_the_kernel_says_how_large_its_cluster_is(tmp_path: Path) -> None:
    text = HISTOGRAM.replace("ATTRIBUTE", "__cluster_dims__(2)").replace(" cluster(CTAS)", "")
    done = load(_written(tmp_path, text), gpu="h100").run(weft.VirtualGPU("h100"))
    assert done.run.findings == ()
    np.testing.assert_array_equal(done.arrays["h"], np.bincount(np.asarray(done.arrays["x"]), minlength=256))


EXCHANGE = """
// weft: inout   y : i32[64] = zeros
// weft: launch  exchange(y) grid(4) block(32) cluster(2)
#include <cooperative_groups.h>

__global__ void exchange(int* y) {
    if (threadIdx.x == 0) y[blockIdx.x] = blockIdx.x + 1;
    cooperative_groups::this_cluster().sync();
    if (threadIdx.x == 0) y[32 + blockIdx.x] = y[blockIdx.x ^ OTHER];
}
"""


@pytest.mark.parametrize(("other", "codes"), [(1, set()), (2, {"R102", "R103"})])
def test_a_barrier_orders_global_memory_within_its_cluster_only(tmp_path: Path, other: int, codes: set[str]) -> None:
    """In the other cluster, one CTA reads what was written before it ran, one what is written later."""
    file = _written(tmp_path, EXCHANGE.replace("OTHER", str(other)))
    done = load(file, gpu="h100").run(weft.VirtualGPU("h100"), watch=Probes(InitCheck(), RaceCheck()))
    assert {finding.code for finding in done.run.findings if finding.level is not Severity.INFO} == codes


def test_a_grid_that_is_no_multiple_is_refused_at_its_line(tmp_path: Path) -> None:
    file = _written(tmp_path, HISTOGRAM.replace("ATTRIBUTE ", "").replace("grid(8)", "grid(9)"))
    with pytest.raises(LaunchError, match=r"histogram\.cu:5: .*cannot be divided into clusters of \(2, 1, 1\)"):
        load(file, gpu="h100").run(weft.VirtualGPU("h100"))
