"""For all tests: settings of Hypothesis for busy machines, files that stay in one process, and a PostgreSQL server as a
fixture."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.postgres_server import PostgresServer

# On a shared machine times do not describe a strategy; examples are counted, not timed.
settings.register_profile("weft", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weft")

# Lines of progress depend on the speed of the machine; tests of progress turn them on.
os.environ.setdefault("WEFT_PROGRESS", "0")

# Tests run in parallel already; two processes would compile the same kernel twice. tests/judge/test_ahead.py has more.
os.environ.setdefault("WEFT_JOBS", "1")

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
"""Files with expensive fixtures: two processes of pytest-xdist would make them twice."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run these files first, each in one process; distribute all other tests one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class FilesTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in TOGETHER else nodeid

    return FilesTogether(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Return the server of this process of pytest-xdist, started at its first use."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the URL of an empty database."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop_database(url)
