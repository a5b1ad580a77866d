"""Leases, fencing and the verdict cache, with a clock that the test sets."""

import threading

import pytest
import sqlalchemy as sa

from tests.store.leasing import Clock, leased
from weft.store.errors import Fenced, NotCacheable
from weft.store.leases import MOST_LEASES
from weft.store.records import SUPERSEDED, Happened, State
from weft.store.schema import evaluations
from weft.store.store import Store


def test_an_evaluation_is_queued_once(store: Store) -> None:
    first = store.enqueue(1, 1, "k1", request={"seed": 3})
    assert store.enqueue(1, 1, "k1", request={"seed": 4}, priority=9) == first
    assert store.enqueue(1, 1, "k2").id != first.id
    assert len(store.evaluations(1)) == 2
    assert first.state is State.QUEUED
    assert first.request == {"seed": 3}


def test_the_highest_priority_then_the_oldest_is_leased_and_only_once(store: Store) -> None:
    rows = [store.enqueue(1, candidate, "k", priority=priority) for candidate, priority in ((1, 0), (2, 5), (3, 0))]
    taken = [leased(store, f"worker {number}") for number in range(3)]
    assert [lease.evaluation_id for lease in taken] == [rows[1].id, rows[0].id, rows[2].id]
    assert store.lease("late") is None
    assert {row.state for row in store.evaluations(1)} == {State.LEASED}


def test_a_lease_can_be_limited_to_one_run_or_one_evaluation(store: Store) -> None:
    other = store.start_run("evolve", task="sdpa")
    candidate = store.add_candidate(other.id, digest="d", source="s")
    store.enqueue(1, 1, "k")
    mine = store.enqueue(other.id, candidate.id, "k")
    assert leased(store, "w", run_id=other.id).evaluation_id == mine.id
    assert store.lease("w", evaluation_id=mine.id) is None


def test_an_expired_lease_is_leased_again_and_the_first_owner_is_fenced(store: Store, clock: Clock) -> None:
    store.enqueue(1, 1, "k")
    old = leased(store, "slow", seconds=60)
    clock.forward(59)
    assert store.lease("other") is None
    clock.forward(1)
    new = leased(store, "other", seconds=60)
    assert (new.evaluation_id, new.token) == (old.evaluation_id, old.token + 1)
    for refused in (
        lambda: store.finish(old, "PASSED", {"by": "slow"}),
        lambda: store.heartbeat(old),
        lambda: store.give_back(old, "stopped"),
    ):
        with pytest.raises(Fenced, match="no longer slow's"):
            refused()
    assert store.finish(new, "PASSED", {"by": "other"}).result == {"by": "other"}
    with pytest.raises(Fenced):
        store.finish(new, "UNSAFE", {"by": "again"})
    assert store.evaluation(old.evaluation_id).status == "PASSED"
    cached = store.cached("k")
    assert cached is not None
    assert cached.result == {"by": "other"}


def test_a_heartbeat_keeps_a_lease(store: Store, clock: Clock) -> None:
    store.enqueue(1, 1, "k")
    lease = leased(store, "w", seconds=60)
    for _ in range(5):
        clock.forward(50)
        lease = store.heartbeat(lease, seconds=60)
        assert store.lease("other") is None
    assert store.evaluation(lease.evaluation_id).heartbeat_at == clock.time
    assert store.finish(lease, "PASSED", {}).attempts == 1


def test_a_restarted_owner_need_not_wait_for_its_own_leases(store: Store) -> None:
    store.enqueue(1, 1, "k")
    before = leased(store, "driver")
    assert store.reclaim("another worker") == 0
    assert store.reclaim("driver") == 1
    with pytest.raises(Fenced):
        store.finish(before, "PASSED", {})
    after = leased(store, "driver")
    assert after.token > before.token
    assert store.evaluation(after.evaluation_id).attempts == 1


def test_an_evaluation_that_loses_worker_after_worker_is_abandoned(store: Store) -> None:
    store.enqueue(1, 1, "k")
    states = [store.give_back(leased(store, "w"), "the worker is gone").state for _ in range(3)]
    assert states == [State.QUEUED, State.QUEUED, State.ABANDONED]
    assert store.lease("w") is None
    assert store.cached("k") is None


