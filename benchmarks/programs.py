"""Test suites of CUDA clients, unmodified, under `weft exec`: how many of their tests pass, and why the others do not.

    python benchmarks/programs.py --cuda-core CHECKOUT --cupy CHECKOUT --pycuda CHECKOUT --numba CHECKOUT
        [--sample 0.1] [--tests-per-file N] [--group 1] [--only PATTERN] [--tools all] [--seconds 600]
        [--test-seconds 200] [--programs FOLDER] [--jobs 1] [--results FOLDER] [--resume] [--write]

CHECKOUT is a folder with the client's sources; numba-cuda has its tests in the package. Each --group of test files is
one run of `weft exec --keep-going --findings report python -m pytest FILES`, with memcheck and synccheck. --sample
takes every n-th file of a suite. --programs is a folder with checkouts of public CUDA programs (public_programs.py says
which). Progress goes to stderr; the last line of stdout is one JSON object. --write makes docs/reference/programs.md of
all that is in the folder of results. CuPy and PyCUDA call nvcc: CUDA_PATH and PATH must name it.
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from programs_page import ENDED, Counts, count, kept, page
from public_programs import run_all

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "programs.md"

CUDA_CORE = """test_context test_device test_event test_launcher test_linker test_memory test_module test_program
    test_stream test_utils test_strided_layout test_object_protocols test_host test_helpers test_cuda_utils
    test_enum_coverage test_managed_memory_warning test_memory_peer_access test_memory_peer_access_utils
    test_program_compile_cache test_utils_dlpack memory/test_copy_batch memory/test_copy_batch_options
    memory/test_copy_single_options memory/test_managed_ops graph/test_graph_builder
    graph/test_graph_builder_conditional graph/test_graph_definition graph/test_graph_definition_errors
    graph/test_graph_definition_integration graph/test_graph_definition_lifetime graph/test_graph_definition_mutation
    graph/test_graph_memory_resource graph/test_graph_node_update graph/test_graph_update graph/test_options""".split()
"""Without IPC, textures, green contexts, graphics, checkpoints, NVML (system), examples, Cython, device launches."""
CUPY = """core_tests/test_elementwise core_tests/test_userkernel core_tests/test_reduction
    core_tests/test_ndarray_reduction core_tests/test_ndarray_unary_op core_tests/test_ndarray_adv_indexing
    core_tests/test_ndarray_copy_and_view core_tests/test_cub_reduction core_tests/test_internal core_tests/test_ndarray
    creation_tests/test_basic creation_tests/test_ranges creation_tests/test_from_data
    indexing_tests/test_indexing indexing_tests/test_generate indexing_tests/test_insert
    logic_tests/test_comparison logic_tests/test_truth manipulation_tests/test_shape manipulation_tests/test_join
    manipulation_tests/test_dims manipulation_tests/test_transpose manipulation_tests/test_tiling
    manipulation_tests/test_rearrange math_tests/test_rounding math_tests/test_explog math_tests/test_arithmetic
    math_tests/test_trigonometric math_tests/test_sumprod sorting_tests/test_sort sorting_tests/test_search
    core_tests/test_raw""".split()


@dataclass(frozen=True)
class Suite:
    """Test files of one client."""

    name: str
    files: tuple[Path, ...]
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Of pytest."""
    options: tuple[str, ...] = ()
    """Of weft exec."""


