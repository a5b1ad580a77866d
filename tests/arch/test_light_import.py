"""`import weft` and `weft --help` load no framework and no compiler."""

import resource
import subprocess
import sys

import pytest

HEAVY = {"cuda", "llvmlite", "ml_dtypes", "numpy", "pydantic", "sqlalchemy", "torch", "triton"}


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules in a fresh interpreter after the statement."""
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
        "from weft.cli.main import main; main([])",
        "from weft.cli.main import main; main(['--version'])",
    ],
)
def test_light(statement: str) -> None:
    assert not loaded_by(statement) & HEAVY


def test_doctor_loads_llvm_for_its_name_of_this_cpu_and_nothing_else() -> None:
    assert loaded_by("from weft.cli.main import main; main(['doctor'])") & HEAVY == {"llvmlite"}


TRIES = 15
"""The load of the machine must not fail a test: one quick run shows that the code is quick."""


def cpu_seconds(*command: str) -> float:
    """Return user and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("command", "most"),
    [
        (("-c", "import weft"), 0.15),
        (("-m", "weft", "--help"), 0.3),
        (("-m", "weft"), 0.3),
        (("-m", "weft", "doctor"), 0.6),
    ],
)
def test_quick(command: tuple[str, ...], most: float) -> None:
    """On a quiet machine: 0.05, 0.12, 0.14 and 0.22 s."""
    assert any(cpu_seconds(*command) < most for _ in range(TRIES))


def test_importing_weft_loads_none_of_its_packages() -> None:
    program = "import sys, weft; print(*[name for name in sys.modules if name.startswith('weft.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
