"""The oldest Triton that Weft supports: PyTorch pins its own, and libraries need one that has their functions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements-older-triton.txt"
FOLDER = Path(sys.prefix) / "older_triton"
"""Where scripts/install and .ci/run install it."""
FILES = ("test_launch.py", "test_in_place.py", "test_findings.py", "test_tuning.py")


@pytest.mark.skipif(not FOLDER.is_dir(), reason="not installed: scripts/install installs the oldest Triton")
def test_launches_and_findings(tmp_path: Path) -> None:
    (line,) = (line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#"))
    pin = Requirement(line)
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "WEFT_CACHE": str(tmp_path)}
    program = (
        "import sys, pytest, triton\n"
        "code = pytest.main(sys.argv[1:])\n"
        "print('ended with', int(code), 'by Triton', triton.__version__)\n"
    )
    files = [f"tests/triton/{name}" for name in FILES]
    options = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore"]
    done = subprocess.run(
        [sys.executable, "-c", program, *options, *files],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    *_, last = done.stdout.splitlines() or [done.stderr]
    version = last.removeprefix("ended with 0 by Triton ")
    assert version != last and pin.specifier.contains(version), done.stdout[-3000:] + done.stderr[-1000:]


def test_the_range_of_the_package_begins_with_it() -> None:
    (line,) = (line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#"))
    oldest = str(Requirement(line).specifier).removeprefix("==").rpartition(".")[0]
    assert f'triton = ["triton>={oldest}"]' in (ROOT / "pyproject.toml").read_text()
