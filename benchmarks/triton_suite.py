"""Triton's own unit tests, or those of a library of Triton kernels, on the virtual GPU: counted by reason.

    git clone https://github.com/triton-lang/triton            (the tag of the installed version)
    python benchmarks/triton_suite.py triton [--sample 150] [--seed 0] [--folders language,runtime] [--gpu l4]
                                             [--seconds 120] [--at-once 40] [--plain] [--no-interpreter]

    git clone https://github.com/linkedin/Liger-Kernel         (its package is imported from PYTHONPATH)
    PYTHONPATH=Liger-Kernel/src python benchmarks/triton_suite.py Liger-Kernel --tests test/transformers
                                             [--per-file 2] [--largest 1024] [--without cutedsl,cutile]

The cases are collected with `pytest --weft`; a random sample of them is run, in processes of 40: Triton's own also with
Triton's interpreter. `--largest` leaves out cases with a larger number in their name, `--without` files with one of
these words in their path, `--per-file` then draws so many cases of each file. `passed`, `failed` and `skipped` are
pytest's, except that a library's case that passed without a launch is `not_reached`; `wrong` are failures by a number
or a finding where the interpreter passes, for a library all of these; `crashed` ended their process. A case is not
applicable if its own test skips it on this chip, if it is not reached, or if it needs cuBLAS, which is machine code.
Progress goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

REPORT, SECONDS = "TRITON_SUITE_REPORT", "TRITON_SUITE_SECONDS"
AT_ONCE = 40
INTERPRETER, INTERPRETED = ["--device", "cpu"], {"TRITON_INTERPRET": "1"}
"""Options of Triton's own conftest.py and variables with which its tests run on the interpreter."""
IDLE = 10
"""A case may take so many times its CPU time: other processes may use the machine, too."""
CUBLAS = "Could not find `libcublas.so`"
NUMBERS = re.compile(r"AssertionError|Mismatched elements|not close|KernelFindings|[MRIS]\d{3} ")
"""Words of a failure that may be a wrong result; whether it is one, the interpreter shows."""


LAUNCHED = "triton_suite_launched"
"""Attribute of a report: whether a kernel ran on the virtual GPU during the case."""
_before = [0]
"""Launches before the running case."""


# -- in the process of the tests: this file is a plugin of pytest --------------------------------------------------


class TooSlow(Exception):
    """A case did not end in time."""


def _out_of_time(*_: object) -> None:
    raise TooSlow("did not end in time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _write({"case": item.nodeid, "outcome": "started"})
    _before[0] = _launches(item)
    seconds = int(os.environ.get(SECONDS, "120"))
    for timer, name, limit in (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, IDLE * seconds),
    ):
        signal.signal(name, _out_of_time)
        signal.setitimer(timer, limit)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    setattr(report, LAUNCHED, _launches(item) > _before[0])
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        peak = str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        reason = _reason(report)
        outcome = "skipped" if CUBLAS in reason else report.outcome
        launched = "yes" if getattr(report, LAUNCHED) else "no"
        seconds = f"{report.duration:.0f}"
        row = {"outcome": outcome, "reason": reason, "launched": launched, "seconds": seconds, "peak_mb": peak}
        _write({"case": report.nodeid, **row})


def _launches(item: pytest.Item) -> int:
    """Return how many launches ran until now."""
    if not item.config.option.weft:
        return 0
    from weft.triton.device import active  # only where the plugin has activated it

    return active().launches


def _write(row: Mapping[str, str]) -> None:
    with Path(os.environ[REPORT]).open("a") as file:
        file.write(json.dumps(row) + "\n")


