"""Workers that take evaluations from the store and judge them, each in a child process of its own supervisor."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from weft.core.status import Status
from weft.fleet.requests import ASK, request_record
from weft.store.errors import Fenced
from weft.store.records import CandidateRow, EvaluationRow, Lease, State
from weft.store.store import Store
from weft.supervise.key import request_key
from weft.supervise.records import Limits, Request, Source
from weft.supervise.supervisor import Supervisor

from .history import FINAL
from .settings import Settings

LOOK_SECONDS = 0.5
"""Between two looks at what a worker elsewhere has leased."""
LEASE_SECONDS = 120.0
HEARTBEAT_SECONDS = 10.0
SEARCH_LIMITS = Limits(wall_seconds=180, cpu_seconds=600)
FINAL_LIMITS = Limits(wall_seconds=3600, cpu_seconds=7200)
"""The whole check of a winner has hundreds of workloads."""

Done = Callable[[EvaluationRow], None]


def request_for(store: Store, candidate: CandidateRow, settings: Settings, purpose: str) -> Request:
    """What is asked of a candidate: a few workloads in the search, all of `weft check` for one that may win."""
    source = Source(store.text(candidate.source_digest), candidate.language, candidate.launch, candidate.defines)
    asked = Request(
        source,
        task=settings.task,
        choice=settings.choice,
        score=settings.score_on,
        chip=settings.chip,
        debug_build=False,
        diagnose=True,
        isolation=settings.isolation,
    )
    return replace(asked, choice=settings.final, debug_build=True) if purpose == FINAL else asked


def enqueue(store: Store, candidate: CandidateRow, settings: Settings, purpose: str) -> EvaluationRow:
    """Queue an evaluation, once however often it is called."""
    asked = request_for(store, candidate, settings, purpose)
    row = {"for": purpose, ASK: request_record(asked, limits_for(purpose))}
    return store.enqueue(candidate.run_id, candidate.id, request_key(asked), request=row)


def limits_for(purpose: str) -> Limits:
    """Of an evaluation."""
    return FINAL_LIMITS if purpose == FINAL else SEARCH_LIMITS


class Crew:
    """`workers` at once; `owner` is the name under which they lease. Fork servers stay warm between generations."""

    def __init__(self, store: Store, settings: Settings, owner: str, workers: int = 1) -> None:
        self.store, self.settings, self.owner, self.workers = store, settings, owner, workers
        self._idle: list[Supervisor] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for supervisor in self._idle:
            supervisor.close()
        self._idle.clear()

    @contextmanager
    def supervisor(self) -> Iterator[Supervisor]:
        """One that nobody else uses meanwhile."""
        taken = self._idle.pop() if self._idle else Supervisor(SEARCH_LIMITS)
        try:
            yield taken
        finally:
            self._idle.append(taken)

    def work(self, run_id: int, done: Done) -> None:
        """Until all of the run is judged, also what a `weft worker` elsewhere has leased."""
        self._drain(run_id, done)
        while self.store.evaluations(run_id, state=State.LEASED):
            time.sleep(LOOK_SECONDS)
            self._drain(run_id, done)

    def _drain(self, run_id: int, done: Done) -> None:
        """Until the run's queue is empty. What one worker raises, such as an interrupt of the store, ends all."""
        failures: list[BaseException] = []
        stop = threading.Event()

        def worker() -> None:
            try:
                self._work(run_id, done, stop)
            except BaseException as error:  # handed to the thread that waits
                failures.append(error)
                stop.set()

        threads = [threading.Thread(target=worker, daemon=True) for _ in range(self.workers)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            stop.set()
            raise
        if failures:
            raise failures[0]

    def _work(self, run_id: int, done: Done, stop: threading.Event) -> None:
        with self.supervisor() as supervisor:
            while not stop.is_set():
                lease = self.store.lease(self.owner, seconds=LEASE_SECONDS, run_id=run_id)
                if lease is None:
                    return
                purpose = str(lease.request["for"])
                supervisor.limits = limits_for(purpose)
                row = self._evaluate(supervisor, lease, purpose)
                if row is not None:
                    done(row)

    def _evaluate(self, supervisor: Supervisor, lease: Lease, purpose: str) -> EvaluationRow | None:
        request = request_for(self.store, self.store.candidate(lease.candidate_id), self.settings, purpose)
        last = time.monotonic()

        def heartbeat(judged: int, planned: int) -> None:
            nonlocal last
            if time.monotonic() - last > HEARTBEAT_SECONDS:
                self.store.heartbeat(lease, seconds=LEASE_SECONDS)
                last = time.monotonic()

        try:
            evaluation = supervisor.evaluate(request, progress=heartbeat)
            if evaluation.status is Status.LOST:
                return self.store.give_back(lease, evaluation.message)
            return self.store.finish(lease, evaluation.status, evaluation.record(), seconds=evaluation.seconds)
        except Fenced:  # another driver took the run over: its result is the one that counts
            return None
