"""Test suites of CUDA clients, unmodified, under `weft exec`: how many of their tests pass, and why the others do not.

    python benchmarks/programs.py --cuda-core CHECKOUT --cupy CHECKOUT --pycuda CHECKOUT --numba CHECKOUT
        [--sample 0.1] [--programs FOLDER] [--seconds 600] [--jobs 1] [--results FOLDER] [--write]

CHECKOUT is a folder with the client's sources; numba-cuda has its tests in the package. Each test file is one run of
`weft exec --keep-going --findings report python -m pytest FILE`, with memcheck and synccheck. --sample takes every n-th
file of a suite. --programs is a folder of CUDA programs (*.cu) that check themselves; each is compiled by nvcc with the
static and with the shared runtime. Progress goes to stderr; the last line of stdout is one JSON object. --write makes
docs/reference/programs.md of all that is in the folder of results.
"""

import argparse
import collections
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "programs.md"

CUDA_CORE = """test_context test_device test_event test_launcher test_linker test_memory test_module test_program
    test_stream test_utils test_strided_layout test_object_protocols test_host test_helpers""".split()
CUPY = """core_tests/test_raw core_tests/test_elementwise core_tests/test_userkernel core_tests/test_reduction
    core_tests/test_ndarray_reduction core_tests/test_ndarray_unary_op creation_tests/test_basic
    creation_tests/test_ranges
    indexing_tests/test_indexing logic_tests/test_comparison manipulation_tests/test_shape manipulation_tests/test_join
    math_tests/test_rounding math_tests/test_explog sorting_tests/test_sort sorting_tests/test_search""".split()

STRIPPED = "a CUDA runtime in a stripped file (cuda.bindings.runtime)"
MACHINE_CODE = "a library of machine code (cuBLAS, cuFFT …)"
LEFT_OUT = (STRIPPED, MACHINE_CODE)
"""Not counted in the rate; their number is on the page."""

REASONS = (
    (r"lib(cublas|cusolver|cufft|curand|cusparse|cudnn|cutensor|nccl|cudss)\S*so", MACHINE_CODE),
    (r"nvml", "NVML"),
    (r"texture|surface|cuArray|mipmap", "textures and arrays"),
    (r"\bipc|cuIpc", "IPC between processes"),
    (r"graph|capture", "graphs and capture"),
    (r"cluster", "clusters"),
    (r"ModuleNotFoundError|ImportError|No module named|FileNotFoundError", "something is not installed"),
    (r"NOT_SUPPORTED|\b801\b|NotSupported", "an entry point or a use of it that is refused (801)"),
    (r"NO_BINARY_FOR_GPU|\b209\b", "machine code without PTX (209)"),
    (r"Regex pattern did not match", "another text than the test expects"),
)
"""Text of a failure → reason, in this order."""


