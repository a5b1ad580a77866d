"""The same tests over a file and over a server."""

from collections.abc import Iterator

import psycopg
import pytest

from benchmarks.postgres_server import PostgresServer
from tests.store.leasing import Clock
from weft.store.schema import OWN_TABLES
from weft.store.store import Store, open_store


@pytest.fixture(scope="session")
def tables_on_a_server(postgres_server: PostgresServer) -> str:
    """Return an empty store: creating all tables again takes longer than most tests."""
    url = postgres_server.new_database()
    open_store(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest) -> str:
    """Return the location of a new store."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "new folder" / "weft.db")
    url: str = request.getfixturevalue("tables_on_a_server")
    filled = ", ".join(table.name for table in OWN_TABLES if table.name != "schema_version")
    with psycopg.connect(url) as connection:
        connection.execute(f"TRUNCATE {filled} RESTART IDENTITY CASCADE")
    return url


@pytest.fixture
def clock() -> Clock:
    """Return a clock that only the test moves."""
    return Clock()


@pytest.fixture
def store(where: str, clock: Clock) -> Iterator[Store]:
    """Return a store with a run and three candidates."""
    with open_store(where, clock=clock) as opened:
        run = opened.start_run("evolve", task="sdpa")
        for number in (1, 2, 3):
            opened.add_candidate(run.id, digest=f"d{number}", source=f"source {number}")
        yield opened
