"""Unmodified clients from PyPI: right results, and planted bugs by file and line of their sources."""

import importlib.util
import json
from pathlib import Path

import pytest

from tests.driver.conftest import Exec
from tests.driver.nvcc import find_nvcc

PROGRAMS = Path("tests/driver/programs")


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip where a client of requirements-clients.txt is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def line_of(program: Path, text: str) -> int:
    """Return the number of the line with this text."""
    return next(number for number, line in enumerate(program.read_text().splitlines(), 1) if text in line)


@needs("numba", "numba_cuda")
def test_numba_runs_unmodified(weft_exec: Exec) -> None:
    done = weft_exec("python", str(PROGRAMS / "with_numba.py"))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    assert "weft: 3 launches" in done.stderr


@needs("numba", "numba_cuda")
def test_a_bug_in_a_numba_kernel_is_named_by_its_python_line(weft_exec: Exec, tmp_path: Path) -> None:
    program, record, log = PROGRAMS / "with_numba.py", tmp_path / "run.json", tmp_path / "run.sarif"
    done = weft_exec("--json", str(record), "--sarif", str(log), "python", str(program), "bug")
    assert done.returncode == 1 and "ILLEGAL_ADDRESS" in done.stderr
    (finding,) = json.loads(record.read_text())["findings"]
    place = (finding["file"], finding["line"])
    assert (finding["kernel"], finding["code"], place) == (
        "__main__::shift",
        "M101",
        (str(program), line_of(program, "# planted")),
    )
    (result,) = json.loads(log.read_text())["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region["startLine"] == line_of(program, "# planted")


@needs("cupy")
def test_cupy_runs_unmodified(weft_exec: Exec) -> None:
    done = weft_exec("python", str(PROGRAMS / "with_cupy.py"), "sort")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    # The wheel has machine code for this GPU, and PTX for another only: the end says what ran.
    assert "weft: PTX for sm_120 ran in place of machine code for sm_89" in done.stderr
    assert "registers of" not in done.stderr, "ptxas takes that PTX for its own target"


@needs("cupy")
def test_a_bug_in_a_raw_kernel_of_cupy_is_named_by_its_line(weft_exec: Exec, tmp_path: Path) -> None:
    program, record = PROGRAMS / "with_cupy.py", tmp_path / "run.json"
    done = weft_exec("--json", str(record), "python", str(program), "bug")
    assert done.returncode == 1 and "cudaErrorIllegalAddress" in done.stderr
    (finding,) = json.loads(record.read_text())["findings"]
    # Its source is a text that begins at the line of SOURCE.
    line = line_of(program, "if (i <= n)") - line_of(program, "SOURCE = ") + 1
    assert (finding["kernel"], finding["code"], finding["line"]) == ("axpy", "M101", line)


@needs("pycuda")
def test_pycuda_runs_unmodified(weft_exec: Exec) -> None:
    if find_nvcc() is None:
        pytest.skip("PyCUDA compiles by nvcc")
    done = weft_exec("python", str(PROGRAMS / "with_pycuda.py"))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    done = weft_exec("python", str(PROGRAMS / "with_pycuda.py"), "bug")
    assert done.returncode != 0 and "weft: multiply: M101 out-of-bounds read" in done.stderr
