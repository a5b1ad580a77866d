"""Complete searches with worker processes: the seed decides the lineage, whichever worker judges or is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fleet.queued import store_with
from weft.core.errors import UsageError
from weft.evolve.history import read_history
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_of
from weft.evolve.search import Search, start_search
from weft.evolve.settings import Budget, Settings
from weft.fleet.fleets import LocalFleet, ThreadFleet, Volunteers, fleet_of
from weft.fleet.terms import Terms
from weft.judge.select import Choice
from weft.store.records import State
from weft.store.store import Store, open_store
from weft.supervise.records import ScoreOn

SMALL = Settings(
    seed=1,
    batch=2,
    score_on=ScoreOn(shape="small"),
    choice=Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,)),
    final=Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,)),
    budget=Budget(evaluations=2),
)


def proposer() -> LeverProposer:
    return LeverProposer(family("sdpa"), start_of("wmma"))


def lineage(store: Store, run_id: int) -> list[tuple[object, ...]]:
    return [(m.digest, m.parents, m.generation, m.status, m.score) for m in read_history(store, run_id).members]


class KilledOnce(LocalFleet):
    """The process of one slot is killed as soon as it has leased something."""

    killed = 0
    owner: str | None = None
    killed_at = again_after = 0.0

    def tend(self) -> None:
        super().tend()
        with open_store(self.where) as store:
            if not self.killed and (leased := store.evaluations(self._run, state=State.LEASED)):
                (slot,) = [row for row in store.workers() if row.name == leased[0].owner]
                os.kill(slot.pid, signal.SIGKILL)
                KilledOnce.killed, KilledOnce.owner, KilledOnce.killed_at = leased[0].id, slot.name, time.monotonic()
            elif self.killed and not self.again_after and store.evaluation(self.killed).owner != self.owner:
                KilledOnce.again_after = time.monotonic() - self.killed_at


def test_a_slot_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "weft.db")
    with open_store(path) as store:
        run = start_search(store, SMALL)
        ended = Search(store, run.id, SMALL, proposer(), fleet=KilledOnce(path, 2)).go()
        rows = store.evaluations(run.id)
        assert {row.state for row in rows} == {State.DONE} and len(rows) == len({row.candidate_id for row in rows}) + 1
        again = store.evaluation(KilledOnce.killed)
        # An evaluation that the slot had not begun does not count as an attempt. Neither waits for the lease to expire.
        assert again.attempts in (1, 2) and again.status == "PASSED"
        assert 0 < KilledOnce.again_after < Terms().lease_seconds / 2
        assert all(row.stopped_at is not None for row in store.workers())
        by_fleet = lineage(store, run.id)
    with open_store(tmp_path / "alone.db") as store:
        run = start_search(store, SMALL)
        alone = Search(store, run.id, SMALL, proposer(), workers=1).go()
        assert lineage(store, run.id) == by_fleet
    assert ended.winner is not None and alone.winner is not None and ended.winner.digest == alone.winner.digest


def test_workers_stop_with_what_they_are_tied_to(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path / "weft.db", 0)
    command = [sys.executable, "-m", "weft", "worker", "--store", str(tmp_path / "weft.db"), "--slots", "2", "--json"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    started = [json.loads(parent.stdout.readline()) for _ in range(2)]
    assert [event["event"] for event in started] == ["started"] * 2
    parent.kill()  # killed, so it cannot stop its slots
    parent.wait()
    deadline = time.monotonic() + 20
    while any(row.stopped_at is None for row in store.workers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(store.workers()) == 2 and all(row.stopped_at is not None for row in store.workers())


def test_fleets_are_parsed_as_documented(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path / "weft.db", 0)
    here = str(tmp_path / "weft.db")
    said: list[str] = []
    local = fleet_of("local:3", store, here, said.append)
    assert isinstance(local, LocalFleet) and local.slots == 3
    volunteers = fleet_of("workers", store, here, said.append)
    assert isinstance(volunteers, Volunteers)
    for wrong in ("local", "local:0", "local:x", "worker", "rays", "ray/TPU", "ray:8.8.8.8:6379", "ray:example.org:1"):
        with pytest.raises(UsageError):
            fleet_of(wrong, store, here, said.append)


def test_a_driver_without_workers_says_what_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.fleet.fleets.QUIET_SECONDS", 0.0)
    store, _ = store_with(tmp_path / "weft.db", 0)
    said: list[str] = []
    fleet = Volunteers(store, "", said.append)
    fleet.start(1)
    fleet.tend()
    fleet.tend()
    assert len(said) == 1 and "weft worker --store" in said[0]
    threads = ThreadFleet(store, 1)  # threads of another run's driver do nothing for this one
    threads.start(2)
    while not store.workers():
        time.sleep(0.01)
    fleet.start(1)
    fleet.tend()
    threads.close()
    assert len(said) == 2
    store.register_worker("w", host="h", pid=1)
    fleet.start(1)
    fleet.tend()
    assert len(said) == 2
