"""Stores that cannot be reached or written: an error that says what to do, and nothing broken."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from benchmarks.postgres_server import PostgresServer
from weft.store.errors import StoreError
from weft.store.records import State
from weft.store.store import Store, open_store


def test_a_server_that_cannot_be_used_says_what_to_do(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("postgres")
    wrong = {
        postgres_server.url("nowhere"): "createdb nowhere",
        postgres_server.url("postgres", password="hunter2"): "check the user and the password",
        url.replace(f":{postgres_server.port}/", ":1/"): "check that the server runs",
        url.replace("127.0.0.1", "no-such-host.invalid"): "check the host",
        "postgresql://me:hunter2@host:port/weft": "is neither a path nor a URL such as postgresql://",
    }
    for spelled, cure in wrong.items():
        with pytest.raises(StoreError, match=cure) as caught:
            open_store(spelled)
        assert "hunter2" not in str(caught.value)
        assert "not a secret" not in str(caught.value)


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"psycopg is not installed: pip install 'weft-gpu\[postgres\]'"):
        open_store("postgresql://weft@localhost/weft")


def test_a_database_that_is_not_unicode_is_refused(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database("SQL_ASCII")
    with pytest.raises(StoreError, match="createdb -E UTF8"):
        open_store(url)
    postgres_server.drop_database(url)


def test_a_user_who_may_only_read_reads(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        run = store.start_run("evolve", task="sdpa")
    with psycopg.connect(postgres_url) as raw:
        raw.execute("CREATE ROLE reader LOGIN PASSWORD 'r'")
        raw.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    try:
        with open_store(postgres_url.replace("weft:not%20a%20secret", "reader:r")) as store:
            assert store.run(run.id) == run
            with pytest.raises(StoreError, match="the user has no permission: GRANT"):
                store.start_run("evolve", task="sdpa")
            assert store.runs() == (run,)
    finally:
        with psycopg.connect(postgres_url) as raw:
            raw.execute("DROP OWNED BY reader")
            raw.execute("DROP ROLE reader")


def fill_up(store: Store) -> list[int]:
    """Write until the store refuses; return the numbers whose write was acknowledged."""
    written: list[int] = []
    with pytest.raises(StoreError, match="full"):
        for number in range(10_000):
            candidate = store.add_candidate(1, digest=f"d{number}", source=os.urandom(2000).hex())
            row = store.enqueue(1, candidate.id, f"k{number}")
            lease = store.lease("w", evaluation_id=row.id)
            assert lease is not None
            store.finish(lease, "PASSED", {"number": number, "text": "x" * 500})
            written.append(number)
    return written


def test_a_full_disk_ends_a_step_and_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "weft.db"
    with open_store(path) as store:
        store.start_run("evolve", task="sdpa")
    with open_store(path) as store:
        with store.begin() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 100}")
        written = fill_up(store)
        assert written
        assert {row.result["number"] for row in store.evaluations(1, state=State.DONE) if row.result} == set(written)
        with store.begin() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        # There is space again: the same store works.
        store.start_run("evolve", task="sdpa")
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)


WITHOUT_RIGHTS = """
import os, sys
from weft.store.errors import StoreError
from weft.store.store import open_store
if os.geteuid() == 0:  # rights mean nothing to root; given up here, for another user may not even see this Python
    import sqlalchemy.dialects.sqlite
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
try:
    with open_store(sys.argv[1]) as store:
        print(len(store.runs()), "read")
        store.start_run("evolve", task="sdpa")
except StoreError as error:
    print(error)
"""


def test_a_file_that_may_not_be_written_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "of another user"
    path = folder / "weft.db"
    with open_store(path) as store:
        store.start_run("evolve", task="sdpa")
    before = path.read_bytes()
    path.chmod(0o444)
    folder.chmod(0o555)
    command = [sys.executable, "-c", WITHOUT_RIGHTS, str(path)]
    if os.geteuid() == 0:
        for parent in path.parents:
            if tmp_path.parents[1] in parent.parents or parent == tmp_path.parents[1]:
                parent.chmod(parent.stat().st_mode | 0o055)
        folder.chmod(0o555)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert "--store or WEFT_STORE" in done.stdout.splitlines()[-1]
    assert path.read_bytes() == before
