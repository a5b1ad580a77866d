"""Kills, full disks, restarts and hostile candidates: none may lose, duplicate or change a verdict.

    python benchmarks/faults.py [--quick]

Four benchmarks, each of which can be run alone:

- fault_driver.py: drivers of searches are killed (`driver_kills`, `lost`, `duplicates`),
- fault_workers.py: workers are killed (`worker_kills`, `wrong`; lost and duplicates are added to the drivers'),
- fault_store.py: the server is restarted, the disk is full or read-only, a worker is stopped longer than its lease,
- fault_hostile.py: candidates that attack (`hostile_runs`, `hostile_wrong_status`, `honest_rejected`).

`strays` are processes left over by any of them. The last line is one JSON object; the exit code is 1 if a count that
must be 0 is not. Needs PostgreSQL's programs, and root for the disks.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import fault_driver, fault_hostile, fault_store, fault_workers
from benchmarks.hostile_programs import PROGRAMS

NONE_OF = ("lost", "duplicates", "wrong", "hostile_wrong_status", "strays", "files_outside", "honest_rejected")
"""Counts that must be 0."""
Part = Callable[[], Mapping[str, Any]]
PARTS: Mapping[str, Part] = {
    "driver": fault_driver.run,
    "workers": fault_workers.run,
    "store": fault_store.run,
    "hostile": fault_hostile.run,
}
QUICK: Mapping[str, Part] = {
    "driver": fault_driver.quick,
    "workers": fault_workers.quick,
    "store": fault_store.quick,
    "hostile": lambda: fault_hostile.run(1, only=[each.name for each in PROGRAMS[:3]], honest=3),
}


def summary(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the totals, then the figures of each part."""
    driver, workers, store, hostile = (parts[name] for name in PARTS)
    return {
        "driver_kills": driver["driver_kills"],
        "lost": driver["lost"] + driver["changed"] + workers["lost"] + store["restart_lost"] + store["told_lost"],
        "duplicates": driver["duplicates"] + workers["duplicates"] + store["restart_duplicates"],
        "worker_kills": workers["worker_kills"],
        "wrong": workers["wrong"]
        + driver["other_lineages"]
        + store["restart_wrong"]
        + store["fenced_wrong"]
        + store["unclear"]
        + store["corrupt"],
        "hostile_runs": hostile["hostile_runs"],
        "hostile_wrong_status": hostile["hostile_wrong_status"],
        "strays": sum(part.get("strays", 0) for part in parts.values()),
        "files_outside": hostile["files_outside"],
        "honest_rejected": hostile["honest_rejected"],
        **{name: dict(part) for name, part in parts.items()},
    }


def run(parts: Mapping[str, Part]) -> dict[str, Mapping[str, Any]]:
    """Run the parts; the figures of each go to stderr as soon as they are known."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, part in parts.items():
        print(f"{name}: running", file=sys.stderr, flush=True)
        found[name] = part()
        print(f"{name}: {json.dumps(dict(found[name]))}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="A few of each, in a minute or two.")
    given = parser.parse_args()
    found = summary(run(QUICK if given.quick else PARTS))
    print(json.dumps(found))
    return int(any(found[name] for name in NONE_OF))


if __name__ == "__main__":
    sys.exit(main())
