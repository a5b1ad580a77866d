"""What the virtual GPU cannot do stops the program: a message with the name and the cure, exit code 3.

With --keep-going the call returns an error code, the program goes on, and the end is still 3.
"""

from pathlib import Path

import pytest

from tests.driver.conftest import Exec

PROGRAM = str(Path("tests/driver/programs/refused.py"))

CASES = {
    "entry_point": ("cuArrayCreate", "no implementation", 801),
    "instruction": ("kernel odd", "unsupported at PTX line", 801),
    "cubin": ("a module", "compile with -lineinfo", 209),
    "attribute": ("cuLaunchKernelEx", "CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT", 801),
    "lto": ("cuLinkAddData", "LTO-IR", 801),
    "runtime": ("the CUDA runtime in ", "--cudart shared", 500),
    "device_runtime": ("cuLinkComplete", "dynamic parallelism", 801),
}


@pytest.mark.parametrize("case", CASES)
def test_it_stops_the_program(weft_exec: Exec, case: str) -> None:
    name, why, _ = CASES[case]
    done = weft_exec("python", PROGRAM, case)
    assert (done.returncode, done.stdout) == (3, "before\n"), done.stderr
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"weft: refused: {name}") and why in first and "--keep-going" in first
    assert any(line.startswith("weft: refused 1 time: ") and name in line for line in rest)


@pytest.mark.parametrize("case", CASES)
def test_or_returns_a_code_and_the_next_call_works(weft_exec: Exec, case: str) -> None:
    name, why, code = CASES[case]
    done = weft_exec("--keep-going", "python", PROGRAM, case)
    assert (done.returncode, done.stdout) == (3, f"before\nreturned {code}\nafter 0\n"), done.stderr
    assert f"weft: refused: {name}" in done.stderr and why in done.stderr


def test_no_private_table_is_handed_out(weft_exec: Exec) -> None:
    done = weft_exec("python", PROGRAM, "private_table")
    assert (done.returncode, done.stdout) == (0, "before\nreturned 500\nafter 0\n"), done.stderr


def test_invalid_ptx_is_the_programs_error_and_the_end_says_so(weft_exec: Exec) -> None:
    done = weft_exec("--keep-going", "python", PROGRAM, "invalid_ptx")
    assert (done.returncode, done.stdout) == (3, "before\nreturned 218\nafter 0\n"), done.stderr
    assert "PTX line" in done.stderr and "gap of Weft's parser" in done.stderr


def test_bytes_that_are_no_image_are_the_programs_error(weft_exec: Exec) -> None:
    done = weft_exec("python", PROGRAM, "no_image")
    assert (done.returncode, done.stdout) == (0, "before\nreturned 200\nafter 0\n"), done.stderr


def test_ptx_for_a_newer_gpu_is_the_programs_error(weft_exec: Exec) -> None:
    done = weft_exec("python", PROGRAM, "newer_gpu")
    assert (done.returncode, done.stdout) == (0, "before\nreturned 209\nafter 0\n"), done.stderr
