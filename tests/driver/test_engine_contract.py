"""The CUDA engine's contract tests, which are skipped on a machine without a GPU, run against the stand-in driver."""

import re

from tests.driver.conftest import Exec


def test_the_cuda_engine_keeps_the_contract(weft_exec: Exec) -> None:
    chosen = "cuda and not stand"
    done = weft_exec(
        "python", "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "tests/engines/test_contract.py", "-k", chosen
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted and int(counted[1]) >= 30
    assert "skipped" not in done.stdout
    assert "ERROR SUMMARY: 0 errors, 0 warnings" in done.stderr
