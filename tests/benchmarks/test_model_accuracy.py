"""The SGEMM ladder computes C = αAB + βC, its captured kernels give ncu's integers; the attention pair is one."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import model_accuracy
from weft.core.chips import chip
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
        bounds = lower_bounds(point.work, chip("a6000"), clock_ghz=series.clock_ghz)
        assert 0.8 < bounds.microseconds(bounds.cold) / series.microseconds[name] <= 1
    wrong = replace(captured["tiled"], ncu={**captured["tiled"].ncu, "memory_l1_wavefronts_shared": 1})
    assert len(model_accuracy.mismatches({"tiled": wrong})) == 1


def test_ranks() -> None:
    assert model_accuracy.spearman([1.0, 2.0, 3.0], [10.0, 30.0, 90.0]) == pytest.approx(1)
    assert model_accuracy.spearman([1.0, 2.0, 3.0], [9.0, 3.0, 1.0]) == pytest.approx(-1)


@pytest.mark.parametrize("kernel", model_accuracy.PAIR)
def test_a_kernel_of_the_attention_pair(kernel: str) -> None:
    random = np.random.default_rng(4)
    q, k, v = (random.standard_normal((2, 128, 2, 128)).astype(np.float16) for _ in range(3))
    out = np.full_like(q, np.nan)
    file = load(model_accuracy.ATTENTION, arch="sm_86", defines={"SWIZZLE": model_accuracy.PAIR[kernel]})
    file.run(VirtualGPU(threads=1, arch="sm_86"), {"q": q, "k": k, "v": v, "o": out})
    one, keys, values = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    weights = np.exp(one @ keys.swapaxes(2, 3) / np.sqrt(128))
    expected = weights @ values / weights.sum(axis=3, keepdims=True)
    assert np.abs(out.transpose(0, 2, 1, 3) - expected).max() < 1e-3


@pytest.mark.parametrize(("kernel", "ways"), [("1", 8), ("2", 1)])
def test_the_counts_of_the_attention_pair(kernel: str, ways: int) -> None:
    """By hand, per warp and tile of 64 keys: 32 ldmatrix.x4 of K and of V, 64 mma each, 2 x 8 cp.async.

    In addition 8 ldmatrix of Q with 8 cp.async, and O as 32 stores of 4 bytes in eight rows and 8 loads of 16 bytes.
    """
    tiles = 2
    point = model_accuracy.profile_attention(kernel, sequence=64 * tiles)
    warps = tiles * 16 * 16 * 4
    assert point.work.launch.grid * 4 == warps
    assert point.work.memory.shared_wavefronts == warps * ((8 + 64 * tiles) * 4 * ways + 32 * ways + 8 * 4)
    assert point.ncu["sm__inst_executed_pipe_tensor_op_hmma.sum"] == warps * 128 * tiles
    assert point.ncu["smsp__inst_executed_op_ldgsts.sum"] == warps * (8 + 16 * tiles)
    assert point.matched == 1
    assert point.relative_error < 1e-3


@pytest.fixture(scope="module")
def pair() -> dict[str, model_accuracy.Point]:
    return {kernel: model_accuracy.profile_attention(kernel) for kernel in model_accuracy.PAIR}


def test_the_attention_pair_against_its_measurement(pair: dict[str, model_accuracy.Point]) -> None:
    """Conflicts make shared memory the limit, the swizzle makes it the tensor cores; the bounds hold in both."""
    series = published()["attention_rtx3090"]
    found = model_accuracy.score_pair(pair, series, 0.85)
    one, two = found["points"]
    assert [one["limiter"], two["limiter"]] == ["smem", "tensor"]
    assert not one["lb_above_measured"] and not two["lb_above_measured"]
    assert one["lb_us"] < one["est_us"] and two["lb_us"] < two["est_us"]
    assert found["ratio_measured"] == pytest.approx(66.12 / 33.28, abs=1e-3)
    assert found["ratio_estimated"] == pytest.approx(66.12 / 33.28, rel=0.05)
    assert found["inputs"]["blocks_per_sm"] == 2


def test_no_c_is_fitted_on_the_point_it_is_scored_on(pair: dict[str, model_accuracy.Point]) -> None:
    """If a kernel had taken twice as long, the estimate fitted on the other one would be the same."""
    series = published()["attention_rtx3090"]
    slower = replace(series, microseconds={**series.microseconds, "1": 2 * series.microseconds["1"]})
    before, after = (model_accuracy.score_pair(pair, each, 0.85) for each in (series, slower))
    assert before["leave_one_out"][0]["est_us"] == after["leave_one_out"][0]["est_us"]
    assert before["leave_one_out"][1]["c"] != after["leave_one_out"][1]["c"]
    assert [one["est_us"] for one in before["points"]] == [one["est_us"] for one in after["points"]]