def test_a_cached_verdict_answers_at_once(store: Store) -> None:
    store.enqueue(1, 1, "same key")
    store.finish(leased(store, "w"), "INCORRECT_NUMERICAL", {"gate": "tight"}, seconds=2.5)
    row = store.enqueue(1, 2, "same key")
    assert (row.state, row.status, row.result, row.cached) == (
        State.DONE,
        "INCORRECT_NUMERICAL",
        {"gate": "tight"},
        True,
    )
    assert store.lease("w") is None


def test_a_result_that_is_a_verdict_is_stored_once(store: Store) -> None:
    """Evaluations with the key of a verdict take their result from it; another result of the key is kept."""
    other = store.start_run("evolve", task="sdpa")
    again = store.add_candidate(other.id, digest="d", source="s")
    rows = [store.enqueue(1, 1, "k"), store.enqueue(1, 2, "k"), store.enqueue(1, 3, "late")]
    results = {row.id: {"est": row.candidate_id} for row in rows}
    for lease in store.lease_some("w", 3):
        status = "TIMEOUT" if lease.key == "late" else "PASSED"
        assert store.finish(lease, status, results[lease.evaluation_id]).result == results[lease.evaluation_id]
    rows.append(store.enqueue(other.id, again.id, "k"))
    results[rows[3].id] = results[rows[0].id]
    assert [store.evaluation(row.id).result for row in rows] == [results[row.id] for row in rows]
    assert [row.result for row in store.evaluations(1)] == [results[row.id] for row in rows[:3]]
    query = sa.select(evaluations.c.id).where(evaluations.c.result.is_not(sa.null())).order_by(evaluations.c.id)
    kept = store._read(lambda connection: connection.execute(query).scalars().all())
    assert kept == [rows[1].id, rows[2].id]


@pytest.mark.parametrize("status", ["TIMEOUT", "LOST", "CRASHED", "OUT_OF_MEMORY", "SOMETHING_NEW"])
def test_statuses_about_the_machine_are_never_cached(store: Store, status: str) -> None:
    store.enqueue(1, 1, "k")
    assert store.finish(leased(store, "w"), status, {}).status == status
    assert store.cached("k") is None
    with pytest.raises(NotCacheable, match=status):
        store.cache("k", status, {})
    assert store.enqueue(1, 2, "k").state is State.QUEUED


def test_the_first_verdict_of_a_key_stays(store: Store) -> None:
    store.cache("k", "PASSED", {"est": 1})
    assert store.cache("k", "UNSAFE", {"est": 2}).status == "PASSED"


def test_workers_in_threads_never_share_an_evaluation(store: Store) -> None:
    run = store.start_run("evolve", task="sdpa")
    for number in range(30):
        candidate = store.add_candidate(run.id, digest=f"n{number}", source="s")
        store.enqueue(run.id, candidate.id, f"n{number}")
    taken: list[int] = []

    def work(owner: str) -> None:
        while (lease := store.lease(owner, run_id=run.id)) is not None:
            store.finish(lease, "PASSED", {"by": owner})
            taken.append(lease.evaluation_id)

    workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(taken) == [row.id for row in store.evaluations(run.id, state=State.DONE)]
    assert len(taken) == len(set(taken)) == 30


def test_a_result_sent_twice_by_the_same_lease_counts_once(store: Store) -> None:
    store.enqueue(1, 1, "a")
    store.enqueue(1, 2, "b")
    first, second = leased(store, "w"), leased(store, "w")
    done = store.finish(first, "PASSED", {"gates": (1, 2)}, seconds=2.0)
    assert store.finish(first, "PASSED", {"gates": (1, 2)}, seconds=2.0) == done
    with pytest.raises(Fenced):
        store.finish(first, "PASSED", {"gates": (1, 3)})
    back = store.give_back(second, "stopped")
    assert store.give_back(second, "stopped") == back
    with pytest.raises(Fenced):
        store.finish(second, "PASSED", {})
    assert [event.kind for event in store.events()].count(Happened.FINISHED) == 1


def test_an_evaluation_needs_a_kind_of_worker(store: Store) -> None:
    virtual, real = store.enqueue(1, 1, "k"), store.enqueue(1, 2, "k", needs="gpu")
    assert (virtual.needs, real.needs) == ("vgpu", "gpu")
    assert leased(store, "w", needs="gpu").evaluation_id == real.id  # type: ignore[arg-type]
    assert store.lease("w", needs="gpu") is None
    assert leased(store, "w").evaluation_id == virtual.id


