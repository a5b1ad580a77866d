"""A local Ray cluster: an actor judges queued evaluations, and is replaced if killed. Public addresses are refused."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.fleet.queued import store_with
from weft.core.errors import UsageError
from weft.fleet.ray_fleet import RayFleet, require_private
from weft.fleet.terms import Terms
from weft.store.records import State
from weft.store.store import open_store


def test_an_actor_that_is_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "weft.db"
    store, rows = store_with(path, 3)
    fleet = RayFleet(store, str(path), slots=1, terms=Terms(idle_seconds=30))
    fleet.start(rows[0].run_id)
    killed, deadline = 0, time.monotonic() + 120
    try:
        while time.monotonic() < deadline and any(store.evaluation(row.id).state is not State.DONE for row in rows):
            leased = store.evaluations(rows[0].run_id, state=State.LEASED)
            if leased and not killed:
                (actor,) = store.workers()
                os.kill(actor.pid, signal.SIGKILL)
                killed = leased[0].id
            fleet.tend()
            time.sleep(0.05)
    finally:
        fleet.close()
    done = [store.evaluation(row.id) for row in rows]
    assert [row.status for row in done] == ["PASSED"] * 3
    assert [row.attempts for row in done] == [2 if row.id == killed else 1 for row in done] and killed
    assert len(store.workers()) == 2 and all(row.stopped_at is not None for row in store.workers())


def test_only_private_addresses() -> None:
    for address in ("127.0.0.1", "10.1.2.3", "172.16.0.9", "192.168.1.1", "fd00::1"):
        require_private(address)
    for address in ("8.8.8.8", "2600::1", "example.org"):
        with pytest.raises(UsageError):
            require_private(address)


def test_authentication_cannot_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with open_store(tmp_path / "weft.db") as store, pytest.raises(UsageError, match="authentication off"):
        RayFleet.parse("ray:auto", store, "", Terms())
