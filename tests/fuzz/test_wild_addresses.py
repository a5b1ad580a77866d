"""Random programs at wild addresses stay inside the virtual GPU's own buffers; `benchmarks/fuzz.py` has more."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = 16


def _child(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.wild_addresses", *options]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("place", ["end", "start"])
def test_one_byte_too_far_ends_the_process(place: str) -> None:
    assert _child("--prove", "--place", place).returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("first", "kernels", "options"), [(0, 10, ("--place", "end")), (1000, 3, ("--place", "start", "--watch"))]
)
def test_no_access_outside_the_buffers(first: int, kernels: int, options: tuple[str, ...]) -> None:
    done = _child("--first", str(first), "--kernels", str(kernels), "--programs", str(PROGRAMS), *options)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["programs"] == kernels * PROGRAMS, "some were refused, so they tested nothing"
    # Programs that only access their own memory, or never end, would test little.
    assert {"M101", "M102", "M104"} <= result["codes"].keys()