def test_an_evaluation_that_kills_workers_is_abandoned(store: Store, clock: Clock) -> None:
    poison, other = store.enqueue(1, 1, "poison", priority=1), store.enqueue(1, 2, "other")
    for _ in range(MOST_LEASES):
        assert leased(store, "w", seconds=10).evaluation_id == poison.id
        clock.forward(10)
    assert leased(store, "w").evaluation_id == other.id
    row = store.evaluation(poison.id)
    assert (row.state, row.status) == (State.ABANDONED, "LOST")
    assert store.cached("poison") is None


def test_the_log_has_the_events_in_order(store: Store, clock: Clock) -> None:
    row = store.enqueue(1, 1, "k")
    slow = leased(store, "slow", seconds=1)
    clock.forward(1)
    quick = leased(store, "quick")
    with pytest.raises(Fenced):
        store.finish(slow, "PASSED", {})
    store.give_back(quick, "its worker was lost")
    store.finish(leased(store, "quick"), "UNSAFE", {})
    logged = [(event.kind, event.owner, event.token, event.note) for event in store.events()]
    assert logged == [
        (Happened.LEASED, "slow", 1, ""),
        (Happened.LEASED, "quick", 2, ""),
        (Happened.FENCED, "slow", 1, ""),
        (Happened.GIVEN_BACK, "quick", 2, "its worker was lost"),
        (Happened.LEASED, "quick", 3, ""),
        (Happened.FINISHED, "quick", 3, "UNSAFE"),
    ]
    assert {event.evaluation_id for event in store.events()} == {row.id}
    assert store.events(after=store.events()[3].id) == store.events()[4:] == store.last_events(2)


def test_a_census_counts_queued_running_and_finished_evaluations(store: Store, clock: Clock) -> None:
    store.enqueue(1, 1, "k1")
    store.finish(leased(store, "w1"), "PASSED", {})
    clock.forward(100)
    store.enqueue(1, 2, "k1")  # answered by the cache, not by a worker
    for candidate, needs in ((1, "vgpu"), (2, "gpu"), (3, "gpu")):
        store.enqueue(1, candidate, "k2", needs=needs)
    store.finish(leased(store, "w2"), "TIMEOUT", {})
    started = clock.time
    leased(store, "w3", seconds=30)
    clock.forward(20)
    found = store.census(window_seconds=60)
    assert found.at == clock.time
    assert found.depth == {State.QUEUED: 1, State.LEASED: 1, State.DONE: 3, State.ABANDONED: 0}
    assert found.waiting == {"gpu": 1}
    assert found.statuses == {"PASSED": 2, "TIMEOUT": 1}
    assert (found.cached, found.recent) == (1, {"w2": 1})
    assert (found.oldest_lease_at, found.overdue) == (started, 0)
    clock.forward(10)
    assert store.census(window_seconds=200).overdue == 1
    assert store.census(window_seconds=200).recent == {"w1": 1, "w2": 1}


def test_a_superseded_evaluation_is_queued_again_on_request(store: Store) -> None:
    first = store.enqueue(1, 1, "k1", request={"version": 1}, priority=3, needs="gpu")
    second = store.supersede(first.id, "k2", request={"version": 2})
    assert (second.state, second.key, second.request) == (State.QUEUED, "k2", {"version": 2})
    assert (second.priority, second.needs, second.candidate_id) == (3, "gpu", 1)
    old = store.evaluation(first.id)
    assert (old.state, old.status, old.key) == (State.ABANDONED, SUPERSEDED, "k1") and old.finished_at is not None
    assert store.supersede(first.id, "k2", request={"version": 2}) == second  # again, after a lost answer
    assert store.census().statuses == {}
    assert store.enqueue(1, 1, "k1").id == first.id
    again = store.evaluation(first.id)
    assert (again.state, again.status, again.finished_at) == (State.QUEUED, None, None)


def test_only_queued_evaluations_are_superseded(store: Store) -> None:
    row = store.enqueue(1, 1, "k1")
    assert store.supersede(row.id, "k1") == row
    lease = leased(store, "worker")
    assert store.supersede(row.id, "k2").id == row.id
    done = store.finish(lease, "PASSED", {"est": 1})
    assert store.supersede(row.id, "k2") == done
    assert len(store.evaluations(1)) == 1


def test_a_cached_verdict_answers_what_supersedes(store: Store) -> None:
    store.cache("k2", "PASSED", {"est": 1})
    row = store.enqueue(1, 1, "k1")
    done = store.supersede(row.id, "k2")
    assert (done.state, done.status, done.result, done.cached) == (State.DONE, "PASSED", {"est": 1}, True)
