"""Programs that nvcc compiled, with `<<<…>>>` and a `main()`, unchanged on the virtual GPU: each checks itself."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.driver.conftest import Exec
from tests.driver.nvcc import compile_programs, find_nvcc

RIGHT = [
    "vector_add",
    "templates",
    "copies",
    "shared_memory",
    "streams",
    "grid_sync",
    "symbols",
    "occupancy",
    "two_files",
    "device_heap",
    "conditional_nodes",
    "graphs",
]
OTHERS = ["printing", "out_of_bounds", "race", "uninitialised", "refused_texture", "found_bugs"]


@pytest.fixture(scope="module")
def programs(pytestconfig: pytest.Config) -> dict[str, Path]:
    """Name → executable, linked with the shared runtime."""
    return compiled(pytestconfig, "shared")


@pytest.fixture(scope="module")
def static_programs(pytestconfig: pytest.Config) -> dict[str, Path]:
    """Name → executable that contains NVIDIA's runtime, nvcc's default."""
    return compiled(pytestconfig, "static")


def compiled(pytestconfig: pytest.Config, runtime: str) -> dict[str, Path]:
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("no nvcc, or no g++ for it: pip install -r requirements-dev.txt brings nvcc")
    assert pytestconfig.cache is not None
    return compile_programs(nvcc, pytestconfig.cache.mkdir("weft-nvcc"), [*RIGHT, *OTHERS], runtime)


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_find_themselves_right(weft_exec: Exec, programs: dict[str, Path], name: str) -> None:
    done = weft_exec("--tools", "all", str(programs[name]))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("name", RIGHT)
def test_a_runtime_inside_the_program_is_replaced(weft_exec: Exec, static_programs: dict[str, Path], name: str) -> None:
    done = weft_exec(str(static_programs[name]))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_a_bug_in_a_program_with_the_runtime_inside(weft_exec: Exec, static_programs: dict[str, Path]) -> None:
    done = weft_exec(str(static_programs["out_of_bounds"]))
    assert (done.returncode, done.stdout.splitlines()[:2]) == (1, ["launch 0", "wait 700"]), done.stderr
    assert "M101" in done.stderr and line_of("out_of_bounds", "the bug") in done.stderr


def test_a_stripped_program_with_the_runtime_inside_is_refused_by_its_file(
    weft_exec: Exec, static_programs: dict[str, Path], tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(static_programs["vector_add"])], check=True)
    done = weft_exec(str(stripped))
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    first, *_ = done.stderr.splitlines()
    assert first.startswith(f"weft: refused: the CUDA runtime in {stripped}: ") and "--cudart shared" in first
    # Tests that go on see an error code, and the end is the same.
    done = weft_exec("--keep-going", str(stripped))
    assert done.returncode != 0 and "ok" not in done.stdout and f"the CUDA runtime in {stripped}" in done.stderr


def test_what_kernels_print_comes_in_order(weft_exec: Exec, programs: dict[str, Path]) -> None:
    done = weft_exec(str(programs["printing"]))
    assert (done.returncode, done.stdout) == (0, "before\nweft! 0 2.50\nweft! 1 2.50\nafter\n"), done.stderr


def line_of(name: str, words: str) -> str:
    """Return file:line of the line of a program that contains `words`."""
    lines = Path(f"tests/driver/programs/{name}.cu").read_text().splitlines()
    return f"{name}.cu:{next(number for number, line in enumerate(lines, 1) if words in line)}"


@pytest.mark.parametrize(
    ("name", "tools", "code"),
    [("out_of_bounds", "", "M101"), ("race", "racecheck", "R102"), ("uninitialised", "initcheck", "I202")],
)
def test_planted_bugs_are_named_with_file_and_line(
    weft_exec: Exec, programs: dict[str, Path], name: str, tools: str, code: str
) -> None:
    options = ["--tools", tools] if tools else []
    done = weft_exec(*options, str(programs[name]))
    assert done.returncode == 1, done.stderr
    found = [line for line in done.stderr.splitlines() if re.search(rf"^weft: \S+: {code} ", line)]
    assert found and all(line_of(name, "the bug") in line for line in found), done.stderr


def test_a_fault_is_the_runtimes_error_until_a_reset(weft_exec: Exec, programs: dict[str, Path]) -> None:
    done = weft_exec(str(programs["out_of_bounds"]))
    assert done.stdout == "launch 0\nwait 700\nagain 700 700\nallocate 700\nreset 0 0\n", done.stderr


def test_an_entry_point_without_implementation_stops_the_program(weft_exec: Exec, programs: dict[str, Path]) -> None:
    done = weft_exec(str(programs["refused_texture"]))
    assert (done.returncode, done.stdout) == (3, "before\n"), done.stderr
    assert done.stderr.startswith("weft: refused: cudaMallocArray: ") and "no implementation" in done.stderr
    done = weft_exec("--keep-going", str(programs["refused_texture"]))
    assert (done.returncode, done.stdout) == (3, "before\nreturned 801 801\n"), done.stderr


def test_patterns_of_the_bugs_that_were_found_in_public_programs(weft_exec: Exec, programs: dict[str, Path]) -> None:
    done = weft_exec("--findings", "report", "--tools", "racecheck", str(programs["found_bugs"]))
    assert done.returncode == 1, done.stderr
    for code, kernel, bug in (
        ("M101", "small_block", "the first bug"),
        ("S304", "votes_below", "the second bug"),
        ("M101", "guard_too_wide", "the third bug"),
        ("M101", "tile_too_wide", "the fourth bug"),
        ("M101", "search_of_nan", "the fifth bug"),
        ("R102", "turned_without_barrier", "the sixth bug"),
    ):
        found = [line for line in done.stderr.splitlines() if line.startswith(f"weft: {kernel}: {code} ")]
        assert found and all(line_of("found_bugs", bug) in line for line in found), done.stderr


def test_the_runtime_of_cuda_12_has_its_own_layouts(weft_exec: Exec) -> None:
    done = weft_exec("python", "tests/driver/programs/runtime_12.py")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