def _reason(report: pytest.TestReport) -> str:
    """Return the error's last line, without what differs between cases."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = [line for line in str(crash.message if crash else report.longrepr or "").splitlines() if line.strip()]
    kept = (
        lines[0] if lines and re.match(r"[\w.]+(Error|Exception|Findings|TooSlow)", lines[0]) else " ".join(lines[:2])
    )
    found = next((line for line in lines if re.match(r"[MRIS]\d{3} ", line)), "")
    return re.sub(r"0x[0-9a-f]+|\d{2,}", "N", f"{kept} {found}".strip())[:200]


# -- the process that starts them ----------------------------------------------------------------------------------


def collect(folders: Sequence[Path], root: Path, gpu: str | None) -> list[str]:
    """Return the cases that exist on a chip, or with Triton's interpreter (None): some parameters depend on it."""
    device = ["--weft", "--weft-gpu", gpu] if gpu else INTERPRETER
    command = [*_pytest(root), *device, "--collect-only", "-q", "--continue-on-collection-errors", *map(str, folders)]
    environment = {**os.environ, **({} if gpu else INTERPRETED)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root, check=False)
    cases = [line for line in done.stdout.splitlines() if re.match(r"(?!ERROR)\S+\.py::", line)]
    if not cases:
        raise SystemExit(f"no test was collected:\n{done.stdout}{done.stderr}")
    return cases


