"""Time to verdict: seconds of `weft check RUNG` from the command to its last line, with an empty and a warm cache.

    python benchmarks/time_to_verdict.py [RUNG ...] [--jobs N] [--rounds 1] [--mission]

Each rung's default selection is judged in a fresh process, start-up included. Cold: the cache is empty, so that the
kernel, its -G build and the functions of the virtual GPU are compiled. Warm: the same command again, best of
the rounds. --mission adds `weft check wmma --shapes mission`. CPU seconds are those of all processes together: on a
machine with other work, compare these. Python may keep its compiled modules, as in an installation, even where
PYTHONDONTWRITEBYTECODE is set. Progress goes to stderr; the last line of stdout is one JSON object.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from weft.kernels.ladder import RUNGS


class Seconds(NamedTuple):
    """What a command took."""

    wall: float
    cpu: float


def seconds(command: Sequence[str], cache: Path) -> Seconds:
    """Return the seconds of a command that must pass."""
    start, before = time.perf_counter(), cpu_seconds()
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", "weft", *command],
        env={**kept, "WEFT_CACHE": str(cache), "WEFT_PROGRESS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"weft {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return Seconds(round(time.perf_counter() - start, 2), round(cpu_seconds() - before, 2))


def cpu_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rungs", nargs="*", default=list(RUNGS), metavar="RUNG")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--mission", action="store_true")
    options = parser.parse_args()
    commands = {rung: ["check", rung] for rung in options.rungs}
    if options.mission:
        commands["wmma --shapes mission"] = ["check", "wmma", "--shapes", "mission"]
    cold: dict[str, Seconds] = {}
    warm: dict[str, Seconds] = {}
    for name, command in commands.items():
        asked = [*command, "--jobs", str(options.jobs)]
        with tempfile.TemporaryDirectory() as folder:
            cold[name] = seconds(asked, Path(folder))
            warm[name] = min(seconds(asked, Path(folder)) for _ in range(options.rounds))
        text = ", ".join(
            f"{word} {each.wall} s (CPU {each.cpu} s)" for word, each in (("cold", cold[name]), ("warm", warm[name]))
        )
        print(f"{name}: {text}", file=sys.stderr, flush=True)
    record: dict[str, object] = {"jobs": options.jobs}
    for word, found in (("cold", cold), ("warm", warm)):
        record[f"{word}_s"] = {name: each.wall for name, each in found.items()}
        record[f"{word}_cpu_s"] = {name: each.cpu for name, each in found.items()}
        record[f"{word}_max_s"] = max(each.wall for each in found.values())
    print(json.dumps(record))


if __name__ == "__main__":
    main()
