"""Several leases and several results in one transaction: each is treated as if it were alone."""

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from tests.store.leasing import Clock, leased
from weft.store.errors import Fenced, StoreError
from weft.store.leases import MOST_LEASES
from weft.store.records import EvaluationRow, Happened, Lease, Result, State
from weft.store.store import Store, open_store


def queue(store: Store, count: int, **options: Any) -> list[EvaluationRow]:
    """Queue evaluations of a new run."""
    run = store.start_run("evolve", task="sdpa")
    rows = []
    for number in range(count):
        candidate = store.add_candidate(run.id, digest=f"n{number}", source="s")
        rows.append(store.enqueue(run.id, candidate.id, f"run {run.id} key {number}", **options))
    return rows


def passed(lease: Lease, **result: Any) -> Result:
    return Result(lease, "PASSED", result, seconds=0.5)


def test_several_are_leased_by_priority_then_age_and_no_more_than_asked(store: Store) -> None:
    low, high = queue(store, 3), queue(store, 3, priority=5)
    first = store.lease_some("w", 4, seconds=60)
    assert [lease.evaluation_id for lease in first] == [row.id for row in (*high, low[0])]
    assert {(lease.owner, lease.token) for lease in first} == {("w", 1)}
    assert [lease.evaluation_id for lease in store.lease_some("x", 4)] == [low[1].id, low[2].id]
    assert store.lease_some("late", 4) == ()
    logged = [(event.kind, event.owner, event.evaluation_id) for event in store.events()]
    assert logged[:4] == [(Happened.LEASED, "w", lease.evaluation_id) for lease in first]
    for lease in first:
        row = store.evaluation(lease.evaluation_id)
        assert (row.state, row.owner, row.token, row.attempts) == (State.LEASED, "w", 1, 1)
        assert row.lease_until == lease.until and row.request == lease.request


def test_expired_leases_are_taken_over_in_the_same_order_as_queued_ones(store: Store, clock: Clock) -> None:
    expired = queue(store, 2, priority=1)
    store.lease_some("slow", 2, seconds=10)
    low, high = queue(store, 1), queue(store, 1, priority=2)
    clock.forward(10)
    taken = store.lease_some("w", 9)
    assert [lease.evaluation_id for lease in taken] == [row.id for row in (*high, *expired, *low)]
    assert [lease.token for lease in taken] == [1, 2, 2, 1]


def test_those_that_kill_workers_are_abandoned_and_others_take_their_place(store: Store, clock: Clock) -> None:
    poison = queue(store, 2, priority=1)
    for _ in range(MOST_LEASES):
        assert len(store.lease_some("w", 2, seconds=10)) == 2
        clock.forward(10)
    others = queue(store, 3)
    assert [lease.evaluation_id for lease in store.lease_some("w", 2)] == [row.id for row in others[:2]]
    assert [store.evaluation(row.id).state for row in poison] == [State.ABANDONED] * 2
    assert [store.evaluation(row.id).status for row in poison] == ["LOST"] * 2


def test_skip_and_run_and_needs_limit_a_batch(store: Store) -> None:
    mine, other, real = queue(store, 3), queue(store, 1), queue(store, 1, needs="gpu")
    taken = store.lease_some("w", 9, run_id=mine[0].run_id, needs="vgpu", skip=[mine[1].id])
    assert [lease.evaluation_id for lease in taken] == [mine[0].id, mine[2].id]
    assert [lease.evaluation_id for lease in store.lease_some("w", 9, needs="gpu")] == [real[0].id]
    assert [lease.evaluation_id for lease in store.lease_some("w", 9)] == [mine[1].id, other[0].id]


def test_each_result_of_a_batch_is_fenced_or_written_on_its_own(store: Store) -> None:
    rows = queue(store, 4)
    held, lost, twice, not_cached = store.lease_some("w", 4)
    assert store.reclaim("w", [lost]) == 1
    new = leased(store, "other")
    assert (new.evaluation_id, new.token) == (lost.evaluation_id, lost.token + 2)
    before = store.finish(twice, "PASSED", {"gates": (1, 2)}, seconds=0.5)
    found = store.finish_all(
        [passed(held, est=1), passed(lost, est=2), passed(twice, gates=(1, 2)), Result(not_cached, "TIMEOUT", {})]
    )
    assert found[0] == store.evaluation(rows[0].id) and found[0].result == {"est": 1}  # type: ignore[union-attr]
    assert isinstance(found[1], Fenced) and "no longer w's" in str(found[1])
    assert found[2] == before == store.evaluation(rows[2].id)
    assert found[3] == store.evaluation(rows[3].id) and found[3].status == "TIMEOUT"  # type: ignore[union-attr]
    assert store.evaluation(rows[1].id).owner == "other" and store.cached(rows[1].key) is None
    assert [store.cached(rows[number].key) is not None for number in (0, 2, 3)] == [True, True, False]
    kinds = [event.kind for event in store.events()]
    assert (kinds.count(Happened.FINISHED), kinds.count(Happened.FENCED)) == (3, 1)
    assert store.finish_all([]) == ()


