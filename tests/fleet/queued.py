"""A store with a run and queued evaluations of a rung, as in a search; and a stand-in for the supervisor."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from weft.core.status import Status
from weft.fleet.requests import ASK, request_record
from weft.judge.select import Choice
from weft.kernels.ladder import RUNGS
from weft.store.records import EvaluationRow
from weft.store.store import Store, open_store
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Evaluation, Limits, Request

ONE = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
LIMITS = Limits(wall_seconds=77)


def asked(number: int = 0) -> Request:
    """Return a request for one small workload of the scalar rung; the text differs by the number."""
    text = RUNGS["scalar"].path.read_text() + f"\n// {number}\n"
    return Request(CandidateSource(text, defines={"WARPS": "2"}), choice=ONE, score=None, debug_build=False)


def queue(store: Store, count: int, *, key: str | None = None) -> list[EvaluationRow]:
    """Queue a run with `count` evaluations."""
    run = store.start_run("evolve", task="sdpa", chip="l4", seed=0, settings={})
    rows = []
    for number in range(count):
        request = asked(number)
        source = request.source
        candidate = store.add_candidate(
            run.id, digest=source.digest, source=source.text, language=source.language, defines=source.defines
        )
        row = {"for": "search", ASK: request_record(request, LIMITS)}
        rows.append(store.enqueue(run.id, candidate.id, key or request_key(request), request=row))
    return rows


def store_with(path: Path, count: int) -> tuple[Store, list[EvaluationRow]]:
    """Return an open store and its evaluations."""
    store = open_store(path)
    return store, queue(store, count)


@dataclass
class StandIn:
    """Returns PASSED for every request, after calling `during`."""

    during: Callable[[int], object] = lambda number: None
    status: Status = Status.PASSED
    limits: Limits = field(default_factory=Limits)
    seen: list[Request] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)

    def __call__(self, **_: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def interrupt(self) -> None:
        self.interrupted.set()

    def evaluate(self, request: Request) -> Evaluation:
        self.seen.append(request)
        self.during(len(self.seen))
        if self.interrupted.is_set():
            return Evaluation(Status.LOST, "the fork server is gone")
        return Evaluation(self.status, "", 1, 1, seconds=0.5)

    def until_interrupted(self, number: int) -> None:
        """A workload that takes longer than any lease."""
        assert self.interrupted.wait(20)

    @staticmethod
    def sleep(seconds: float) -> Callable[[int], object]:
        return lambda number: time.sleep(seconds)
