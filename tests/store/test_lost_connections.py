"""A server that stops during calls: every call has its normal result and takes effect exactly once."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest

from benchmarks.postgres_server import PostgresServer
from weft.store.errors import Fenced, StoreError
from weft.store.records import Happened, Lease, Result, State
from weft.store.schema import OWN_TABLES
from weft.store.store import Store, open_store

EFFECT: Mapping[str, Any] = {"levers": {}, "predicted": {}, "before": {}, "after": {}, "outcome": "open"}
Leases = dict[str, Lease]


def lease(store: Store, leases: Leases, owner: str) -> Lease:
    found = store.lease(owner)
    assert found is not None
    leases[owner] = found
    return found


def lease_some(store: Store, leases: Leases, owner: str) -> list[tuple[str, int]]:
    found = store.lease_some(owner, 2)
    leases[owner] = found[0]
    return [(each.key, each.token) for each in found]


CALLS: list[tuple[str, Callable[[Store, Leases], Any]]] = [
    ("start_run", lambda store, leases: store.start_run("evolve", task="sdpa", seed=5)),
    ("add_candidate", lambda store, leases: store.add_candidate(1, digest="new", source="new")),
    ("set_notes", lambda store, leases: store.set_notes(1, {"a": 1})),
    ("put", lambda store, leases: store.put(b"content")),
    ("enqueue", lambda store, leases: store.enqueue(1, 1, "other")),
    ("lease", lambda store, leases: lease(store, leases, "w1")),
    ("lease another", lambda store, leases: lease(store, leases, "w2")),
    ("heartbeat", lambda store, leases: store.heartbeat(leases["w1"])),
    ("finish", lambda store, leases: store.finish(leases["w1"], "PASSED", {"est": 3}, seconds=1.0)),
    ("give_back", lambda store, leases: store.give_back(leases["w2"], "lost")),
    ("lease again", lambda store, leases: lease(store, leases, "w3")),
    ("reclaim", lambda store, leases: store.reclaim("w3")),
    ("lease some", lambda store, leases: lease_some(store, leases, "w4")),
    ("heartbeat all", lambda store, leases: len(store.heartbeat_all([leases["w4"]]))),
    (
        "finish all",
        lambda store, leases: lasting(*store.finish_all([Result(leases["w4"], "PASSED", {"est": 4}, seconds=1.0)])),
    ),
    ("cache", lambda store, leases: store.cache("k", "PASSED", {})),
    ("add_insight", lambda store, leases: store.add_insight(1, 1, hypothesis="h", **EFFECT)),
    ("register_worker", lambda store, leases: store.register_worker("w", host="h", pid=1)),
    ("worker_heartbeat", lambda store, leases: store.worker_heartbeat("there", "idle")),
    ("stop_worker", lambda store, leases: store.stop_worker("there")),
    ("set_run", lambda store, leases: store.set_run(1, state="done", progress={"at": 3})),
    ("runs", lambda store, leases: [row.task for row in store.runs()]),
    ("census", lambda store, leases: store.census()),
]
TIMES = ("at", "until", "lease_until")


@pytest.fixture
def url(tables_on_a_server: str) -> str:
    filled = ", ".join(table.name for table in OWN_TABLES if table.name != "schema_version")
    with psycopg.connect(tables_on_a_server) as connection:
        connection.execute(f"TRUNCATE {filled} RESTART IDENTITY CASCADE")
    return tables_on_a_server


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def fill(store: Store) -> None:
    """A run with three candidates, three evaluations to lease, and a worker."""
    store.start_run("evolve", task="sdpa")
    for number in (1, 2, 3):
        store.add_candidate(1, digest=f"d{number}", source="s")
        store.enqueue(1, number, f"k{number}")
    store.register_worker("there", host="h", pid=2)


def lasting(record: Any) -> Any:
    """Return a record without times, which differ, and without numbers: a rollback does not reset a sequence."""
    if is_dataclass(record) and not isinstance(record, type):
        record = asdict(record)
    if isinstance(record, Mapping):
        return {
            name: value
            for name, value in record.items()
            if name != "id" and name not in TIMES and not name.endswith("_at")
        }
    return record


def contents(store: Store) -> dict[str, list[Any]]:
    with store.reading() as connection:
        return {
            table.name: [
                lasting(row._mapping) for row in connection.execute(table.select().order_by(*table.primary_key))
            ]
            for table in OWN_TABLES
        }


class LossyCommit:
    """Loses the connection at the first commit: before the server receives it, or before its answer."""

    def __init__(self, store: Store, *, committed: bool) -> None:
        self._dialect: Any = store._engine.dialect
        self._commit = self._dialect.do_commit
        self._committed = committed
        self.lost = 0

    def __enter__(self) -> Self:
        self._dialect.do_commit = self._lose
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dialect.do_commit = self._commit

    def _lose(self, connection: Any) -> None:
        if self.lost:
            self._commit(connection)
            return
        self.lost += 1
        if self._committed:
            self._commit(connection)
        connection.dbapi_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")


@pytest.mark.parametrize("committed", [False, True], ids=["rolled back", "committed"])
def test_calls_whose_commits_were_not_answered_take_place_once(committed: bool, store: Store, tmp_path: Path) -> None:
    leases: Leases = {}
    quiet_leases: Leases = {}
    with open_store(tmp_path / "quiet.db") as quiet:
        fill(store)
        fill(quiet)
        for name, call in CALLS:
            with LossyCommit(store, committed=committed) as commit:
                disturbed = call(store, leases)
            assert commit.lost == 1
            assert (name, lasting(disturbed)) == (name, lasting(call(quiet, quiet_leases)))
        assert contents(store) == contents(quiet)


def test_a_lost_lease_is_not_confused_with_another_workers_lease(store: Store, url: str) -> None:
    fill(store)
    with open_store(url) as other, LossyCommit(store, committed=False):
        commit = store._engine.dialect.do_commit

        def lose_and_let_another_in(connection: Any) -> None:
            try:
                commit(connection)
            except psycopg.OperationalError:
                # Another worker leases what the lost transaction had leased, with the same token.
                taken.append(other.lease("other"))
                raise

        taken: list[Lease | None] = []
        store._engine.dialect.do_commit = lose_and_let_another_in  # type: ignore[method-assign,assignment]
        mine = store.lease("w")
    (theirs,) = taken
    assert theirs is not None and mine is not None
    assert theirs.evaluation_id != mine.evaluation_id
    store.finish(mine, "PASSED", {"by": "w"})
    store.finish(theirs, "PASSED", {"by": "other"})


def test_a_server_that_is_restarted_in_mid_run_is_waited_for(store: Store, postgres_server: PostgresServer) -> None:
    run = store.start_run("evolve", task="sdpa")
    for number in range(60):
        candidate = store.add_candidate(run.id, digest=f"n{number}", source="s")
        store.enqueue(run.id, candidate.id, f"n{number}")
    failures: list[StoreError] = []
    forgotten: list[int] = []

    def work(owner: str) -> None:
        try:
            while (lease := store.lease(owner, run_id=run.id)) is not None:
                try:
                    store.heartbeat(lease)
                    store.finish(lease, "PASSED", {"by": owner, "token": lease.token})
                except Fenced:  # a server that crashes may forget a lease, but no result
                    forgotten.append(lease.evaluation_id)
        except StoreError as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(3)]
    for worker in workers:
        worker.start()
    for crash in (False, True):
        time.sleep(0.3)
        postgres_server.stop(crash=crash)
        time.sleep(0.2)
        postgres_server.start()
    for worker in workers:
        worker.join()
    assert failures == []
    rows = store.evaluations(run.id)
    assert [row.state for row in rows] == [State.DONE] * 60
    # Each worker had one lease when the server crashed. Each evaluation has one lease and one result in the end.
    assert len(forgotten) <= len(workers)
    finished = [event.evaluation_id for event in store.events() if event.kind is Happened.FINISHED]
    assert sorted(finished, key=int) == [row.id for row in rows]  # type: ignore[arg-type]
    assert [(row.token, row.attempts) for row in rows] == [(1, 1)] * 60
    assert [row.result for row in rows] == [{"by": row.owner, "token": 1} for row in rows]


def test_patience_ends(store: Store, postgres_server: PostgresServer) -> None:
    store._patience = 0.5
    postgres_server.stop()
    try:
        began = time.monotonic()
        with pytest.raises(StoreError, match="check that the server runs"):
            store.start_run("evolve", task="sdpa")
        assert 0.2 < time.monotonic() - began < 5
    finally:
        postgres_server.start()
    assert store.start_run("evolve", task="sdpa").id == 1


def test_a_conflict_between_two_transactions_is_retried(store: Store) -> None:
    tries = []

    def step(connection: Any) -> int:
        tries.append(1)
        if len(tries) < 3:
            connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$")
        return len(tries)

    assert store._write(step) == 3


def test_leases_end_by_the_servers_clock(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's clock has no effect on leases."""
    fill(store)
    monkeypatch.setattr("weft.store.sqlite_backend.utc_now", lambda: pytest.fail("the local clock was asked"))
    with psycopg.connect(url) as raw:
        before = server_time(raw)
        lease = store.lease("w", seconds=60)
        after = server_time(raw)
    assert lease is not None
    assert before <= lease.until - timedelta(seconds=60) <= after
    row = store.evaluation(lease.evaluation_id)
    assert row.heartbeat_at == lease.until - timedelta(seconds=60)


def server_time(raw: psycopg.Connection[Any]) -> datetime:
    row = raw.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found
