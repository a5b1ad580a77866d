"""Stores of earlier versions are upgraded once; those of later versions are refused and not changed."""

import sqlite3
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from weft.store.database import backend_of
from weft.store.errors import StoreError
from weft.store.records import State
from weft.store.schema import METADATA, MIGRATIONS, OWN_TABLES, VERSION, evaluations_by_finish, evaluations_by_turn
from weft.store.store import open_store

VERSION_1 = Path(__file__).with_name("version_1.sql")
"""A store of version 1 with three evaluations: one done, one leased, one waiting."""


def old_store(folder: Path) -> Path:
    path = folder / "weft.db"
    with sqlite3.connect(path) as raw:
        raw.executescript(VERSION_1.read_text())
    return path


def shape(connection: sa.Connection) -> dict[str, tuple[set[str], set[tuple[str, ...]]]]:
    """Return the columns and the indices of each table."""
    inspector = sa.inspect(connection)
    return {
        name: (
            {column["name"] for column in inspector.get_columns(name)},
            {tuple(map(str, index["column_names"])) for index in inspector.get_indexes(name)},
        )
        for name in inspector.get_table_names()
    }


def test_there_is_a_step_from_every_version_to_the_next() -> None:
    assert set(MIGRATIONS) == set(range(1, VERSION))


def test_a_store_of_version_1_keeps_its_rows_and_gets_the_rest(tmp_path: Path) -> None:
    path = old_store(tmp_path)
    with open_store(path) as store:
        (run,) = store.runs()
        assert (run.task, run.seed, run.settings) == ("sdpa", 7, {"top": 3})
        assert [store.text(row.source_digest) for row in store.candidates(run.id)] == [
            "source one",
            "source two",
            "source three",
        ]
        states = [(row.state, row.status, row.needs) for row in store.evaluations(run.id)]
        assert states == [
            (State.DONE, "PASSED", "vgpu"),
            (State.QUEUED, None, "vgpu"),
            (State.LEASED, None, "vgpu"),
        ]
        assert [row.note for row in store.insights()] == [""]
        # The driver with the lease ended long ago: its evaluation is leased again, after the one with more priority.
        leases = [store.lease("w"), store.lease("w")]
        assert [lease and lease.evaluation_id for lease in leases] == [2, 3]
        store.register_worker("w", host="h", pid=1)
    with open_store(path) as again, again.reading() as connection:
        assert len(again.workers()) == 1
        migrated = shape(connection)
    with open_store(tmp_path / "new.db") as new, new.reading() as connection:
        assert migrated == shape(connection)


def test_two_processes_that_open_an_old_store_migrate_it_once(tmp_path: Path) -> None:
    path, errors = old_store(tmp_path), []

    def open_it() -> None:
        try:
            open_store(path).close()
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT version FROM schema_version").fetchall() == [(VERSION,)]


def test_a_step_that_fails_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_store(tmp_path)

    def half(connection: sa.Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE evaluations ADD COLUMN needs VARCHAR(16) DEFAULT 'vgpu' NOT NULL")
        connection.exec_driver_sql("DROP INDEX no_such_index")

    monkeypatch.setattr("weft.store.schema.MIGRATIONS", {1: half})
    with pytest.raises(StoreError, match="no_such_index"):
        open_store(path)
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT version FROM schema_version").fetchall() == [(1,)]
        assert "needs" not in {row[1] for row in raw.execute("PRAGMA table_info(evaluations)")}
        assert raw.execute("SELECT count(*) FROM sqlite_master WHERE name = 'workers'").fetchone() == (0,)


def test_the_step_to_version_2_runs_on_a_server_too(postgres_url: str) -> None:
    # No server ever had version 1: use today's tables without the additions of version 2.
    engine = backend_of(postgres_url).engine()
    with engine.begin() as connection:
        METADATA.create_all(connection, tables=OWN_TABLES)
        new = shape(connection)
        evaluations_by_turn.drop(connection)
        evaluations_by_finish.drop(connection)
        for statement in (
            "ALTER TABLE evaluations DROP COLUMN needs",
            "DROP TABLE workers",
            "DROP TABLE events",
            "CREATE INDEX evaluations_by_state ON evaluations (state, priority, id)",
            "INSERT INTO schema_version VALUES (1, 1)",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    with open_store(postgres_url) as store, store.reading() as connection:
        assert shape(connection) == new
        assert connection.exec_driver_sql("SELECT version FROM schema_version").scalar_one() == VERSION


def test_a_newer_store_is_refused_and_not_touched(where: str) -> None:
    with open_store(where) as store, store.begin() as connection:
        connection.exec_driver_sql(f"UPDATE schema_version SET version = {VERSION + 1}")
    try:
        with pytest.raises(
            StoreError,
            match=rf"newer version of Weft \(its schema is {VERSION + 1}, this is {VERSION}\): update Weft",
        ):
            open_store(where)
    finally:
        engine = backend_of(where).engine()
        with engine.begin() as connection:
            found = connection.exec_driver_sql("SELECT version FROM schema_version").scalar_one()
            connection.exec_driver_sql(f"UPDATE schema_version SET version = {VERSION}")
        engine.dispose()
    assert found == VERSION + 1
