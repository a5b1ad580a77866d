"""`import weft` and `weft --help` load no framework and no compiler."""

import subprocess
import sys

import pytest

HEAVY = {"cuda", "llvmlite", "ml_dtypes", "numpy", "torch", "triton"}


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after the statement."""
    program = f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_a_heavy_import_is_seen() -> None:
    assert "numpy" in loaded_by("import numpy")


@pytest.mark.parametrize(
    "statement",
    [
        "import weft; weft.__version__; dir(weft)",
        "from weft.cli.main import main; main(['--help'])",
    ],
)
def test_light(statement: str) -> None:
    assert not loaded_by(statement) & HEAVY


def test_importing_weft_loads_none_of_its_packages() -> None:
    program = "import sys, weft; print(*[name for name in sys.modules if name.startswith('weft.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
