"""Kill the driver of a search with SIGKILL many times, and compare the result with an undisturbed search.

    python benchmarks/evolve_kills.py [--kills 50] [--budget 40]

One run: `weft evolve` is started and killed after a random time, then `weft evolve --resume`, for the requested number
of kills; the last one runs to its end. Every acknowledged evaluation that was in the store at a kill must be there at
the end, unchanged; no candidate may have two; and the lineage must be that of the same seed without kills. The last
line is one JSON object.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.evolve.history import read_history
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_of
from weft.evolve.search import Search, settings_of, start_search
from weft.evolve.settings import Budget, Settings
from weft.judge.select import Choice
from weft.store.records import State
from weft.store.store import Store, open_store
from weft.supervise.records import ScoreOn

SETTINGS = Settings(
    seed=1,
    score_on=ScoreOn(shape="small"),
    choice=Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), seeds=(0,)),
    final=Choice(shapes=("small",), regimes=("unit_normal",), seeds=(0,)),
)
DRIVER = """
import sys
from evolve_kills import drive
drive(sys.argv[1], int(sys.argv[2]))
"""


def drive(path: str, run_id: int) -> None:
    """Continue the run from its current state; this is the process that is killed."""
    with open_store(path) as store:
        settings = settings_of(store.run(run_id))
        Search(store, run_id, settings, LeverProposer(family("sdpa"), start_of("wmma"))).go()


def acknowledged(store: Store, run_id: int) -> dict[int, Any]:
    """Return the finished evaluations: number → result."""
    return {
        row.id: (row.candidate_id, row.key, row.status, row.result)
        for row in store.evaluations(run_id, state=State.DONE)
    }


def lineage(store: Store, run_id: int) -> list[tuple[object, ...]]:
    """Return all decisions of the search."""
    history = read_history(store, run_id)
    return [(each.digest, each.parents, each.generation, each.status, each.score) for each in history]


def torture(folder: Path, kills: int, budget: int, seed: int) -> dict[str, Any]:
    """Make one run with kills and one without, and return the differences."""
    settings, chance = replace(SETTINGS, budget=Budget(evaluations=budget)), random.Random(seed)
    path = folder / "killed.db"
    with open_store(path) as store:
        run_id = start_search(store, settings).id
    killed, lost, changed, resumes = 0, 0, 0, 0
    seen: dict[int, Any] = {}
    while True:
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(path), str(run_id)], cwd=Path(__file__).parent)
        resumes += 1
        try:
            driver.wait(timeout=chance.uniform(0.5, 8.0) if killed < kills else None)
        except subprocess.TimeoutExpired:
            driver.send_signal(signal.SIGKILL)
            driver.wait()
            killed += 1
            print(f"kill {killed}: {len(seen)} evaluations acknowledged before it", file=sys.stderr, flush=True)
        with open_store(path) as store:
            now = acknowledged(store, run_id)
            lost += len(seen.keys() - now.keys())
            changed += sum(now[each] != found for each, found in seen.items() if each in now)
            seen = now
            if driver.returncode == 0:
                done = [row.candidate_id for row in store.evaluations(run_id) if row.request["for"] == "search"]
                disturbed = lineage(store, run_id)
                break
            if driver.returncode != -signal.SIGKILL:
                raise SystemExit(f"the driver ended with {driver.returncode}")
    with open_store(folder / "quiet.db") as store:
        quiet = start_search(store, settings).id
        Search(store, quiet, settings, LeverProposer(family("sdpa"), start_of("wmma"))).go()
        undisturbed = lineage(store, quiet)
    time.sleep(1)
    return {
        "kills": killed,
        "drivers": resumes,
        "evaluations": len(done),
        "lost": lost,
        "changed": changed,
        "doubled": len(done) - len(set(done)),
        "same_lineage": disturbed == undisturbed,
        "strays": _strays(),
    }


def _strays() -> int:
    """Return fork servers whose driver has ended."""
    found = 0
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        found += b"weft.supervise.zygote" in command and parent == 1
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(torture(Path(folder), given.kills, given.budget, given.seed)))


if __name__ == "__main__":
    main()
