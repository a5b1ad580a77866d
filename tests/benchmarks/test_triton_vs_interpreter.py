"""benchmarks/triton_vs_interpreter.py on one small kernel: its last line is JSON with all documented fields."""

import json
import math
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_the_last_line() -> None:
    command = [sys.executable, "benchmarks/triton_vs_interpreter.py", "--only", "vector_add", "--factor", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["kernels"] == len(result["each"]) == 3
    assert result["wrong_weft"] == []
    assert list(result["wrong_interpreter"]) == ["vector_add_bf16"]
    row = result["each"]["vector_add_fp32"]
    assert math.isclose(row["speedup_plain"], row["interpreter_ms"] / row["plain_ms"])
    assert row["cold_s"] * 1e3 > row["plain_ms"]
    assert result["min_speedup"] <= result["geomean_speedup_plain"]
    assert done.returncode in (0, 1)