def suites(options: argparse.Namespace) -> Iterator[Suite]:
    """Yield the suites that were asked for."""
    if options.cuda_core:
        folder = Path(options.cuda_core) / "cuda_core" / "tests"
        helpers = str(Path(options.cuda_core) / "cuda_python_test_helpers")
        found = tuple(folder / f"{name}.py" for name in CUDA_CORE if (folder / f"{name}.py").exists())
        yield Suite("cuda_core", found, folder, {"PYTHONPATH": helpers})
    if options.numba:
        spec = importlib.util.find_spec("numba_cuda")
        assert spec and spec.submodule_search_locations
        folder = Path(spec.submodule_search_locations[0]) / "numba" / "cuda" / "tests"
        found = tuple(sorted([*folder.glob("cudadrv/test_*.py"), *folder.glob("cudapy/test_*.py")]))
        # Tests of the package are found by name: numba's parts are in two folders. The fixtures are in the checkout.
        options_of_pytest = (
            "--import-mode=importlib",
            "-o",
            "consider_namespace_packages=true",
            "-p",
            "conftest",
            "--pyargs",
        )
        yield Suite("numba_cuda", found, folder, {"PYTHONPATH": f"{options.numba}/testing"}, options_of_pytest)
    if options.pycuda:
        folder = Path(options.pycuda) / "test"
        found = tuple(sorted(folder.glob("test_*.py")))
        # Its tests of 2^32 elements skip themselves on a GPU with less memory.
        small = ("--memory", "4")
        yield Suite("pycuda", found, folder, {"PYTHONPATH": options.pycuda_site}, options=small)
    if options.cupy:
        folder = Path(options.cupy) / "tests"
        yield Suite(
            "cupy", tuple(folder / "cupy_tests" / f"{name}.py" for name in CUPY), folder, {"CUPY_TEST_GPU_LIMIT": "1"}
        )


def run_files(suite: Suite, files: Sequence[Path], options: argparse.Namespace) -> list[Any]:
    """Run files in one process; return their rows: of tests, and of each run of `weft exec`.

    A test that crashes the process or does not end is one failed test: pytest is started again behind it.
    """
    folder = options.results / suite.name
    folder.mkdir(parents=True, exist_ok=True)
    rows = folder / f"{files[0].parent.name}.{files[0].stem}.jsonl"
    if rows.exists() and options.resume and any('"finished"' in line for line in rows.open()):
        return [json.loads(line) for line in rows.read_text().splitlines()]
    rows.unlink(missing_ok=True)
    log = rows.with_suffix(".log")
    log.unlink(missing_ok=True)
    tests = [name_of(suite, file) for file in files]
    paths = [suite.variables.get("PYTHONPATH", ""), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    variables = os.environ | suite.variables | {"PYTHONPATH": ":".join(filter(None, paths)), "WEFT_ROWS": str(rows)}
    variables["WEFT_TESTS_PER_FILE"] = str(options.tests_per_file)
    started = time.monotonic()
    for _ in range(LIVES):
        with tempfile.TemporaryDirectory(prefix="weft-programs-") as made:
            record = Path(made) / "run.json"
            command = [
                sys.executable,
                "-m",
                "weft",
                "exec",
                "--keep-going",
                "--findings",
                "report",
                "--json",
                str(record),
            ]
            command += [
                *(["--tools", options.tools] if options.tools else []),
                *suite.options,
                sys.executable,
                "-m",
                "pytest",
                "-q",
            ]
            command += [
                "--continue-on-collection-errors",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-p",
                "programs_rows",
                *suite.arguments,
                *tests,
            ]
            left = options.seconds - (time.monotonic() - started)
            end = watch(command, rows, log, (left, options.test_seconds), cwd=suite.folder, env=variables)
            found = json.loads(record.read_text()) if record.exists() else {}
        with rows.open("a") as lines:
            lines.write(json.dumps({"run": found, "end": end}) + "\n")
        if end in (ENDED, OUT_OF_TIME) or not running(rows):
            break
    with rows.open("a") as lines:
        lines.write(json.dumps({"finished": True, "seconds": round(time.monotonic() - started, 1)}) + "\n")
    return [json.loads(line) for line in rows.read_text().splitlines()]


def name_of(suite: Suite, file: Path) -> str:
    """Return what pytest calls a file."""
    return f"numba.cuda.tests.{file.parent.name}.{file.stem}" if suite.name == "numba_cuda" else str(file)


LIVES = 12
"""How often files are started: tests that crash or do not end, and one."""
OUT_OF_TIME = "the file's time is over"


def running(rows: Path) -> str:
    """Return the test that began and has not ended, if there is one."""
    last = {}
    for line in rows.read_text().splitlines() if rows.exists() else []:
        row = json.loads(line)
        if "test" in row:
            last = row
    return "" if not last or "end" in last else last["test"]


def watch(command: list[str], rows: Path, log: Path, limits: tuple[float, float], **where: Any) -> str:
    """Run a command until it ends, or until the file or one test is out of time; return which."""
    of_file, of_test = limits
    started = time.monotonic()
    with log.open("a") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, **where)
        try:
            while process.poll() is None:
                time.sleep(0.2)
                now = time.monotonic()
                if now - started > of_file:
                    return OUT_OF_TIME
                quiet = time.time() - rows.stat().st_mtime if rows.exists() else now - started
                if quiet > of_test and running(rows):
                    return f"not done after {of_test:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ENDED if process.returncode in (0, 1, 2, 3, 5) else f"the process ended with {process.returncode}"


