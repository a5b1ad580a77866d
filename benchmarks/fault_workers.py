"""Kill workers with SIGKILL, a thousand times, and compare the verdicts with those of undisturbed workers.

    python benchmarks/fault_workers.py [--kills 1000] [--quick]

Four workers run at a time (weft.fleet.worker, each with its fork server and the candidate's process); each is killed at
a random moment and replaced. Meanwhile the queue is refilled, so that every worker has an evaluation to lose. Half of
the kills use a SQLite file, half a PostgreSQL server. Then the queue is emptied, and:

- every evaluation must be DONE (`lost` counts those that are not),
- with one result each (`duplicates`),
- equal to that of the same evaluations without any kill, byte for byte (`wrong`).

The last line is one JSON object.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.fault_lives import queue
from benchmarks.fault_mother import Mother
from benchmarks.postgres_server import PostgresServer
from weft.store.records import Happened, State
from weft.store.store import Store, open_store

AT_A_TIME = 4
LEASE_SECONDS = 8.0
LONGEST_LIFE_SECONDS = 2.0
"""The initial limit. The time of a verdict depends on the load of the machine: the limit increases while workers finish
less than FEW verdicts each, and decreases above MANY."""
FEW, MANY, KILLS_A_LOOK = 0.3, 0.7, 10
MOST_SECONDS = 600.0
"""Time limit to empty the queue."""


class Round:
    """One store, and the workers that use it and are killed."""

    def __init__(self, mother: Mother, store: Store, where: str, chance: random.Random, *, waiting: int) -> None:
        self.mother, self.store, self.where, self.chance, self.waiting = mother, store, where, chance, waiting
        self.run_id = store.start_run("faults", task="sdpa").id
        self.asked = self.started = self.kills = 0
        self._longest_life, self._done = LONGEST_LIFE_SECONDS, 0

    def disturb(self, kills: int) -> None:
        """Kill so many workers; a worker that ended by itself is an error."""
        ends: dict[int, float] = {}
        while self.kills < kills:
            self._fill_up()
            while len(ends) < AT_A_TIME:
                ends[self._start(once=False)] = time.monotonic() + self.chance.uniform(0.0, self._longest_life)
            victim = min(ends, key=lambda process: ends[process])
            time.sleep(max(0.0, ends.pop(victim) - time.monotonic()))
            if not self.mother.kill(victim):
                raise SystemExit("a worker ended before it was killed")
            self.kills += 1
            if self.kills % KILLS_A_LOOK == 0:
                self._adapt()
        for process in ends:
            self.mother.kill(process)

    def work_off(self) -> None:
        """Run workers without kills until the queue is empty or the time limit is reached."""
        end = time.monotonic() + MOST_SECONDS
        while self._left() and time.monotonic() < end:
            for worker in [self._start(once=True) for _ in range(AT_A_TIME)]:
                while self.mother.ended(worker) is None:
                    time.sleep(0.05)
            time.sleep(0.5)

    def ask(self, count: int) -> None:
        """Queue the next so many evaluations."""
        for _ in range(count):
            queue(self.store, self.run_id, self.asked)
            self.asked += 1

    def results(self) -> dict[int, tuple[str | None, str]]:
        """Return number of the request → status and result of its evaluation."""
        rows = self.store.evaluations(self.run_id, state=State.DONE)
        return {row.request["number"]: (row.status, json.dumps(row.result, sort_keys=True)) for row in rows}

    def doubled(self) -> int:
        """Return evaluations that were finished more than once, by the store's log, and requests with two rows."""
        rows = self.store.evaluations(self.run_id)
        after, finished = 0, Counter[int | None]()
        while events := self.store.events(after):
            finished.update(event.evaluation_id for event in events if event.kind is Happened.FINISHED)
            after = events[-1].id
        twice = sum(count > 1 for count in finished.values())
        return twice + len(rows) - len({row.request["number"] for row in rows})

    def _start(self, *, once: bool) -> int:
        self.started += 1
        return self.mother.start("work", self.where, f"{self.run_id}.{self.started}", LEASE_SECONDS, int(once))

    def _fill_up(self) -> None:
        queued = self.store.census().depth[State.QUEUED]
        if queued < self.waiting / 2:
            self.ask(self.waiting - queued)

    def _left(self) -> int:
        depth = self.store.census().depth
        return depth[State.QUEUED] + depth[State.LEASED]

    def _adapt(self) -> None:
        done = self.store.census().depth[State.DONE]
        each, self._done = (done - self._done) / KILLS_A_LOOK, done
        self._longest_life *= 1.25 if each < FEW else 0.8 if each > MANY else 1.0
        _say(f"{self.kills} killed, {self.asked} asked, {done} done; lives up to {self._longest_life:.1f} s")


def run(*, kills: int = 1000, seed: int = 0, waiting: int = 40) -> dict[str, Any]:
    """Make half of the kills with a file, half with a server; keep so many evaluations in the queue."""
    start = time.monotonic()
    found: Counter[str] = Counter()
    statuses: Counter[str | None] = Counter()
    with tempfile.TemporaryDirectory() as name, PostgresServer() as server:
        folder = Path(name)
        with Mother(folder) as mother:
            places = {"sqlite": str(folder / "killed.db"), "postgresql": server.new_database()}
            for number, (kind, where) in enumerate(places.items()):
                share = kills // 2 if number else kills - kills // 2
                _say(f"{share} kills over {kind}")
                with open_store(where) as store, open_store(folder / f"quiet_{kind}.db") as quiet_store:
                    disturbed = Round(mother, store, where, random.Random(seed + number), waiting=waiting)
                    disturbed.disturb(share)
                    disturbed.work_off()
                    _say("the same without kills")
                    quiet = Round(mother, quiet_store, quiet_store.where, disturbed.chance, waiting=0)
                    quiet.ask(disturbed.asked)
                    quiet.work_off()
                    results, expected = disturbed.results(), quiet.results()
                    if len(expected) != quiet.asked:
                        raise SystemExit("the undisturbed workers did not judge everything")
                    found["worker_kills"] += disturbed.kills
                    found["evaluations"] += disturbed.asked
                    found["lost"] += disturbed.asked - len(results)
                    found["wrong"] += sum(expected[each] != result for each, result in results.items())
                    found["duplicates"] += disturbed.doubled()
                    found[f"kills_over_{kind}"] += disturbed.kills
                    found["leases"] += sum(row.token for row in store.evaluations(disturbed.run_id))
                    statuses.update(status for status, _ in results.values())
            found["strays"] += mother.close()
    return {**found, "statuses": dict(statuses), "seconds": round(time.monotonic() - start, 1)}


def quick() -> dict[str, Any]:
    """Run the small version of CI."""
    return run(kills=4, waiting=3)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="A few kills.")
    given = parser.parse_args()
    print(json.dumps(quick() if given.quick else run(kills=given.kills, seed=given.seed)))


if __name__ == "__main__":
    main()
