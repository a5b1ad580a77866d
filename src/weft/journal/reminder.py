"""Check for running machines without loading the journal, for all other commands."""

from pathlib import Path

from weft.core import knobs


def anything_runs() -> bool:
    """Return whether a machine is registered as running. Does not load SQLAlchemy; False if there is no journal."""
    where = knobs.store()
    if "://" in where or not Path(where).exists():
        return False
    import sqlite3  # only if there is a store

    try:
        connection = sqlite3.connect(f"{Path(where).absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)
    except sqlite3.Error:
        return False
    try:
        return connection.execute("SELECT 1 FROM journal_machines WHERE stopped IS NULL LIMIT 1").fetchone() is not None
    except sqlite3.Error:  # no journal in this store, or another process is creating it
        return False
    finally:
        connection.close()
