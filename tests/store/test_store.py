"""Runs, candidates, artefacts and insights are read back unchanged, each once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from weft.core.errors import WeftError
from weft.store.errors import StoreError
from weft.store.keys import content_digest, verdict_key
from weft.store.records import Proof
from weft.store.schema import METADATA
from weft.store.store import Store, default_store, open_store


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_store(where) as opened:
        yield opened


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "weft.db") as opened:
        yield opened


def test_a_run_is_found_again_by_another_process_of_the_store(store: Store, where: str) -> None:
    run = store.start_run("evolve", task="sdpa", chip="l4", seed=7, settings={"top": 3, "ratio": 0.97})
    store.set_run(run.id, progress={"generation": 4})
    with open_store(where) as other:
        found = other.run(run.id)
    assert (found.task, found.chip, found.seed, found.state) == ("sdpa", "l4", 7, "running")
    assert found.settings == {"top": 3, "ratio": 0.97}
    assert found.progress == {"generation": 4}
    assert found.created_at.tzinfo is UTC
    assert found.finished_at is None
    assert store.set_run(run.id, state="done").finished_at is not None
    with pytest.raises(StoreError, match="no run 99"):
        store.run(99)


def test_the_same_candidate_twice_is_one_row(store: Store) -> None:
    run = store.start_run("evolve", task="sdpa")
    first = store.add_candidate(run.id, digest="d1", source="__global__", levers={"WARPS": [4, 8]}, generation=1)
    again = store.add_candidate(run.id, digest="d1", source="__global__", levers={"other": 1}, generation=9)
    child = store.add_candidate(run.id, digest="d2", source="two", parents=[first.id], generation=2)
    other_run = store.add_candidate(store.start_run("evolve", task="sdpa").id, digest="d1", source="__global__")
    assert again == first
    assert first.levers == {"WARPS": [4, 8]}
    assert child.parents == (first.id,)
    assert other_run.id not in (first.id, child.id)
    assert store.candidates(run.id) == (first, child)
    assert store.text(first.source_digest) == "__global__"
    store.set_canonical(child.id, "c" * 64)
    assert [row.id for row in store.with_canonical(run.id, "c" * 64)] == [child.id]
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        store.add_candidate(12345, digest="d", source="no such run")


def test_artefacts_are_named_by_their_content_and_checked(store: Store) -> None:
    content = bytes(range(256)) * 50
    assert store.put(content, kind="ptx") == content_digest(content) == store.put(content)
    assert store.get(content_digest(content)) == content
    with store.begin() as connection:
        connection.exec_driver_sql("UPDATE artefacts SET packed = (SELECT substr(packed, 1, 20) FROM artefacts)")
    with pytest.raises(StoreError, match="damaged"):
        store.get(content_digest(content))
    with pytest.raises(StoreError, match="no artefact"):
        store.get("0" * 64)


def test_insights_keep_what_was_refuted(store: Store) -> None:
    run = store.start_run("evolve", task="sdpa")
    child = store.add_candidate(run.id, digest="d", source="s")
    effect = {"levers": {"WARPS": [4, 8]}, "predicted": {"est": -0.1}, "before": {"est": 100}}
    no = store.add_insight(run.id, child.id, hypothesis="more warps", **effect, after={"est": 120}, outcome="refuted")
    yes = store.add_insight(run.id, child.id, hypothesis="wider", **effect, after={"est": 80}, outcome="confirmed")
    again = store.add_insight(run.id, child.id, hypothesis="wider", **effect, after={"est": 1}, outcome="open")
    assert again == yes
    assert store.insights(run.id) == (no, yes)
    assert store.insights(outcome="refuted") == (no,)
    assert no.outcome is Proof.REFUTED
    with pytest.raises(ValueError, match="maybe"):
        store.add_insight(run.id, child.id, hypothesis="h", **effect, after={}, outcome="maybe")


def test_times_are_exact_and_must_have_a_zone(where: str) -> None:
    moment = datetime(2026, 11, 15, 9, 30, 0, 123457, tzinfo=UTC)
    with open_store(where, clock=lambda: moment) as store:
        assert store.run(store.start_run("k", task="t").id).created_at == moment
    with (
        open_store(where, clock=lambda: datetime(2026, 1, 1)) as store,
        pytest.raises(StoreError, match="time zone"),
    ):
        store.start_run("k", task="t")


def test_a_number_that_json_lacks_is_refused_before_it_is_written(store: Store) -> None:
    with pytest.raises(StoreError, match="JSON compliant"):
        store.start_run("k", task="t", settings={"x": float("nan")})
    assert store.runs() == ()


def test_a_transaction_is_all_or_nothing_and_other_packages_bring_tables(store: Store) -> None:
    table = sa.Table("of_the_test", METADATA, sa.Column("id", sa.Integer, primary_key=True))
    try:
        store.create(table)
        store.create(table)
        with pytest.raises(ZeroDivisionError), store.begin() as connection:
            connection.execute(table.insert().values(id=1))
            raise ZeroDivisionError
        with store.begin() as connection:
            connection.execute(table.insert().values(id=2))
        with store.reading() as connection:
            assert connection.execute(sa.select(table.c.id)).scalars().all() == [2]
    finally:
        with store.begin() as connection:
            table.drop(connection, checkfirst=True)
        METADATA.remove(table)


def test_commits_to_a_file_are_on_the_disk_before_they_are_acknowledged(file: Store) -> None:
    with file.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_reader_does_not_wait_for_a_writer(store: Store) -> None:
    run = store.start_run("k", task="t")
    with store.begin() as connection:
        connection.exec_driver_sql("UPDATE runs SET kind = 'changed'")
        assert store.run(run.id).kind == "k"
    assert store.run(run.id).kind == "changed"


def test_stores_that_cannot_be_used_say_what_to_do(tmp_path: Path) -> None:
    text = tmp_path / "notes.db"
    text.write_text("this is no database, and long enough to be taken for the head of one " * 20)
    with pytest.raises(StoreError, match="not a store: choose another"):
        open_store(text)
    assert text.read_text().startswith("this is no database")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--store"):
        open_store(tmp_path / "file" / "weft.db")
    with pytest.raises(StoreError, match=r"mysql://me:\*\*\*@host/weft: give a path"):
        open_store("mysql://me:secret@host/weft")
    with open_store(tmp_path / "newer.db") as store, store.begin() as connection:
        connection.exec_driver_sql("UPDATE schema_version SET version = 999")
    with pytest.raises(WeftError, match="newer version of Weft"):
        open_store(tmp_path / "newer.db")


def test_the_default_place_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WEFT_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_store() == str(tmp_path / "weft" / "weft.db")
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "mine.db"))
    with open_store() as store:
        store.start_run("k", task="t")
    assert (tmp_path / "mine.db").exists()


def test_every_part_of_a_verdicts_key_counts() -> None:
    parts = {name: "x" for name in "source launch compiler flags arch task judge policy".split()}
    keys = {verdict_key(**parts)} | {verdict_key(**{**parts, name: "y"}) for name in parts}
    assert len(keys) == 9
    assert verdict_key(**{**parts, "source": "ab", "launch": "c"}) != verdict_key(
        **{**parts, "source": "a", "launch": "bc"}
    )
