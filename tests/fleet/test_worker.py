"""How a worker finishes, drops and returns leases, and when it stops. The supervisor is a stand-in here."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.queued import LIMITS, StandIn, asked, queue, store_with
from weft.core.errors import UsageError
from weft.core.status import Status
from weft.fleet import worker as module
from weft.fleet.requests import NotOurs, request_of
from weft.fleet.terms import LOST_ATTEMPTS, Event, Terms
from weft.fleet.worker import Worker
from weft.store.errors import StoreError
from weft.store.records import State
from weft.store.store import open_store


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setattr(module, "Supervisor", stand_in)
    return stand_in


def test_any_worker_reads_the_whole_request_from_the_row(tmp_path: Path) -> None:
    store, _ = store_with(tmp_path / "weft.db", 2)
    first, second = store.lease("a"), store.lease("a")
    assert first is not None and second is not None
    assert request_of(store, first) == (asked(0), LIMITS)
    assert request_of(store, second) == (asked(1), LIMITS)
    with pytest.raises(NotOurs, match="run one version on every machine"):
        request_of(store, replace(first, key="0" * 64))
    with pytest.raises(NotOurs, match="cannot be read here"):
        request_of(store, replace(first, request={"for": "search"}))


def test_it_judges_all_that_is_queued_and_is_known_to_the_store(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 3)
    happened: list[Event] = []
    tally = Worker(store, "w", Terms(once=True), happened.append).work()
    assert (tally.finished, tally.given_back, tally.fenced, tally.refused) == (3, 0, 0, 0)
    assert judge.seen == [asked(0), asked(1), asked(2)] and judge.limits == LIMITS
    assert [store.evaluation(row.id).status for row in rows] == ["PASSED"] * 3
    assert (happened[0].event, happened[-1].event) == ("started", "stopped")
    for row in rows:
        assert [event.event for event in happened if event.evaluation == row.id] == ["leased", "finished"]
    (known,) = store.workers()
    assert known.name == "w" and known.stopped_at is not None


def test_a_workload_longer_than_the_lease_keeps_the_lease(tmp_path: Path, judge: StandIn) -> None:
    store, (row,) = store_with(tmp_path / "weft.db", 1)
    taken: list[object] = []

    def during(number: int) -> None:
        time.sleep(5)
        with open_store(tmp_path / "weft.db") as other:
            taken.append(other.lease("another"))

    judge.during = during
    # Long enough for a heartbeat, every second, to be late on a busy machine.
    assert Worker(store, "w", Terms(lease_seconds=4.0, once=True)).work().finished == 1
    assert taken == [None]
    assert (store.evaluation(row.id).owner, store.evaluation(row.id).attempts) == ("w", 1)


def test_a_result_after_the_lease_of_another_worker_is_dropped(tmp_path: Path, judge: StandIn) -> None:
    store, (row,) = store_with(tmp_path / "weft.db", 1)

    def during(number: int) -> None:
        store.reclaim("w")
        lease = store.lease("another")
        assert lease is not None
        store.finish(lease, "INCORRECT_NUMERICAL", {"by": "another"})

    judge.during = during
    tally = Worker(store, "w", Terms(once=True)).work()
    assert (tally.finished, tally.fenced) == (0, 1)
    done = store.evaluation(row.id)
    assert (done.status, done.result, done.owner) == ("INCORRECT_NUMERICAL", {"by": "another"}, "another")


def test_a_fenced_evaluation_is_ended_while_it_runs(tmp_path: Path, judge: StandIn) -> None:
    store, (row,) = store_with(tmp_path / "weft.db", 1)

    def during(number: int) -> None:
        store.reclaim("w")
        assert store.lease("another") is not None
        judge.until_interrupted(number)

    judge.during = during
    assert Worker(store, "w", Terms(lease_seconds=1.0, once=True)).work().fenced == 1
    assert store.evaluation(row.id).owner == "another"


def test_a_lost_evaluation_is_queued_again_and_given_up_in_the_end(tmp_path: Path, judge: StandIn) -> None:
    store, (row,) = store_with(tmp_path / "weft.db", 1)
    judge.status = Status.LOST
    tally = Worker(store, "w", Terms(once=True)).work()
    assert (tally.finished, tally.given_back) == (0, LOST_ATTEMPTS)
    ended = store.evaluation(row.id)
    assert (ended.state, ended.status) == (State.ABANDONED, "LOST") and store.cached(row.key) is None


def test_a_stopped_worker_finishes_its_evaluation(tmp_path: Path, judge: StandIn) -> None:
    store, rows = store_with(tmp_path / "weft.db", 2)
    worker = Worker(store, "w", Terms(grace_seconds=20))
    judge.during = lambda number: worker.stop()
    tally = worker.work()
    assert (tally.finished, tally.given_back, tally.why) == (1, 0, "asked to stop")
    assert [store.evaluation(row.id).state for row in rows] == [State.DONE, State.QUEUED]


def test_a_stopped_worker_returns_an_evaluation_that_takes_too_long(tmp_path: Path, judge: StandIn) -> None:
    store, (row,) = store_with(tmp_path / "weft.db", 1)
    worker = Worker(store, "w", Terms(grace_seconds=0.1))

    def during(number: int) -> None:
        worker.stop()
        judge.until_interrupted(number)

    judge.during = during
    tally = worker.work()
    assert (tally.finished, tally.given_back) == (0, 1)
    freed = store.evaluation(row.id)
    assert (freed.state, freed.attempts) == (State.QUEUED, 0)  # no worker was lost


def test_a_verdict_that_was_cut_off_is_not_kept(tmp_path: Path, judge: StandIn) -> None:
    """The candidate had failed already; the stop interrupted its diagnosis, so the verdict lacks it."""
    store, (row,) = store_with(tmp_path / "weft.db", 1)
    worker = Worker(store, "w", Terms(grace_seconds=0.1))

    def during(number: int) -> None:
        worker.stop()
        judge.until_interrupted(number)
        judge.interrupted.clear()

    judge.during, judge.status = during, Status.INCORRECT_NUMERICAL
    tally = worker.work()
    assert (tally.finished, tally.given_back) == (0, 1)
    assert store.evaluation(row.id).state is State.QUEUED and store.cached(row.key) is None


def test_an_evaluation_whose_fork_server_is_starting_is_ended_as_well(tmp_path: Path, judge: StandIn) -> None:
    """A server that does not exist yet cannot be ended: the first interrupts have no effect."""
    store, (row,) = store_with(tmp_path / "weft.db", 1)
    worker = Worker(store, "w", Terms(grace_seconds=0.1))

    def during(number: int) -> None:
        worker.stop()
        judge.until_interrupted(number)
        judge.interrupted.clear()
        assert judge.interrupted.wait(5)

    judge.during = during
    assert worker.work().given_back == 1
    assert store.evaluation(row.id).state is State.QUEUED


def test_it_stops_itself_when_it_is_idle(tmp_path: Path, judge: StandIn) -> None:
    store, _ = store_with(tmp_path / "weft.db", 1)
    start = time.monotonic()
    tally = Worker(store, "w", Terms(idle_seconds=0.4)).work()
    assert tally.finished == 1 and tally.why == "idle for 0.4 s" and 0.4 <= time.monotonic() - start < 10


def test_an_idle_worker_takes_what_comes_later(tmp_path: Path, judge: StandIn) -> None:
    store, _ = store_with(tmp_path / "weft.db", 0)
    worker = Worker(store, "w", Terms(idle_seconds=30))
    judge.during = lambda number: worker.stop()
    later = threading.Timer(0.3, lambda: queue(open_store(tmp_path / "weft.db"), 1))
    later.start()
    assert worker.work().finished == 1
    later.join()


def test_an_idle_worker_is_woken_long_before_it_would_read_the_queue_again(
    tmp_path: Path, judge: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_SECONDS", 60.0)
    store, _ = store_with(tmp_path / "weft.db", 0)
    worker = Worker(store, "w", Terms(longest_wait_seconds=60))
    judge.during = lambda number: worker.stop()
    later = threading.Timer(0.5, lambda: queue(open_store(tmp_path / "weft.db"), 1))
    start = time.monotonic()
    later.start()
    assert worker.work().finished == 1 and time.monotonic() - start < 20
    later.join()


def test_an_idle_worker_works_without_a_bell(tmp_path: Path, judge: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = store_with(tmp_path / "weft.db", 0)

    def no_bell() -> None:
        raise StoreError("too many connections")

    monkeypatch.setattr(store, "bell", no_bell)
    worker = Worker(store, "w", Terms(idle_seconds=30))
    judge.during = lambda number: worker.stop()
    later = threading.Timer(0.3, lambda: queue(open_store(tmp_path / "weft.db"), 1))
    later.start()
    assert worker.work().finished == 1
    later.join()


def test_an_evaluation_of_another_version_does_not_block_the_queue(tmp_path: Path, judge: StandIn) -> None:
    store, _ = store_with(tmp_path / "weft.db", 0)
    (stale,) = queue(store, 1, key="0" * 64)
    (ours,) = queue(store, 1)
    happened: list[Event] = []
    tally = Worker(store, "w", Terms(once=True), happened.append).work()
    assert (tally.finished, tally.refused) == (1, 1) and store.evaluation(ours.id).state is State.DONE
    left = store.evaluation(stale.id)
    assert (left.state, left.attempts) == (State.QUEUED, 0)
    assert any("queued by another version" in event.message for event in happened)


def test_a_worker_of_one_run_leaves_others_alone(tmp_path: Path, judge: StandIn) -> None:
    store, (other,) = store_with(tmp_path / "weft.db", 1)
    (mine,) = queue(store, 1)
    Worker(store, "w", Terms(once=True, run_id=mine.run_id)).work()
    assert [store.evaluation(row.id).state for row in (other, mine)] == [State.QUEUED, State.DONE]


def test_a_lease_too_short_for_a_heartbeat_is_refused() -> None:
    with pytest.raises(UsageError, match="before its first heartbeat"):
        Terms(lease_seconds=0.5)