def run_suite(suite: Suite, options: argparse.Namespace) -> Counts:
    """Run a suite's files, some at a time."""
    counts, every = Counts(), max(1, round(1 / options.sample))
    files = suite.files if len(suite.files) < 2 * every else suite.files[::every]
    if options.only:
        files = tuple(file for file in files if re.search(options.only, str(file)))
    started = time.monotonic()
    groups = [files[at : at + options.group] for at in range(0, len(files), options.group)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for group, rows in zip(groups, pool.map(lambda g: run_files(suite, g, options), groups), strict=True):
            count(counts, rows)
            spent = time.monotonic() - started
            sums = f"{counts.passed} passed, {counts.failures} failed, {counts.skipped} skipped"
            print(f"{suite.name} … {group[-1].stem}: {sums}, {spent:.0f} s", file=sys.stderr, flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda-core", help="checkout of cuda-python")
    parser.add_argument("--cupy", help="checkout of CuPy")
    parser.add_argument("--pycuda", help="checkout of PyCUDA")
    parser.add_argument(
        "--pycuda-site", default="", help="folder in which PyCUDA is installed, if this environment has none"
    )
    parser.add_argument("--numba", help="checkout of numba-cuda (its tests are those in the installed package)")
    parser.add_argument("--programs", type=Path, help="folder of checkouts of public programs")
    parser.add_argument("--sample", type=float, default=1.0, help="share of a suite's files")
    parser.add_argument("--group", type=int, default=1, help="files in one process")
    parser.add_argument("--seconds", type=int, default=600, help="for each process")
    parser.add_argument("--test-seconds", type=float, default=200, help="for each test")
    parser.add_argument("--tests-per-file", type=int, default=0, help="a sample of each file's tests")
    parser.add_argument("--only", default="", help="files whose path has this pattern")
    parser.add_argument("--tools", default="", help="optional checkers, as for weft exec")
    parser.add_argument("--resume", action="store_true", help="leave out files that have their rows in --results")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("programs_results"), help="folder of a file per suite")
    parser.add_argument("--note", default="", help="a sentence for the page: which part of the suites ran, and where")
    parser.add_argument("--write", action="store_true", help="write docs/reference/programs.md")
    options = parser.parse_args()
    options.results = options.results.resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    for suite in suites(options):
        run_suite(suite, options)
    results = kept(options.results)
    programs = run_all(options.programs, options) if options.programs else []
    if options.write:
        names = [f"{name} {version(name)}" for name in ("cuda-core", "numba-cuda", "cupy-cuda13x")]
        PAGE.write_text(page(results, programs, names, options.note))
    rates = {f"{name}_rate": round(counts.rate, 4) for name, counts in results.items()}
    right = sum(each.end == "right" for each in programs)
    wrong = [each.name for each in programs if each.end == "wrong"]
    print(json.dumps({**rates, "programs": len(programs), "programs_right": right, "wrong": wrong}))


if __name__ == "__main__":
    main()
