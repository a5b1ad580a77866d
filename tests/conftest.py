"""For all tests: how Hypothesis behaves on machines that are busy, which files stay in one process, and a PostgreSQL
server for those who ask."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.postgres_server import PostgresServer

# Seconds say nothing of a strategy on a shared machine; examples are counted, not timed.
settings.register_profile("weft", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weft")

# Lines of progress depend on how fast the machine is; tests of them ask for them.
os.environ.setdefault("WEFT_PROGRESS", "0")

TOGETHER = {
    "tests/benchmarks/test_model_accuracy.py",
    "tests/evolve/test_llm_search.py",
    "tests/evolve/test_search.py",
    "tests/judge/test_certify.py",
    "tests/judge/test_routes.py",
    "tests/mcp/test_server.py",
    "tests/mutate/test_equivalent.py",
    "tests/mutate/test_trial.py",
    "tests/supervise/test_isolation.py",
}
"""Files whose fixtures are dear: two processes of pytest-xdist would make them twice."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """These files first and each in one process; all other tests one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class FilesTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in TOGETHER else nodeid

    return FilesTogether(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One for each process of pytest-xdist, started when it is first asked for."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database of it."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop_database(url)
