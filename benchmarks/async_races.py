"""Small kernels with one mistake in their asynchronous instructions, and their right versions, under three schedules.

    python benchmarks/async_races.py [--match TEXT]

`async_kernels/` has the right kernels; `async_mistakes.py` has edits, each of which makes one of them wrong. A mistake
is found if, whether bulk copies are carried out late, at issue or in another order, there is a finding with one of its
codes that names its line. A right kernel with a finding (an INFO note is none) or a wrong result is a false alarm. A
line for each kernel goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.async_mistakes import MISTAKES, RIGHT, Mistake, Right
from weft.core.finding_codes import Severity
from weft.core.records import Finding, inlining_chain
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

KERNELS = Path(__file__).resolve().parent / "async_kernels"
SCHEDULES = {"late": 0, "at issue": 1, "shuffled": 2}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--match", default="", help="only kernels whose name has this text")
    chosen = options.parse_args()
    wrong = [each for each in MISTAKES if chosen.match in each.title]
    right = [each for each in RIGHT if chosen.match in each.title]
    missed = dict(_told((each.title, missing(each)) for each in wrong))
    alarms = dict(_told((each.title, alarm(each)) for each in right))
    figures = {
        "wrong_kernels": len(wrong),
        "found": sum(not problem for problem in missed.values()),
        "right_kernels": len(right),
        "false_alarms": sum(bool(problem) for problem in alarms.values()),
        "schedules": len(SCHEDULES),
    }
    print(json.dumps(figures))
    return int(figures["found"] < figures["wrong_kernels"] or figures["false_alarms"] > 0)


def _told(results: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for title, problem in results:
        print(f"{title}\t{problem or 'as expected'}", file=sys.stderr, flush=True)
        yield title, problem


def missing(mistake: Mistake, schedules: Sequence[int] = tuple(SCHEDULES.values())) -> str:
    """Return what was found instead of the mistake; empty if it was found in every schedule."""
    text = mistake.text(KERNELS)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if mistake.at in line]
    assert len(lines) == 1, (mistake.title, mistake.at, lines)
    for schedule in schedules:
        findings, _ = _run(text, mistake.kernel, schedule)
        if not any(each.code in mistake.codes and lines[0] in _lines(each) for each in findings):
            found = ", ".join(f"{each.code} at {_lines(each)}" for each in findings)
            return (
                f"schedule {schedule}: no {' or '.join(mistake.codes)} at line {lines[0]}; found: {found or 'nothing'}"
            )
    return ""


def alarm(right: Right, schedules: Sequence[int] = tuple(SCHEDULES.values())) -> str:
    """Return what is wrong about a right kernel; empty if there is no finding, and its result is right."""
    for schedule in schedules:
        findings, arrays = _run(right.text(KERNELS), right.kernel, schedule)
        if findings:
            return f"schedule {schedule}: {findings[0]}"
        if not np.allclose(arrays["y"], right.expected(arrays), rtol=1e-3, atol=1e-3):
            return f"schedule {schedule}: the result is wrong"
    return ""


def _lines(finding: Finding) -> list[int]:
    """Return the lines of a finding's two accesses, with those that they are inlined into."""
    return [place.line for of in (finding.place, finding.other) for place in inlining_chain(of)]


def _run(text: str, kernel: str, schedule: int) -> tuple[list[Finding], dict[str, np.ndarray]]:
    with tempfile.TemporaryDirectory() as folder:
        for header in KERNELS.glob("*.cuh"):
            shutil.copy(header, folder)
        file = Path(folder) / f"{kernel}.cu"
        file.write_text(text)
        device = VirtualGPU("h100", schedule=schedule)
        done = load(file, gpu="h100").run(device, watch=watch_for(["all"]))
        findings = [each for each in done.run.findings if each.level is not Severity.INFO]
        return findings, {name: np.asarray(array) for name, array in done.arrays.items()}


if __name__ == "__main__":
    sys.exit(main())
