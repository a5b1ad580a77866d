"""An idle worker is woken by what is queued, not by a timer."""

import threading
import time
from collections.abc import Callable

import pytest

from tests.store.leasing import leased
from weft.store.records import EvaluationRow
from weft.store.store import Store, open_store


def rang(store: Store, act: Callable[[], object], seconds: float) -> bool:
    bell = store.bell()
    try:
        act()
        return bell.wait(seconds)
    finally:
        bell.close()


def test_it_rings_for_what_is_queued_superseded_or_given_back(store: Store, where: str) -> None:
    rows: list[EvaluationRow] = []
    with open_store(where) as other:
        assert rang(store, lambda: rows.append(other.enqueue(1, 1, "k1")), 10)
        assert rang(store, lambda: other.supersede(rows[0].id, "k2"), 10)
        assert rang(store, lambda: other.give_back(leased(other, "w"), "lost"), 10)
        leased(other, "w")
        assert rang(store, lambda: other.reclaim("w"), 10)


def test_it_does_not_ring_for_what_no_worker_can_lease(store: Store, where: str) -> None:
    store.cache("known", "PASSED", {})
    with open_store(where) as other:
        assert not rang(store, lambda: None, 0.05)
        assert not rang(store, lambda: other.enqueue(1, 1, "known"), 0.2)
        other.enqueue(1, 2, "k")
        lease = leased(other, "w")
        assert not rang(store, lambda: other.heartbeat(lease), 0.2)
        assert not rang(store, lambda: other.finish(lease, "PASSED", {}), 0.2)


def test_it_ends_a_wait(store: Store, where: str) -> None:
    bell = store.bell()
    later = threading.Timer(0.3, lambda: open_store(where).enqueue(1, 1, "k"))
    start = time.monotonic()
    later.start()
    assert bell.wait(30) and 0.2 < time.monotonic() - start < 20
    later.join()
    bell.close()


@pytest.mark.parametrize("count", [20])
def test_idle_workers_do_not_use_up_the_pool(store: Store, count: int) -> None:
    bells = [store.bell() for _ in range(count)]
    store.enqueue(1, 1, "k")
    assert all(bell.wait(10) for bell in bells)
    for bell in bells:
        bell.close()
