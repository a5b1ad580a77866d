"""The evaluation requests of candidates, and the crew that gets all of them judged.

The workers are those of a fleet, by default threads of this process. They read the request only from the store's row.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from weft.fleet.fleets import Fleet, reclaim_threads
from weft.fleet.requests import ASK, request_of, request_record
from weft.store.records import CandidateRow, EvaluationRow, State
from weft.store.store import Store
from weft.supervise.key import request_key
from weft.supervise.records import CandidateSource, Limits, Request
from weft.supervise.supervisor import Supervisor

from .history import FINAL
from .settings import Settings

FIRST_WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 0.5
"""Pause between two reads of the queue."""
OPEN = (State.QUEUED, State.LEASED)
SEARCH_LIMITS = Limits(wall_seconds=180, cpu_seconds=600)
FINAL_LIMITS = Limits(wall_seconds=3600, cpu_seconds=7200)
"""Limits of the whole check of a winner, which has hundreds of workloads."""

Done = Callable[[EvaluationRow], None]


def request_for(store: Store, candidate: CandidateRow, settings: Settings, purpose: str) -> Request:
    """Return the request for a candidate: a few workloads in the search, all of `weft check` for a possible winner."""
    source = CandidateSource(
        store.text(candidate.source_digest), candidate.language, candidate.launch, candidate.defines
    )
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
    """Queue an evaluation; further calls have no effect."""
    key, request = _question(store, candidate, settings, purpose)
    return store.enqueue(candidate.run_id, candidate.id, key, request=request)


def _question(store: Store, candidate: CandidateRow, settings: Settings, purpose: str) -> tuple[str, dict[str, Any]]:
    """Return the key of an evaluation and the request of its row."""
    asked = request_for(store, candidate, settings, purpose)
    return request_key(asked), {"for": purpose, ASK: request_record(asked, limits_for(purpose))}


def limits_for(purpose: str) -> Limits:
    """Return the limits of an evaluation."""
    return FINAL_LIMITS if purpose == FINAL else SEARCH_LIMITS


class Crew:
    """Starts the workers of a run and waits for them.

    A generation is proposed when all of the last one is judged, so it does not matter which worker judged what, or in
    which order. The crew's supervisor only finds out whether a candidate's code is new.
    """

    def __init__(self, store: Store, settings: Settings, run_id: int, fleet: Fleet) -> None:
        self.store, self.settings, self.run_id, self.fleet = store, settings, run_id, fleet
        self.supervisor = Supervisor(SEARCH_LIMITS)
        self._ours: set[int] = set()

    def __enter__(self) -> Self:
        reclaim_threads(self.store, self.run_id)
        self._ask_as_now()
        self.fleet.start(self.run_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.fleet.close()
        finally:
            self.supervisor.close()

    def work(self, done: Done) -> None:
        """Wait until nothing of the run is queued or leased; `done` gets each evaluation that ends meanwhile."""
        self._ask_as_now()
        waiting = {row.id for row in self.store.evaluations(self.run_id) if row.state in OPEN}
        pause = FIRST_WAIT_SECONDS
        while waiting:
            self.fleet.tend()
            time.sleep(pause)
            self._ask_as_now()
            still = {row.id for state in OPEN for row in self.store.evaluations(self.run_id, state=state)}
            gone = [self.store.evaluation(number) for number in sorted(waiting - still)]
            ended = [row for row in gone if row.state not in OPEN]  # its state may have changed between the two reads
            for row in ended:
                done(row)
            waiting = (waiting | still) - {row.id for row in ended}
            pause = FIRST_WAIT_SECONDS if ended else min(1.5 * pause, LONGEST_WAIT_SECONDS)

    def _ask_as_now(self) -> None:
        """Queue an evaluation again if another version of Weft, or other settings of this run, queued it: no worker of
        this version would judge it, and the search would wait for ever. Raises NotOurs if that does not help.
        """
        for row in self.store.evaluations(self.run_id, state=State.QUEUED):
            if row.id in self._ours:
                continue
            candidate = self.store.candidate(row.candidate_id)
            key, request = _question(self.store, candidate, self.settings, str(row.request["for"]))
            if row.key == key:
                request_of(self.store, row)
                self._ours.add(row.id)
            else:
                self.store.supersede(row.id, key, request=request)
