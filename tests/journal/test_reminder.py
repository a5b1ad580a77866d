"""The check for running machines: correct, fast, and silent without a journal."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from weft.journal.journal import Journal
from weft.journal.reminder import anything_runs
from weft.store.store import open_store


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a folder" / "weft.db"
    monkeypatch.setenv("WEFT_STORE", str(path))
    return path


def test_no_store(store: Path) -> None:
    assert not anything_runs()
    assert not store.parent.exists(), "the check creates nothing"


def test_a_store_without_a_journal(store: Path) -> None:
    open_store(store).close()
    assert not anything_runs()


def test_no_database(store: Path) -> None:
    store.parent.mkdir()
    store.write_text("something else altogether, and long enough to be read as a page" * 20)
    assert not anything_runs()


def test_until_it_is_stopped(store: Path) -> None:
    with open_store(store) as opened:
        journal = Journal(opened)
        assert not anything_runs()
        journal.start_machine("l4-vm", gpu="l4", rate=Decimal("0.20"))
        assert anything_runs(), "while the journal is open elsewhere"
    assert anything_runs()
    with open_store(store) as opened:
        Journal(opened).stop_machine("l4-vm")
    assert not anything_runs()


def test_it_loads_no_sqlalchemy(store: Path) -> None:
    with open_store(store) as opened:
        Journal(opened).start_machine("l4-vm", gpu="l4", rate=None)
    program = "import sys, weft.journal.reminder as r; print(r.anything_runs(), 'sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
