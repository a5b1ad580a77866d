"""racecheck judges CTAs with the same accesses together: the values that each of them stores still decide."""

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.finding_codes import Severity
from weft.probes import RaceCheck, race_review

SOURCE = """
extern "C" __global__ void kernel(const int* kinds, int* out) {
    __shared__ int of_warp[2];
    __shared__ int of_cta;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kind = kinds[blockIdx.x];
    of_warp[warp] = kind & 1 ? lane : 7;
    of_cta = kind & 2 ? warp : 7;
    __syncthreads();
    out[64 * blockIdx.x + threadIdx.x] = of_warp[warp] + of_cta;
}
"""
IN_WARP, BETWEEN_WARPS = 6, 7
"""Lines of the two stores."""


@pytest.mark.parametrize("room", [race_review.FIRST_LOG, 1], ids=["one run", "a run for each"])
def test_values_decide_in_each_cta(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_review, "FIRST_LOG", room)
    path = tmp_path / "kernel.cu"
    path.write_text(SOURCE)
    binary = weft.compile_cuda(path, entries=["kernel"])
    rng = np.random.default_rng(room)
    for _ in range(4):
        kinds = rng.choice([0, 0, 1, 2, 3], 12).astype(np.int32)
        arguments = [kinds, np.zeros(64 * len(kinds), np.int32)]
        run = weft.VirtualGPU().launch(binary, "kernel", len(kinds), 64, arguments, watch=RaceCheck())
        found = {(f.level, f.place.line): f for f in run.findings if f.place is not None}
        expected = {}
        for bit, level, line, pairs in ((1, Severity.ERROR, IN_WARP, 2), (2, Severity.ERROR, BETWEEN_WARPS, 1)):
            wrong = np.flatnonzero(kinds & bit)
            if len(wrong):  # two warps, each with itself; or one pair of warps
                expected[level, line] = (int(wrong[0]), pairs * len(wrong))
        assert {key: (f.cta[0], f.count) for key, f in found.items() if f.cta is not None} == expected
        assert {f.code for f in run.findings} <= {"R101"}
