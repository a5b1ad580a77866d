"""The speed benchmark runs and prints all documented fields. No test checks its times: machines differ."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "vm_speed.py"
KERNELS = ("cuda_wmma", "triton_fa")
TIMES = (
    *(f"{kernel}{mode}{clock}_ms" for kernel in KERNELS for mode in ("", "_hardware") for clock in ("", "_cpu")),
    "torch_sdpa_fp32_ms", "torch_sdpa_fp32_cpu_ms", "triton_interpreter_ms", "jit_cold_s", "jit_warm_ms",
    "jit_import_ms",
)  # fmt: skip
RATIOS = (
    "speedup_vs_interpreter",
    *(f"{clock}slowdown_vs_sdpa{kernel}{mode}"
      for clock in ("", "cpu_") for kernel in ("", "_wmma") for mode in ("", "_hardware")),
)  # fmt: skip


@pytest.mark.sweep  # half a minute
def test_quick_run() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    command = [sys.executable, str(SCRIPT), "--quick", "--heads", "2", "--length", "128"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for name in (*TIMES, *RATIOS):
        assert results[name] > 0, name
    assert results["shape"] == [1, 2, 128, 64]
    assert results["threads"] == 2
    assert results["rounds"] == 3
    for name in ("avx2_ratio", "avx2_cpu_ratio"):
        assert all(ratio > 0 for ratio in results[name].values())
    assert {"python", "weft", "llvmlite", "torch", "triton"} <= results["versions"].keys()
    assert results["cpu"] and results["date"]
    assert results["notes"].keys() <= results.keys()
