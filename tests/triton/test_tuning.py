"""Autotuning and do_bench without a GPU: estimates, refusals, and the note that nothing was timed."""

import logging
import math
import warnings
from typing import Any

import pytest
import torch
import triton
from triton.backends.nvidia.compiler import CUDAOptions

import weft.triton
from tests.triton import planted_kernels, tuning_kernels
from tests.triton.form_kernels import double_up
from weft.triton import estimates


def tuned_sum(*configs: Any) -> Any:
    return triton.autotune(configs=list(configs), key=["n"], reset_to_zero=["out_ptr"])(tuning_kernels.block_sums)


@pytest.mark.skipif("min_shared_mem" not in CUDAOptions.__dataclass_fields__, reason="a setting of Triton 3.9")
def test_the_cheapest_is_chosen_and_the_refused_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    fast = triton.Config({"BLOCK": 256, "KIND": 0})
    slow = triton.Config({"BLOCK": 256, "KIND": 1})  # 64 square roots
    spilling = triton.Config({"BLOCK": 2048, "KIND": 3}, num_warps=1, maxnreg=24)
    racing = triton.Config({"BLOCK": 256, "KIND": 2})
    greedy = triton.Config({"BLOCK": 256, "KIND": 0, "min_shared_mem": 200_000})
    kernel = tuned_sum(slow, racing, spilling, greedy, fast)
    x, out = torch.randn(4096), torch.zeros(1)
    with weft.triton.on("l4"), caplog.at_level(logging.WARNING, "weft.triton"):
        kernel[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, out, 4096)
        (record,) = weft.triton.tunings()
    assert kernel.best_config == fast
    assert record.chosen == str(fast)
    rows = {each.config: each for each in record.configs}
    assert len(rows) == 5
    assert not rows[str(fast)].refused and not rows[str(slow)].refused
    assert rows[str(slow)].est_ms > 1.5 * rows[str(fast)].est_ms > 0
    assert "spills" in rows[str(spilling)].refused
    assert "R1" in rows[str(racing)].refused and "tuning_kernels.py" in rows[str(racing)].refused
    assert "shared memory" in rows[str(greedy)].refused
    assert "nothing was timed" in str(record) and "2.04 GHz" in str(record)
    assert "5 configurations, 3 refused" in caplog.text and "nothing was timed" in caplog.text
    assert math.isclose(out.item(), x.double().sum().item(), abs_tol=1e-3)


def test_weft_autotune_limits_how_many_configurations_run(monkeypatch: pytest.MonkeyPatch) -> None:
    racing = triton.Config({"BLOCK": 256, "KIND": 2})
    slow, fast = triton.Config({"BLOCK": 256, "KIND": 1}), triton.Config({"BLOCK": 256, "KIND": 0})
    kernel = tuned_sum(racing, slow, fast)
    x, out = torch.randn(4096), torch.zeros(1)
    monkeypatch.setenv("WEFT_AUTOTUNE", "1")
    with weft.triton.on("l4") as device:
        kernel[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, out, 4096)
        (record,) = weft.triton.tunings()
    assert kernel.best_config == slow, "a refused configuration does not count, and the third did not run"
    assert [bool(each.refused) for each in record.configs] == [True, False, True]
    assert "not tried" in record.configs[2].refused
    assert device.launches == 3, "the refused one, the accepted one, and the call itself"
    assert math.isinf(record.configs[1].est_ms), "nothing was compared with it, so nothing was estimated"
    assert math.isclose(out.item(), x.double().sum().item(), abs_tol=1e-3)


def test_weft_autotune_of_two_estimates_both(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = triton.Config({"BLOCK": 256, "KIND": 1}), triton.Config({"BLOCK": 256, "KIND": 0})
    kernel = tuned_sum(slow, fast, triton.Config({"BLOCK": 128, "KIND": 0}))
    x, out = torch.randn(4096), torch.zeros(1)
    monkeypatch.setenv("WEFT_AUTOTUNE", "2")
    with weft.triton.on("l4"):
        kernel[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, out, 4096)
        (record,) = weft.triton.tunings()
    assert kernel.best_config == fast
    assert [bool(each.refused) for each in record.configs] == [False, False, True]


def test_findings_in_all_configurations_are_an_error_every_time() -> None:
    kernel = tuned_sum(triton.Config({"BLOCK": 64, "KIND": 2}), triton.Config({"BLOCK": 128, "KIND": 2}))
    x, out = torch.randn(512), torch.zeros(1)
    with weft.triton.on("l4"):
        for _ in range(2):
            with pytest.raises(weft.triton.NothingToChoose, match="every configuration has findings"):
                kernel[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](x, out, 512)


def test_do_bench_returns_estimates_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "_said", set())
    with weft.triton.on("l4"):
        small, large = torch.ones(1 << 12), torch.ones(1 << 18)

        def run(x: torch.Tensor) -> None:
            double_up[(triton.cdiv(len(x), 256),)](x, len(x), BLOCK=256)

        with pytest.warns(RuntimeWarning, match=r"nothing was timed.*L4 at 2.04 GHz"):
            short = triton.testing.do_bench(lambda: run(small))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            long = triton.testing.do_bench(lambda: run(large), quantiles=[0.5, 0.2, 0.8])
        assert torch.equal(small, torch.full((1 << 12,), 2.0))  # it ran once
        assert long[0] == long[1] == long[2] > short > 0
        assert long[0] > 2**20 / 300e9 * 1e3  # 2^20 bytes must come from memory, at 300 GB/s on an L4
        assert math.isnan(triton.testing.do_bench(lambda: small.add_(1)))


def test_checkers_watch_benchmarked_launches() -> None:
    x, out = torch.ones(256), torch.zeros(1)
    with weft.triton.on("l4", check=True), pytest.raises(weft.triton.KernelFindings):
        triton.testing.do_bench(lambda: planted_kernels.total[(4,)](x, out, 256, BLOCK=64, WRONG=True))
