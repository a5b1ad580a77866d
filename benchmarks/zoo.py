"""Diagnoses the bug zoo: is each bug named with its stage and cause, and is nothing reported for right kernels?

    python benchmarks/zoo.py [--only Z12,Z05-split_k] [--part bugs|twins|rungs|hopper]

One process runs one kernel after another; seconds are wall-clock time, from the file to the diagnosis, and CPU time,
which other load does not change. `named` is the right stage (or one the zoo accepts instead) with the right cause
first; `stage_right` accepts only the zoo's own stage.
A false alarm is any report for a twin, for a right kernel that was once reported, or for an unmodified rung.
The last line is one JSON object.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.zoo.bug import Bug
from tests.zoo.diagnosed import diagnose_bug, named
from tests.zoo.hopper import HOPPER
from tests.zoo.transplants import TRANSPLANTS
from tests.zoo.zoo import CORRECT, ZOO
from weft.diagnose.conclusion import sentence
from weft.diagnose.diagnose import diagnose
from weft.diagnose.records import Diagnosis
from weft.judge.select import find_candidate
from weft.kernels.ladder import RUNGS

PARTS = ("bugs", "twins", "rungs", "hopper")


def main() -> None:
    """Diagnose all, or some, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="ids of bugs, separated by commas")
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all parts")
    options = parser.parse_args()
    parts, only = options.part or PARTS, [name for name in options.only.split(",") if name]
    chosen = [bug for bug in (*ZOO, *TRANSPLANTS) if not only or bug.id in only]
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "bugs" in parts:
            result |= bugs(chosen, Path(folder))
        alarms = []
        if "twins" in parts:
            alarms += twins(chosen, Path(folder))
        if "rungs" in parts and not only:
            alarms += right_kernels()
        if "hopper" in parts and not only:
            of_hopper = bugs(list(HOPPER), Path(folder))
            result |= {
                f"hopper_{name}": of_hopper[name] for name in ("transplanted", "transplanted_named", "not_named")
            }
    print(json.dumps({**result, "false_alarms": len(alarms), "alarms": alarms}))


def bugs(chosen: list[Bug], folder: Path) -> dict[str, object]:
    """Compare each bug's diagnosis with the zoo's expectation."""
    rows, seconds, busy = [], {}, {}
    for bug in chosen:
        start, cpu = time.perf_counter(), time.process_time()
        row = named(bug, diagnose_bug(bug, folder))
        seconds[bug.id], busy[bug.id] = round(time.perf_counter() - start, 1), round(time.process_time() - cpu, 1)
        rows.append(row)
        marks = [
            "stage" if row.stage_right else f"STAGE {row.stage or 'none'}, not {bug.stage}",
            "cause" if row.cause_right else f"CAUSE {row.cause or 'none'}, not {bug.cause}",
            "line" if row.line_right else f"LINE {row.line}, not {bug.faulty_line()}",
        ]
        print(f"{bug.id:<16}{seconds[bug.id]:6.1f} s  {row.cause:<24}" + "; ".join(marks), flush=True)
    zoo, moved = ([row for row in rows if row.bug.kind == kind] for kind in ("zoo", "transplant"))
    with_line = [row for row in rows if row.bug.faulty_line()]
    return {
        "zoo": len(zoo),
        "zoo_named": sum(row.stage_right and row.cause_right for row in zoo),
        "transplanted": len(moved),
        "transplanted_named": sum(row.stage_right and row.cause_right for row in moved),
        "transplanted_stage_right": sum(row.stage_right for row in moved),
        "stage_right": sum(row.stage == row.bug.stage for row in rows),
        "lines": len(with_line),
        "lines_right": sum(row.line_right for row in with_line),
        "zoo_lines": sum(row.bug.kind == "zoo" for row in with_line),
        "zoo_lines_right": sum(row.line_right for row in with_line if row.bug.kind == "zoo"),
        "wrong_lines": [row.bug.id for row in with_line if not row.line_right],
        "not_named": [row.bug.id for row in rows if not (row.stage_right and row.cause_right)],
        "seconds_each": seconds,
        "slowest_seconds": max(seconds.values(), default=0.0),
        "cpu_seconds_each": busy,
        "slowest_cpu_seconds": max(busy.values(), default=0.0),
    }


def twins(chosen: list[Bug], folder: Path) -> list[str]:
    """Return the reports for the same files with the bug fixed, at the same workloads."""
    alarms: list[str] = []
    seen = set()
    for bug in chosen:
        key = bug.text(fixed=True), bug.shape, bug.regime, bug.mask, tuple(bug.twin_flags)
        if key not in seen:
            seen.add(key)
            alarms += alarm(f"twin of {bug.id}", diagnose_bug(bug, folder, fixed=True))
    return alarms


def right_kernels() -> list[str]:
    """Return the reports for right kernels, on the default workloads of `weft diagnose`."""
    alarms: list[str] = []
    for target in (*map(str, CORRECT), *RUNGS):
        alarms += alarm(Path(target).name, diagnose(*find_candidate(target, task=None)))
    return alarms


def alarm(name: str, diagnosis: Diagnosis) -> list[str]:
    """Return the report for one kernel; empty if there is none."""
    said = [] if diagnosis.healthy and not diagnosis.causes else [f"{name}: {sentence(diagnosis)}"]
    print(f"{name:<24}{diagnosis.seconds:6.1f} s  {said[0] if said else 'nothing'}", flush=True)
    return said


if __name__ == "__main__":
    main()