def chosen(cases: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return the sample of a library: small cases, so many of each file, so many of all, by the seed."""
    words = options.without.split(",") if options.without else []
    files: dict[str, list[str]] = {}
    for case in cases:
        file, _, name = case.partition("::")
        numbers = re.findall(r"\d+(?:\.\d+)?", name.partition("[")[2])
        small = all(float(number) <= options.largest for number in numbers)
        if small and not any(word in file for word in words):
            files.setdefault(file, []).append(case)
    draw = random.Random(options.seed)
    drawn = [case for file in files.values() for case in draw.sample(file, min(options.per_file, len(file)))]
    return sorted(draw.sample(drawn, min(options.sample or len(drawn), len(drawn))))


def _pytest(root: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", "--rootdir", str(root), "-p", "no:cacheprovider", "-p", "no:xdist"]


def run(
    cases: Sequence[str], root: Path, options: Sequence[str], environment: Mapping[str, str], at_once: int = AT_ONCE
) -> dict[str, dict[str, str]]:
    """Return case → its outcome. A process that crashes costs the case it was running; the rest starts again."""
    found: dict[str, dict[str, str]] = {}
    waiting = list(cases)
    by_file = False
    while waiting:
        file = waiting[0].partition("::")[0]
        part = [case for case in waiting if not by_file or case.startswith(f"{file}::")][:at_once]
        with tempfile.TemporaryDirectory() as folder:
            report, listed = Path(folder) / "report", Path(folder) / "cases"
            listed.write_text("\n".join(part))
            paths = {
                **os.environ,
                "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            }
            command = [*_pytest(root), "-p", "triton_suite", "-q", *options, f"@{listed}"]
            done = subprocess.run(
                command,
                env={**paths, **environment, REPORT: str(report)},
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
            )
            rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
        started = list(dict.fromkeys(row["case"] for row in rows))
        for row in rows:
            before = found.get(row["case"], {"outcome": "started"})["outcome"]
            if row["outcome"] != "started" and before in ("started", "passed"):
                found[row["case"]] = row
        for case in started:
            crashed = {"outcome": "crashed", "reason": f"the process ended with {done.returncode}"}
            found.setdefault(case, crashed)
        if not started and not by_file:  # a file that cannot be imported must not cost the cases of others
            by_file = True
            continue
        if not started:
            said = (done.stdout + done.stderr).strip().splitlines()
            found |= {
                case: {"outcome": "failed", "reason": f"not collected: {said[-1] if said else ''}"[:200]}
                for case in part
            }
            started = part
        for case in part:
            if found.get(case, {}).get("outcome") in ("failed", "crashed"):
                print(f"{case}: {found[case]['reason']}", file=sys.stderr)
        waiting = [case for case in waiting if case not in found]
        print(
            f"{len(found)}/{len(cases)} {Counter(row['outcome'] for row in found.values())}",
            file=sys.stderr,
            flush=True,
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a checkout of Triton, or of a library")
    parser.add_argument("--folders", default="language,runtime", help="in python/test/unit, with commas")
    parser.add_argument("--tests", default="", help="the tests of a library: paths in its checkout, with commas")
    parser.add_argument("--per-file", type=int, default=2, help="cases of each file of a library")
    parser.add_argument("--largest", type=int, default=1024, help="number in the name of a library's case")
    parser.add_argument("--without", default="", help="words of paths of a library's tests, with commas")
    parser.add_argument("--sample", type=int, default=0, help="cases; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", default="l4")
    parser.add_argument("--seconds", type=int, default=120, help="CPU time of each case")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="cases in one process")
    parser.add_argument("--plain", action="store_true", help="no checkers except those that are always on")
    parser.add_argument("--no-interpreter", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.tests:
            root = options.path.resolve()
            folders = [root / name for name in options.tests.split(",")]
        else:
            # Without the checkout's own package `triton`, which is not built: pytest puts the folder of `test` on the
            # path.
            root = Path(folder) / "python"
            for name in ("python/test", "python/conftest.py", "third_party/nvidia/backend/lib"):  # what the tests read
                given = options.path / name
                if given.is_dir():
                    shutil.copytree(given, Path(folder) / name)
                elif given.exists():
                    shutil.copy(given, Path(folder) / name)
            folders = [root / "test" / "unit" / name for name in options.folders.split(",")]
        found = collect(folders, root, options.gpu)
        if options.tests:
            cases = chosen(found, options)
        else:
            cases = sorted(random.Random(options.seed).sample(found, min(options.sample or len(found), len(found))))
        limits = {SECONDS: str(options.seconds)}
        weft = ["--weft", "--weft-gpu", options.gpu, *(["--weft-plain"] if options.plain else [])]
        ours = run(cases, root, weft, limits, options.at_once)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        theirs: dict[str, dict[str, str]] = {}
        if not options.no_interpreter and not options.tests:
            known = set(collect(folders, root, None))
            both = [case for case in cases if case in known]
            theirs = {case: {"outcome": "failed", "reason": "not collected"} for case in cases}
            theirs |= run(both, root, INTERPRETER, {**limits, **INTERPRETED}, options.at_once)
    if options.tests:
        _mark_not_reached(ours)
    print(json.dumps(summary(cases, ours, None if options.tests else theirs) | {
        "collected": len(found), "seed": options.seed, "gpu": options.gpu, "triton": version("triton"),
        "torch": version("torch"), "peak_gb": round(peak, 2),
    }))  # fmt: skip


def _mark_not_reached(rows: Mapping[str, dict[str, str]]) -> None:
    """Do not count as passed what passed without a kernel."""
    for row in rows.values():
        if row["outcome"] == "passed" and row["launched"] == "no":
            row |= {"outcome": "not_reached", "reason": "passed, and no kernel was launched"}


def summary(cases: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the counts; `theirs` is None for a library, whose tests have no other run to compare with."""
    counts = Counter(ours[case]["outcome"] for case in cases)
    applicable = len(cases) - counts["skipped"] - counts["not_reached"]
    wrong = [
        case
        for case in cases
        if ours[case]["outcome"] == "failed"
        and NUMBERS.search(ours[case]["reason"])
        and (theirs is None or theirs.get(case, {}).get("outcome") == "passed")
    ]
    reasons = {
        outcome: Counter(ours[case]["reason"] for case in cases if ours[case]["outcome"] == outcome).most_common()
        for outcome in ("failed", "crashed", "skipped", "not_reached")
    }
    return {
        "cases": len(cases),
        "applicable": applicable,
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped", "crashed", "not_reached")},
        "passed_percent": round(100 * counts["passed"] / max(applicable, 1), 2),
        "wrong": len(wrong),
        "wrong_cases": wrong,
        "failed_cases": [case for case in cases if ours[case]["outcome"] in ("failed", "crashed")],
        "reasons": reasons,
        "interpreter": dict(Counter(row["outcome"] for row in (theirs or {}).values())),
    }


if __name__ == "__main__":
    main()
