"""Time to verdict: seconds of `weft check RUNG` from the command to its last line, with an empty and a warm cache.

    python benchmarks/time_to_verdict.py [RUNG ...] [--jobs N] [--rounds 1] [--mission]

Each rung's default selection is judged in a fresh process, start-up included. Cold: the cache is empty, so that the
kernel, its -G build and the functions of the virtual GPU are compiled. Warm: the same command again, best of
the rounds. --mission adds `weft check wmma --shapes mission`. Progress goes to stderr; the last line of
stdout is one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from weft.kernels.ladder import RUNGS


def seconds(command: Sequence[str], cache: Path) -> float:
    """Return the wall seconds of a command that must pass."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "weft", *command],
        env={**os.environ, "WEFT_CACHE": str(cache), "WEFT_PROGRESS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"weft {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return round(time.perf_counter() - start, 2)


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
    cold, warm = {}, {}
    for name, command in commands.items():
        asked = [*command, "--jobs", str(options.jobs)]
        with tempfile.TemporaryDirectory() as folder:
            cold[name] = seconds(asked, Path(folder))
            warm[name] = min(seconds(asked, Path(folder)) for _ in range(options.rounds))
        print(f"{name}: cold {cold[name]} s, warm {warm[name]} s", file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "jobs": options.jobs,
                "cold_s": cold,
                "warm_s": warm,
                "cold_max_s": max(cold.values()),
                "warm_max_s": max(warm.values()),
            }
        )
    )


if __name__ == "__main__":
    main()