@dataclass(frozen=True)
class Suite:
    """Test files of one client."""

    name: str
    files: tuple[Path, ...]
    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Of pytest."""


@dataclass
class Counts:
    """What happened to the tests of a suite."""

    passed: int = 0
    skipped: int = 0
    reasons: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: list[tuple[str, str]] = field(default_factory=list)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: list[str] = field(default_factory=list)
    launches: int = 0
    files: int = 0

    @property
    def failures(self) -> int:
        """Return how many tests did not pass."""
        return sum(self.reasons.values())

    @property
    def needed(self) -> int:
        """Return how many of them needed what Weft does not claim: a stripped runtime, a library of machine code."""
        return sum(number for reason, number in self.reasons.items() if reason in LEFT_OUT)

    @property
    def rate(self) -> float:
        """Return the share of tests that passed, of those that were not skipped and need no stripped runtime."""
        ran = self.passed + self.failures - self.needed
        return self.passed / ran if ran else 0.0


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
        options_of_pytest = ("--import-mode=importlib", "-p", "conftest", "--pyargs")
        yield Suite("numba_cuda", found, folder, {"PYTHONPATH": f"{options.numba}/testing"}, options_of_pytest)
    if options.pycuda:
        folder = Path(options.pycuda) / "test"
        yield Suite("pycuda", tuple(sorted(folder.glob("test_*.py"))), folder, {"PYTHONPATH": options.pycuda_site})
    if options.cupy:
        folder = Path(options.cupy) / "tests"
        yield Suite(
            "cupy", tuple(folder / "cupy_tests" / f"{name}.py" for name in CUPY), folder, {"CUPY_TEST_GPU_LIMIT": "1"}
        )


def run_file(suite: Suite, file: Path, seconds: int) -> tuple[Path | None, dict[str, Any]]:
    """Run one file; return pytest's XML (None if there is none) and the record of `weft exec`."""
    folder = Path(tempfile.mkdtemp(prefix="weft-programs-"))
    report, record = folder / "junit.xml", folder / "run.json"
    command = [sys.executable, "-m", "weft", "exec", "--keep-going", "--findings", "report", "--json", str(record)]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}", *suite.arguments]
    tests = f"numba.cuda.tests.{file.parent.name}.{file.stem}" if suite.name == "numba_cuda" else str(file)
    command += [sys.executable, "-m", "pytest", *options, tests]
    paths = [suite.variables.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    variables = os.environ | suite.variables | {"PYTHONPATH": ":".join(filter(None, paths))}
    try:
        subprocess.run(command, cwd=suite.folder, env=variables, timeout=seconds, capture_output=True)
    except subprocess.TimeoutExpired:
        return None, {}
    found = json.loads(record.read_text()) if record.exists() else {}
    return (report if report.exists() else None), found


def reason_of(message: str, stripped: bool) -> str:
    """Return the reason of a failure by its message. `stripped`: a runtime in a stripped file was refused."""
    if stripped and "cudaErrorSymbolNotFound" in message:
        return STRIPPED
    found = (reason for pattern, reason in REASONS if re.search(pattern, message, re.IGNORECASE))
    return next(found, "another reason")


def count(counts: Counts, file: Path, report: Path | None, record: dict[str, Any]) -> None:
    """Add the tests of one file."""
    counts.files += 1
    counts.launches += record.get("launches", 0)
    counts.findings += [f"{row['kernel']}: {row['text']}" for row in record.get("findings", ())]
    for row in record.get("refused", ()):
        counts.refusals[re.sub(r"\S*/(?=\S)", "", row["what"])] += row["times"]
    if report is None:
        counts.reasons["the file did not end (time, or a crash)"] += 1
        counts.failed.append((file.stem, "the file did not end"))
        return
    stripped = any(row["what"].startswith("the CUDA runtime in ") for row in record.get("refused", ()))
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("skipped") is not None:
            counts.skipped += 1
        elif (wrong := case.find("failure")) is not None or (wrong := case.find("error")) is not None:
            message = wrong.get("message") or ""
            reason = reason_of(message, stripped)
            counts.reasons[reason] += 1
            counts.failed.append((f"{file.stem}::{case.get('name')}", f"{reason}: {' '.join(message.split())[:120]}"))
        else:
            counts.passed += 1


def run_suite(suite: Suite, options: argparse.Namespace) -> Counts:
    """Run a suite's files, some at a time."""
    counts, every = Counts(), max(1, round(1 / options.sample))
    files = suite.files if len(suite.files) < 2 * every else suite.files[::every]
    started = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for file, (report, record) in zip(
            files, pool.map(lambda f: run_file(suite, f, options.seconds), files), strict=True
        ):
            count(counts, file, report, record)
            spent = time.monotonic() - started
            sums = f"{counts.passed} passed, {counts.failures} failed, {counts.skipped} skipped"
            print(f"{suite.name} {file.stem}: {sums}, {spent:.0f} s", file=sys.stderr, flush=True)
            (options.results / f"{suite.name}.json").write_text(json.dumps(vars(counts), indent=1))
    return counts


def kept(folder: Path) -> dict[str, Counts]:
    """Return what the runs into this folder counted."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        row = json.loads(file.read_text())
        row |= {name: collections.Counter(row[name]) for name in ("reasons", "refusals")}
        found[file.stem] = Counts(**row)
    return found


def run_programs(folder: Path, seconds: int) -> tuple[int, list[str]]:
    """Compile each program with either runtime and run it; return how many ran, and those that were not right.

    `a_other.cu` is the second file of the program `a.cu`.
    """
    ran, wrong = 0, []
    for source in sorted(path for path in folder.glob("*.cu") if not path.stem.endswith("_other")):
        sources = [str(path) for path in (source, *folder.glob(f"{source.stem}_other.cu"))]
        for runtime in ("static", "shared"):
            with tempfile.TemporaryDirectory() as made:
                program = Path(made) / source.stem
                line = ["nvcc", "-arch=sm_89", "-rdc=true", "-cudart", runtime, "-o", str(program), *sources]
                subprocess.run(line, check=True, capture_output=True)
                try:
                    command = [sys.executable, "-m", "weft", "exec", str(program)]
                    end = f"exit code {subprocess.run(command, capture_output=True, timeout=seconds).returncode}"
                except subprocess.TimeoutExpired:
                    end = f"not done after {seconds} s"
            ran += 1
            if end != "exit code 0":
                wrong.append(f"{source.stem} ({runtime}): {end}")
    return ran, wrong


def page(
    results: dict[str, Counts],
    versions: Sequence[str],
    programs: int,
    wrong: Sequence[str],
    options: argparse.Namespace,
) -> str:
    """Return docs/reference/programs.md."""
    lines = [
        "# Test suites of CUDA clients under `weft exec`",
        "",
        "Made by `python benchmarks/programs.py … --write`. The suites are unmodified. A test passes by its own",
        f"assertion: nothing was compared with a GPU. memcheck and synccheck are on. {', '.join(versions)}.",
        "The rate leaves out tests that are skipped, that need a CUDA runtime in a stripped file, or a library of",
        "machine code. A file that does not end in its time counts as one failed test: what its tests do is not known.",
        *([options.note] if options.note else []),
        "",
        "| suite | files | passed | failed | of them left out | skipped | rate | launches |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, counts in results.items():
        row = [name, counts.files, counts.passed, counts.failures, counts.needed, counts.skipped, f"{counts.rate:.1%}"]
        lines.append(f"| {' | '.join(map(str, row))} | {counts.launches} |")
    if programs:
        lines += ["", f"Programs of nvcc, static and shared runtime: {programs - len(wrong)} of {programs} right."]
        lines += [f"- {row}" for row in wrong]
    for name, counts in results.items():
        lines += ["", f"## {name}: reasons", "", "| reason | tests |", "|---|---|"]
        lines += [f"| {reason} | {number} |" for reason, number in counts.reasons.most_common()]
        lines += [
            "",
            "Refused: "
            + ("; ".join(f"`{what}` {number}×" for what, number in counts.refusals.most_common(12)) or "nothing")
            + ".",
        ]
        lines += ["", "Findings: " + (str(len(counts.findings)) if counts.findings else "none") + "."]
        lines += [f"- {row[:300]}" for row in counts.findings]
        shown = [(test, why) for test, why in counts.failed if not why.startswith(LEFT_OUT)]
        lines += ["", "Failed tests, without those left out:"] if shown else []
        lines += [f"- `{test}`: {why}" for test, why in shown]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda-core", help="checkout of cuda-python")
    parser.add_argument("--cupy", help="checkout of CuPy")
    parser.add_argument("--pycuda", help="checkout of PyCUDA")
    parser.add_argument(
        "--pycuda-site", default="", help="folder in which PyCUDA is installed, if this environment has none"
    )
    parser.add_argument("--numba", help="checkout of numba-cuda (its tests are those in the installed package)")
    parser.add_argument("--programs", type=Path, help="folder of CUDA programs that check themselves")
    parser.add_argument("--sample", type=float, default=1.0, help="share of a suite's files")
    parser.add_argument("--seconds", type=int, default=600, help="for each file")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("programs_results"), help="folder of a file per suite")
    parser.add_argument("--note", default="", help="a sentence for the page: which part of the suites ran, and where")
    parser.add_argument("--write", action="store_true", help="write docs/reference/programs.md")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    for suite in suites(options):
        run_suite(suite, options)
    results = kept(options.results)
    programs, wrong = run_programs(options.programs, options.seconds) if options.programs else (0, [])
    if options.write:
        from importlib.metadata import version

        names = [f"{name} {version(name)}" for name in ("cuda-core", "numba-cuda", "cupy-cuda13x")]
        PAGE.write_text(page(results, names, programs, wrong, options))
    rates = {f"{name}_rate": round(counts.rate, 4) for name, counts in results.items()}
    print(json.dumps({**rates, "programs": programs, "programs_right": programs - len(wrong), "wrong": wrong}))


if __name__ == "__main__":
    main()
