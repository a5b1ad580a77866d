"""Workers are registered, send heartbeats and are stopped."""

from datetime import UTC, datetime, timedelta

import pytest

from weft.store.errors import StoreError
from weft.store.records import Happened
from weft.store.store import open_store


def test_a_worker_is_known_from_its_start_to_its_end(where: str) -> None:
    times = [datetime(2026, 11, 15, 9, tzinfo=UTC)]
    with open_store(where, clock=lambda: times[0]) as store:
        start = times[0]
        first = store.register_worker("a.1", host="a", pid=17, kind="vgpu", slots=2)
        assert (first.host, first.pid, first.kind, first.slots, first.state) == ("a", 17, "vgpu", 2, "starting")
        assert (first.registered_at, first.heartbeat_at, first.stopped_at) == (start, start, None)
        times[0] += timedelta(seconds=5)
        heard = store.worker_heartbeat("a.1", state="evaluation 3")
        assert (heard.state, heard.registered_at, heard.heartbeat_at) == ("evaluation 3", start, times[0])
        store.register_worker("b.1", host="b", pid=18, kind="gpu")
        assert [worker.name for worker in store.workers()] == ["a.1", "b.1"]
        assert store.stop_worker("a.1").stopped_at == times[0]
        times[0] += timedelta(seconds=5)
        assert store.stop_worker("a.1").stopped_at == times[0] - timedelta(seconds=5)
        again = store.register_worker("a.1", host="a", pid=19, kind="vgpu", slots=2)
        assert (again.pid, again.registered_at, again.stopped_at) == (19, times[0], None)
        kinds = [(event.kind, event.owner) for event in store.events()]
        assert kinds == [
            (Happened.WORKER_STARTED, "a.1"),
            (Happened.WORKER_STARTED, "b.1"),
            (Happened.WORKER_STOPPED, "a.1"),
            (Happened.WORKER_STARTED, "a.1"),
        ]


def test_an_unregistered_worker_is_refused(where: str) -> None:
    with open_store(where) as store:
        for call in (store.worker_heartbeat, store.stop_worker):
            with pytest.raises(StoreError, match="no worker ghost: register it first"):
                call("ghost")
        assert store.workers() == ()
