"""Machines that still run, for commands that know nothing of the journal: a glance, without loading it."""

from pathlib import Path

from weft.core import knobs


def anything_runs() -> bool:
    """Whether a machine is registered as running. Without SQLAlchemy, and silent where there is no journal."""
    where = knobs.store()
    if "://" in where or not Path(where).exists():
        return False
    import sqlite3  # only where there is a store to look into

    try:
        connection = sqlite3.connect(f"{Path(where).absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)
    except sqlite3.Error:
        return False
    try:
        return connection.execute("SELECT 1 FROM journal_machines WHERE stopped IS NULL LIMIT 1").fetchone() is not None
    except sqlite3.Error:  # no journal in this store, or one that another process is making
        return False
    finally:
        connection.close()
