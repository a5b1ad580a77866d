"""One supervisor for all tests: its fork server takes seconds to start, and must survive every test."""

import os
from collections.abc import Callable, Iterator

import pytest

from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.supervise.records import CandidateSource, Limits, Request
from weft.supervise.supervisor import Supervisor

Make = Callable[..., Request]
SECRET = "a key that must stay private"


@pytest.fixture(scope="session")
def supervisor() -> Iterator[Supervisor]:
    os.environ["SOME_API_KEY"] = SECRET
    with Supervisor(Limits(wall_seconds=60, memory_bytes=3 << 30)) as started:
        yield started
        zygote = started.zygote.pid
    del os.environ["SOME_API_KEY"]
    with pytest.raises(ProcessLookupError):
        os.kill(zygote, 0)


@pytest.fixture
def request_of() -> Make:
    """Return a function for requests to judge `scalar` with replaced text, on one small workload, without a score."""

    def make(*replaced: tuple[str, str], **options: object) -> Request:
        text = RUNGS["scalar"].path.read_text()
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new, 1)
        choice = Choice(("split_65",), ("unit_normal",), ("none",), ("f16",), seeds=(0,))
        settings = {"choice": choice, "score": None, "debug_build": False, **options}
        return Request(CandidateSource(text), **settings)  # type: ignore[arg-type]

    return make


def parent_of(process: int) -> int:
    """Return the parent of a process. Raises OSError if there is no such process."""
    with open(f"/proc/{process}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def children_of(process: int) -> list[int]:
    """Return all processes whose parent is `process`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parent = parent_of(int(name))
            except OSError:
                continue
            if parent == process:
                found.append(int(name))
    return found


@pytest.fixture
def no_strays(supervisor: Supervisor) -> Iterator[None]:
    """Check after the test that the fork server has no children and is still the same."""
    before = supervisor.zygote.pid
    yield
    assert supervisor.zygote.pid == before
    assert children_of(before) == []
