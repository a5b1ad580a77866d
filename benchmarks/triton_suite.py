"""Triton's own unit tests on the virtual GPU and with Triton's interpreter: the same cases, counted by reason.

    git clone https://github.com/triton-lang/triton            (the tag of the installed version)
    python benchmarks/triton_suite.py triton [--sample 150] [--seed 0] [--folders language,runtime] [--gpu l4]
                                             [--seconds 120] [--plain] [--no-interpreter]

The cases are collected with `pytest --weft`; a random sample of them is run by both, in processes of 40. `passed`,
`failed` and `skipped` are pytest's; `wrong` are failures by a number or a finding where the interpreter passes;
`crashed` ended their process. A case is not applicable if Triton's own test skips it on this chip, or if it needs
cuBLAS, which is machine code. Progress goes to stderr; the last line of stdout is one JSON object.
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
CUBLAS = "Could not find `libcublas.so`"
NUMBERS = re.compile(r"AssertionError|Mismatched elements|not close|KernelFindings|[MRIS]\d{3} ")
"""Words of a failure that may be a wrong result; whether it is one, the interpreter shows."""


# -- in the process of the tests: this file is a plugin of pytest --------------------------------------------------


class TooSlow(Exception):
    """A case did not end in time."""


def _out_of_time(*_: object) -> None:
    raise TooSlow("did not end in time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _write({"case": item.nodeid, "outcome": "started"})
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(int(os.environ.get(SECONDS, "120")))
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or not report.passed:
        peak = str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        reason = _reason(report)
        outcome = "skipped" if CUBLAS in reason else report.outcome
        _write({"case": report.nodeid, "outcome": outcome, "reason": reason, "peak_mb": peak})


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


def collect(folders: Sequence[Path], root: Path, gpu: str) -> list[str]:
    command = [
        "--weft",
        "--weft-gpu",
        gpu,
        "--collect-only",
        "-q",
        "--continue-on-collection-errors",
        *map(str, folders),
    ]
    done = subprocess.run([*_pytest(root), *command], capture_output=True, text=True, cwd=root, check=False)
    cases = [line for line in done.stdout.splitlines() if re.match(r"(?!ERROR)\S+\.py::", line)]
    if not cases:
        raise SystemExit(f"no test was collected:\n{done.stdout}{done.stderr}")
    return cases


def _pytest(root: Path) -> list[str]:
    return [sys.executable, "-m", "pytest", "--rootdir", str(root), "-p", "no:cacheprovider", "-p", "no:xdist"]


def run(
    cases: Sequence[str], root: Path, options: Sequence[str], environment: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Return case → its outcome. A process that crashes costs the case it was running; the rest starts again."""
    found: dict[str, dict[str, str]] = {}
    waiting = list(cases)
    while waiting:
        file = waiting[0].partition("::")[0]  # a file that cannot be imported must not cost the cases of others
        part = [case for case in waiting if case.startswith(f"{file}::")][:AT_ONCE]
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
    parser.add_argument("path", type=Path, help="a checkout of Triton")
    parser.add_argument("--folders", default="language,runtime", help="in python/test/unit, with commas")
    parser.add_argument("--sample", type=int, default=0, help="cases; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", default="l4")
    parser.add_argument("--seconds", type=int, default=120, help="for each case")
    parser.add_argument("--plain", action="store_true", help="no checkers except those that are always on")
    parser.add_argument("--no-interpreter", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Without the checkout's own package `triton`, which is not built: pytest puts the folder of `test` on the path.
        root = Path(folder) / "test"
        shutil.copytree(options.path / "python" / "test", root)
        cases = collect([root / "unit" / name for name in options.folders.split(",")], root, options.gpu)
        total = len(cases)
        if options.sample:
            cases = sorted(random.Random(options.seed).sample(cases, min(options.sample, total)))
        limits = {SECONDS: str(options.seconds)}
        ours = run(
            cases, root, ["--weft", "--weft-gpu", options.gpu, *(["--weft-plain"] if options.plain else [])], limits
        )
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        theirs: dict[str, dict[str, str]] = {}
        if not options.no_interpreter:
            theirs = run(cases, root, ["--device", "cpu"], {**limits, "TRITON_INTERPRET": "1"})
    print(json.dumps(summary(cases, ours, theirs) | {
        "collected": total, "seed": options.seed, "gpu": options.gpu, "triton": version("triton"),
        "torch": version("torch"), "peak_gb": round(peak, 2),
    }))  # fmt: skip


def summary(cases: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    counts = Counter(ours[case]["outcome"] for case in cases)
    applicable = len(cases) - counts["skipped"]
    wrong = [
        case
        for case in cases
        if ours[case]["outcome"] == "failed"
        and NUMBERS.search(ours[case]["reason"])
        and theirs.get(case, {}).get("outcome") == "passed"
    ]
    reasons = {
        outcome: Counter(ours[case]["reason"] for case in cases if ours[case]["outcome"] == outcome).most_common()
        for outcome in ("failed", "crashed", "skipped")
    }
    return {
        "cases": len(cases),
        "applicable": applicable,
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped", "crashed")},
        "passed_percent": round(100 * counts["passed"] / max(applicable, 1), 2),
        "wrong": len(wrong),
        "wrong_cases": wrong,
        "failed_cases": [case for case in cases if ours[case]["outcome"] in ("failed", "crashed")],
        "reasons": reasons,
        "interpreter": dict(Counter(row["outcome"] for row in theirs.values())),
    }


if __name__ == "__main__":
    main()
