"""Hostile candidates under a supervisor: each must have its status in every run, and nothing may be left behind.

    python benchmarks/fault_hostile.py [--runs 20] [--only NAME …] [--honest 64] [--progress FILE]

Prints JSON last. `hostile_wrong_status` counts runs whose status is not the one of hostile_programs.py; `strays` are
processes left after a program's runs; `files_outside` new files in the temporary folder and in the cache,
which no other process may use meanwhile (set TMPDIR and WEFT_CACHE); `honest_rejected` right kernels that did not pass.
The exit code is 1 unless all of these are 0.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from honest_kernels import honest_kernels
from hostile_programs import PROGRAMS, Program

from weft.core import knobs
from weft.supervise.records import Limits
from weft.supervise.supervisor import Supervisor

Tell = Callable[[str], None]


def run(
    runs: int = 20, *, only: Sequence[str] = (), honest: int = 64, tell: Tell = lambda said: None
) -> dict[str, Any]:
    """Run all programs `runs` times, then the honest kernels."""
    chosen = [program for program in PROGRAMS if not only or program.name in only]
    start = time.monotonic()
    with Supervisor() as supervisor:
        server, level = supervisor.zygote.pid, supervisor.isolation.level
        own = _descendants()
        before = _files()
        wrong: list[str] = []
        strays: set[int] = set()
        for program in chosen:
            wrong += _repeated(supervisor, program, runs, tell)
            strays |= _descendants() - own
        rejected, judged = _honest(supervisor, honest, tell)
        strays |= _descendants() - own
        outside = sorted(_files() - before)
        alive = supervisor.zygote.pid == server
    return {
        "isolation": level,
        "hostile_programs": len(chosen),
        "hostile_runs": runs * len(chosen),
        "hostile_wrong_status": len(wrong),
        "strays": len(strays),
        "files_outside": len(outside),
        "same_fork_server": alive,
        "honest_kernels": judged,
        "honest_rejected": len(rejected),
        "wrong": [*wrong, *rejected, *outside][:50],
        "seconds": round(time.monotonic() - start, 1),
    }


def _repeated(supervisor: Supervisor, program: Program, runs: int, tell: Tell) -> list[str]:
    supervisor.limits, request = program.limits, program.request
    wrong, start = [], time.monotonic()
    for _ in range(runs):
        found = supervisor.evaluate(request)
        if found.status is not program.status:
            wrong.append(f"{program.name}: {found.status} is not {program.status}: {found.message[:200]}")
    tell(f"{program.name}: {runs - len(wrong)} of {runs} {program.status} in {time.monotonic() - start:.1f} s")
    return wrong


def _honest(supervisor: Supervisor, most: int, tell: Tell) -> tuple[list[str], int]:
    supervisor.limits = Limits(wall_seconds=300)
    rejected, judged = [], 0
    for name, request in list(honest_kernels())[:most]:
        start = time.monotonic()
        found = supervisor.evaluate(request)
        judged += 1
        tell(f"honest {name}: {found.status} in {time.monotonic() - start:.1f} s")
        if not found.passed:
            rejected.append(f"{name}: {found.status}: {found.message[:200]}")
    return rejected, judged


def _descendants() -> set[int]:
    """Return all descendants of this process."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _files() -> set[str]:
    """Return the files that candidates might have written: `weft…` among temporary files, and all of the cache."""
    temporary = {str(path) for path in Path(tempfile.gettempdir()).glob("weft*")}
    return temporary | {str(path) for path in knobs.cache_dir().rglob("*")}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--honest", type=int, default=64)
    parser.add_argument("--progress", type=Path)
    options = parser.parse_args()

    def tell(said: str) -> None:
        if options.progress is not None:
            with options.progress.open("a") as file:
                file.write(f"{time.strftime('%H:%M:%S')} {said}\n")
        else:
            print(said, flush=True)

    found = run(options.runs, only=options.only, honest=options.honest, tell=tell)
    print(json.dumps(found))
    bad = ("hostile_wrong_status", "strays", "files_outside", "honest_rejected")
    return 1 if any(found[name] for name in bad) or not found["same_fork_server"] else 0


if __name__ == "__main__":
    sys.exit(main())
