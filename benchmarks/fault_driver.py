"""Kill the driver of a search with SIGKILL, two hundred times, and compare the results with undisturbed searches.

    python benchmarks/fault_driver.py [--kills 200] [--quick]

A search is started and its driver killed at a random moment; another driver resumes it, and is killed; and so on until
the search has ended. Then the next search starts, until enough drivers were killed. Every third search is kept in
PostgreSQL, the others in one SQLite file. Their candidates are judged fast (fault_lives.QuickProposer), so that more
kills happen during the driver's own work; a last search, with a few more kills, changes the levers of the rung `wmma`.
Checked for each:

- every evaluation that was acknowledged at a kill is there at the end, unchanged (`lost`, `changed`),
- no candidate was judged twice (`duplicates`),
- the lineage is that of the same seed without kills (`other_lineages`),
- no process is left over (`strays`).

The last line is one JSON object.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.evolve_kills import SETTINGS, acknowledged
from benchmarks.fault_lives import QuickProposer
from benchmarks.fault_mother import Mother
from benchmarks.postgres_server import PostgresServer
from weft.evolve.history import read_history
from weft.evolve.search import start_search
from weft.evolve.settings import Budget, Settings
from weft.judge.select import Choice
from weft.store.records import Happened
from weft.store.store import Store, open_store

LONGEST_LIFE_SECONDS = 6.0
KILLS_A_SEARCH = 50
"""Evaluations after which a search may end."""
ONE = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
QUICK = replace(SETTINGS, start="scalar", proposer=QuickProposer.name, choice=ONE, final=ONE, batch=3)


@dataclass
class Lives:
    """How long drivers run before they are killed: a random time up to a limit that adapts to the speed of the machine:
    it increases after a run without an evaluation, and decreases after one with some.
    """

    chance: random.Random
    longest_seconds: float = 3.0

    def draw(self) -> float:
        """Return the time until the next kill."""
        return self.chance.uniform(0.0, self.longest_seconds)

    def adapt(self, evaluations: int) -> None:
        """Adapt the limit to the evaluations of the last run. With these factors one run in four finishes one."""
        self.longest_seconds = min(
            LONGEST_LIFE_SECONDS, max(1.0, self.longest_seconds * (0.75 if evaluations else 1.1))
        )


def lineage(store: Store, run_id: int) -> list[tuple[object, ...]]:
    """Return all decisions of a search. Parents are given by position: row numbers have gaps after a kill."""
    history = list(read_history(store, run_id))
    place = {each.id: number for number, each in enumerate(history)}
    return [
        (each.digest, tuple(place[parent] for parent in each.parents), each.generation, each.status, each.score)
        for each in history
    ]


def disturbed(mother: Mother, store: Store, where: str, settings: Settings, lives: Lives, kills: int) -> dict[str, Any]:
    """Run one search to its end while its drivers are killed; return the counts."""
    run_id = start_search(store, settings).id
    seen: dict[int, Any] = {}
    found: Counter[str] = Counter()
    while True:
        driver = mother.start("drive", where, run_id)
        found["drivers"] += 1
        if found["kills"] < kills:
            end = time.monotonic() + lives.draw()
            while time.monotonic() < end and mother.ended(driver) is None:
                time.sleep(min(0.02, max(0.0, end - time.monotonic())))
        else:
            while mother.ended(driver) is None:
                time.sleep(0.1)
        found["kills"] += mother.kill(driver)
        if found["kills"] % 5 == 0:
            print(
                f"{found['kills']} kills, {len(seen)} done, {lives.longest_seconds:.1f} s", file=sys.stderr, flush=True
            )
        now = acknowledged(store, run_id)
        found["lost"] += len(seen.keys() - now.keys())
        found["changed"] += sum(now[each] != result for each, result in seen.items() if each in now)
        lives.adapt(len(now) - len(seen))
        seen = now
        code = mother.ended(driver)
        if code == 0:
            break
        if code != -signal.SIGKILL:
            raise SystemExit(f"a driver ended with {code}")
    judged = [row.candidate_id for row in store.evaluations(run_id) if row.request["for"] == "search"]
    found["evaluations"] = len(judged)
    found["duplicates"] = len(judged) - len(set(judged)) + _finished_twice(store, run_id)
    return {**found, "lineage": lineage(store, run_id)}


def undisturbed(mother: Mother, store: Store, settings: Settings) -> list[tuple[object, ...]]:
    """Return the lineage of the same search without kills."""
    run_id = start_search(store, settings).id
    driver = mother.start("drive", store.where, run_id)
    while (code := mother.ended(driver)) is None:
        time.sleep(0.1)
    if code != 0:
        raise SystemExit(f"the undisturbed driver ended with {code}")
    return lineage(store, run_id)


def run(*, kills: int = 200, budget: int = 10, real_kills: int = 8, seed: int = 0) -> dict[str, Any]:
    """Run searches, each with a budget of evaluations, until enough drivers were killed; `real_kills` more in a
    search with levers.
    """
    start, lives = time.monotonic(), Lives(random.Random(seed))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, PostgresServer() as server:
        folder = Path(name)
        places = str(folder / "killed.db"), server.new_database()
        with Mother(folder) as mother, open_store(folder / "quiet.db") as quiet:
            while found["kills"] < kills + real_kills:
                number = found["searches"]
                left = kills - found["kills"]
                settings = replace(QUICK if left > 0 else SETTINGS, seed=1 + number, budget=Budget(evaluations=budget))
                on_server = number % 3 == 1
                where = places[on_server]
                share = min(KILLS_A_SEARCH, left) if left > 0 else kills + real_kills - found["kills"]
                with open_store(where) as store:
                    result = disturbed(mother, store, where, settings, lives, share)
                    found["other_lineages"] += result.pop("lineage") != undisturbed(mother, quiet, settings)
                found.update(result)
                found["kills_over_postgresql"] += result["kills"] if on_server else 0
                found["searches"] += 1
                print(f"searches {found['searches']}: {dict(found)}", file=sys.stderr, flush=True)
            found["strays"] += mother.close()
    return {"driver_kills": found.pop("kills"), **found, "seconds": round(time.monotonic() - start, 1)}


def quick() -> dict[str, Any]:
    """Run the small version of CI."""
    return run(kills=3, budget=2, real_kills=0)


def _finished_twice(store: Store, run_id: int) -> int:
    after, finished = 0, Counter[int | None]()
    while events := store.events(after):
        mine = [event for event in events if event.run_id == run_id and event.kind is Happened.FINISHED]
        finished.update(event.evaluation_id for event in mine)
        after = events[-1].id
    return sum(count > 1 for count in finished.values())


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--budget", type=int, default=10, help="Evaluations of each search.")
    parser.add_argument("--real-kills", type=int, default=8, help="In a search with levers, at the end.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="A few kills.")
    given = parser.parse_args()
    asked = {"kills": given.kills, "budget": given.budget, "real_kills": given.real_kills, "seed": given.seed}
    print(json.dumps(quick() if given.quick else run(**asked)))


if __name__ == "__main__":
    main()
