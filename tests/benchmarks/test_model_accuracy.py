"""The SGEMM ladder computes C = αAB + βC, and its captured kernels give ncu's integers."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import model_accuracy
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.model.bounds import lower_bounds
from weft.model.published import published


@pytest.mark.parametrize("kernel", model_accuracy.LADDER)
def test_a_kernel_of_the_ladder(kernel: str) -> None:
    n = 128
    random = np.random.default_rng(3)
    a, b, c = (random.standard_normal((n, n), dtype=np.float32) for _ in range(3))
    out = c.copy()
    file = load(model_accuracy.FOLDER / f"kernel_{kernel}.cu", arch="sm_86")
    file.run(VirtualGPU(threads=1, arch="sm_86"), {"a": a, "b": b, "c": out})
    expected = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + 3.0 * c
    assert np.abs(out - expected).max() < 1e-4


def test_the_captured_gemms() -> None:
    captured = {name: model_accuracy.profile(kernel, 1024) for name, kernel in model_accuracy.CAPTURED.items()}
    assert model_accuracy.mismatches(captured) == []
    assert captured["tiled"].registers == 37
    series = published()["gemm_ncu_a6000"]
    for name, point in captured.items():
        assert point.matched == 1
        assert point.relative_error < 1e-5
        bounds = lower_bounds(point.work, model_accuracy.GPU, clock_ghz=series.clock_ghz)
        assert 0.8 < bounds.microseconds(bounds.cold) / series.microseconds[name] <= 1
    wrong = replace(captured["tiled"], ncu={**captured["tiled"].ncu, "memory_l1_wavefronts_shared": 1})
    assert len(model_accuracy.mismatches({"tiled": wrong})) == 1


def test_ranks() -> None:
    assert model_accuracy.spearman([1.0, 2.0, 3.0], [10.0, 30.0, 90.0]) == pytest.approx(1)
    assert model_accuracy.spearman([1.0, 2.0, 3.0], [9.0, 3.0, 1.0]) == pytest.approx(-1)
