"""Short evaluations are leased and finished together; those leased ahead are given back, not lost."""

import time
from pathlib import Path

import pytest

from tests.fleet.queued import StandIn, queue, store_with
from weft.core.status import Status
from weft.fleet import worker as module
from weft.fleet.pace import MOST_AHEAD, Pace
from weft.fleet.terms import Event, Terms
from weft.fleet.worker import Worker
from weft.store.errors import StoreError
from weft.store.records import Happened, State
from weft.store.store import Store, open_store


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(module, "Supervisor", stand_in)
    return stand_in


def held(store: Store, owner: str = "w") -> int:
    """Return how many leases an owner has."""
    run_ids = {run.id for run in store.runs()}
    return sum(row.owner == owner for run in run_ids for row in store.evaluations(run, state=State.LEASED))


def test_several_are_leased_only_after_short_evaluations() -> None:
    pace = Pace()
    assert pace.most == 1
    for seconds, most in ((0.01, MOST_AHEAD), (0.5, 4), (3.0, 1)):
        for _ in range(8):
            pace.add(seconds)
        assert pace.most == most
    pace.add(0.0)
    assert pace.most == 1  # seven of the last eight were long


def test_short_evaluations_are_leased_and_finished_together(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 20)
    counts: list[int] = []
    judge.during = lambda number: counts.append(held(store))
    assert Worker(store, "w", Terms(once=True)).work().finished == 20
    assert counts[:2] == [1, MOST_AHEAD] and max(counts) == MOST_AHEAD
    done = [store.evaluation(row.id) for row in rows]
    assert {(row.state, row.status, row.attempts, row.token) for row in done} == {(State.DONE, "PASSED", 1, 1)}
    assert len({row.finished_at for row in done}) < 10  # in far fewer transactions than 20


def test_long_evaluations_are_leased_one_at_a_time(tmp_path: Path, judge: StandIn) -> None:
    store, _ = store_with(tmp_path / "weft.db", 3)
    counts: list[int] = []

    def during(number: int) -> None:
        time.sleep(1.1)
        counts.append(held(store))

    judge.during = during
    assert Worker(store, "w", Terms(once=True)).work().finished == 3
    assert counts == [1, 1, 1]


def test_a_result_does_not_wait_for_a_long_evaluation_after_it(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 5)
    waited: list[float] = []

    def during(number: int) -> None:
        start = time.monotonic()
        while number == 3 and store.evaluation(rows[1].id).state is not State.DONE:
            assert time.monotonic() - start < 20
            time.sleep(0.01)
        if number == 3:
            waited.append(time.monotonic() - start)

    judge.during = during
    assert Worker(store, "w", Terms(once=True)).work().finished == 5
    assert len(waited) == 1


def test_what_was_leased_ahead_of_a_long_evaluation_goes_to_other_workers(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 5)

    def during(number: int) -> None:
        start = time.monotonic()
        while number == 2 and held(store) > 1:
            assert time.monotonic() - start < 20
            time.sleep(0.05)
        if number == 2:
            assert [store.evaluation(row.id).state for row in rows[2:]] == [State.QUEUED] * 3
            assert {store.evaluation(row.id).attempts for row in rows[2:]} == {0}

    judge.during = during
    tally = Worker(store, "w", Terms(once=True)).work()
    assert (tally.finished, tally.given_back) == (5, 3)


def test_a_stopped_worker_gives_back_what_it_leased_ahead(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 6)
    worker = Worker(store, "w", Terms())
    judge.during = lambda number: worker.stop() if number == 3 else None
    tally = worker.work()
    assert (tally.finished, tally.given_back) == (3, 3)
    found = [store.evaluation(row.id) for row in rows]
    assert [row.state for row in found] == [State.DONE] * 3 + [State.QUEUED] * 3
    assert [row.attempts for row in found] == [1] * 3 + [0] * 3


def test_a_refused_evaluation_of_a_batch_does_not_affect_the_others(tmp_path: Path, judge: StandIn) -> None:
    store, first = store_with(tmp_path / "weft.db", 2)
    (stale,) = queue(store, 1, key="0" * 64)
    last = queue(store, 3)
    tally = Worker(store, "w", Terms(once=True)).work()
    assert (tally.finished, tally.refused, tally.fenced) == (5, 1, 0)
    assert {store.evaluation(row.id).attempts for row in (*first, *last)} == {1}
    assert (store.evaluation(stale.id).state, store.evaluation(stale.id).attempts) == (State.QUEUED, 0)


def test_a_lost_evaluation_of_a_batch_does_not_affect_the_others(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 4)

    def during(number: int) -> None:
        judge.status = Status.LOST if number == 2 else Status.PASSED

    judge.during = during
    tally = Worker(store, "w", Terms(once=True)).work()
    assert (tally.finished, tally.given_back) == (4, 1)
    assert [store.evaluation(row.id).attempts for row in rows] == [1, 2, 1, 1]


def test_the_heartbeat_renews_what_was_leased_ahead_and_drops_what_another_worker_took(
    tmp_path: Path, judge: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AHEAD_SECONDS", 60.0)
    store, rows = store_with(tmp_path / "weft.db", 4)

    def during(number: int) -> None:
        if number == 2:  # it holds the third and the fourth as well
            with open_store(tmp_path / "weft.db") as other:
                taken = [row for row in rows[2:] if store.evaluation(row.id).owner == "w"]
                assert len(taken) == 2
                with other.begin() as connection:
                    taking = "owner = 'x', token = 9, lease_until = lease_until + 60000000"
                    connection.exec_driver_sql(f"UPDATE evaluations SET {taking} WHERE id = {rows[3].id}")
                time.sleep(1.6)
                assert other.lease("another") is None

    judge.during = during
    happened: list[Event] = []
    tally = Worker(store, "w", Terms(lease_seconds=1.0, once=True), happened.append).work()
    assert (tally.finished, tally.fenced) == (3, 1)
    assert [event.event for event in happened if event.evaluation == rows[3].id] == ["fenced"]
    assert len(judge.seen) == 3 and store.evaluation(rows[3].id).owner == "x"


def test_results_are_kept_while_the_store_fails(
    tmp_path: Path, judge: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, rows = store_with(tmp_path / "weft.db", 5)
    finish_all, calls = store.finish_all, []

    def failing(results: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise StoreError("the disk is full")
        return finish_all(results)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "finish_all", failing)
    assert Worker(store, "w", Terms(once=True)).work().finished == 5
    finished = [event.evaluation_id for event in store.events() if event.kind is Happened.FINISHED]
    assert finished == [row.id for row in rows] and len(judge.seen) == 5