def test_two_results_of_one_lease_in_a_batch_are_written_once(store: Store) -> None:
    queue(store, 1)
    lease = leased(store, "w")
    first, same, other = store.finish_all([passed(lease, est=1), passed(lease, est=1), passed(lease, est=2)])
    assert first == same == store.evaluation(lease.evaluation_id) and isinstance(other, Fenced)


def test_a_result_that_is_not_json_is_refused_before_anything_is_written(store: Store) -> None:
    queue(store, 2)
    good, bad = store.lease_some("w", 2)
    with pytest.raises(StoreError, match="cannot be written as JSON"):
        store.finish_all([passed(good, est=1), passed(bad, est=float("nan"))])
    assert store.evaluation(good.evaluation_id).state is State.LEASED


def test_heartbeats_of_a_batch_renew_what_is_held(store: Store, clock: Clock) -> None:
    queue(store, 3)
    leases = store.lease_some("w", 3, seconds=10)
    assert store.reclaim("w", leases[1:2]) == 1
    clock.forward(9)
    first, second, third = store.heartbeat_all(leases, seconds=10)
    assert isinstance(first, Lease) and isinstance(third, Lease) and isinstance(second, Fenced)
    clock.forward(9)
    assert [lease.evaluation_id for lease in store.lease_some("x", 3)] == [leases[1].evaluation_id]
    assert store.evaluation(first.evaluation_id).lease_until == first.until


def test_some_leases_of_an_owner_go_back_without_counting_as_attempts(store: Store) -> None:
    queue(store, 3)
    running, *ahead = store.lease_some("w", 3)
    assert store.reclaim("w", ahead) == 2
    assert store.reclaim("w", ahead) == 0
    assert store.reclaim("other", [running]) == 0
    rows = [store.evaluation(lease.evaluation_id) for lease in (running, *ahead)]
    assert [(row.state, row.attempts) for row in rows] == [(State.LEASED, 1), (State.QUEUED, 0), (State.QUEUED, 0)]


def test_a_token_that_another_owner_has_too_is_no_lease(store: Store) -> None:
    """A server that crashes may forget a lease and give the next worker the same token."""
    (row,) = queue(store, 1)
    lost = leased(store, "w")
    with store.begin() as connection:  # as after the crash: queued, with the token of before the lease
        connection.execute(
            sa.text(f"UPDATE evaluations SET state = 'QUEUED', owner = NULL, token = 0 WHERE id = {row.id}")
        )
    new = leased(store, "other")
    assert new.token == lost.token
    for refused in (
        lambda: store.finish(lost, "UNSAFE", {}),
        lambda: store.heartbeat(lost),
        lambda: store.give_back(lost, "stopped"),
    ):
        with pytest.raises(Fenced):
            refused()
    assert store.reclaim("w", [lost]) == 0
    assert store.finish(new, "PASSED", {}).owner == "other"


def test_workers_that_take_batches_never_share_an_evaluation(where: str, store: Store) -> None:
    rows = queue(store, 60)
    taken: list[int] = []

    def work(owner: str) -> None:
        with open_store(where) as own:
            while leases := own.lease_some(owner, 7):
                found = own.finish_all([passed(lease, by=owner) for lease in leases])
                assert all(isinstance(row, EvaluationRow) for row in found)
                taken.extend(lease.evaluation_id for lease in leases)

    workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(taken) == [row.id for row in rows]
    done = store.evaluations(rows[0].run_id, state=State.DONE)
    assert [(row.attempts, row.result) for row in done] == [(1, {"by": row.owner}) for row in done]


def test_workers_with_equal_keys_in_opposite_orders_do_not_block_each_other(where: str, store: Store) -> None:
    run = store.start_run("evolve", task="sdpa")
    keys = [f"k{number}" for number in range(20)]
    for number, key in enumerate([*keys, *reversed(keys)]):
        candidate = store.add_candidate(run.id, digest=f"n{number}", source="s")
        store.enqueue(run.id, candidate.id, key)
    halves = store.lease_some("w0", 20), store.lease_some("w1", 20)
    found: list[EvaluationRow | Fenced] = []

    def finish(leases: tuple[Lease, ...]) -> None:
        with open_store(where) as own:
            found.extend(own.finish_all([passed(lease) for lease in leases]))

    threads = [threading.Thread(target=finish, args=(half,)) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40 and not any(isinstance(each, Fenced) for each in found)
    assert all(store.cached(key) is not None for key in keys)


def test_results_of_one_key_in_one_batch(store: Store) -> None:
    """The first becomes the verdict; the other evaluation keeps its own result."""
    rows = [store.enqueue(1, candidate, "k") for candidate in (1, 2)]
    leases = store.lease_some("w", 2)
    store.finish_all([passed(lease, est=lease.evaluation_id) for lease in leases])
    assert [store.evaluation(row.id).result for row in rows] == [{"est": row.id} for row in rows]
    verdict = store.cached("k")
    assert verdict is not None and verdict.result == {"est": rows[0].id}
