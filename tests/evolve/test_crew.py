"""A crew gets all queued evaluations judged: in one lease however long it takes, with this version's requests; or it
ends with a reason.
"""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.queued import ONE, StandIn
from weft.core.status import Status
from weft.evolve import crew as module
from weft.evolve.crew import Crew, enqueue
from weft.evolve.history import FINAL, SEARCH, read_history
from weft.evolve.search import start_search
from weft.evolve.settings import Settings
from weft.fleet import worker
from weft.fleet.fleets import THREAD_TERMS, ThreadFleet
from weft.fleet.requests import ASK, NotOurs
from weft.kernels.ladder import RUNGS
from weft.store.records import SUPERSEDED, CandidateRow, EvaluationRow, EventRow, Happened, State
from weft.store.store import Store, open_store
from weft.supervise.isolation import NotIsolated
from weft.supervise.records import CandidateSource, Limits, Request, ScoreOn

SETTINGS = Settings(score_on=ScoreOn(shape="small"), choice=ONE)
WALL_SECONDS, LEASE_SECONDS = 7.0, 3.0
ENDLESS = ("    const int end = visible_keys", "    while (SQ) if (l > 1.0f) break;\n    const int end = visible_keys")


def candidate(store: Store, number: int, settings: Settings = SETTINGS) -> CandidateRow:
    """Return the start of a new run; its text differs by its number."""
    run = start_search(store, settings)
    source = CandidateSource(RUNGS["scalar"].path.read_text() + f"\n// {number}\n")
    return store.add_candidate(run.id, digest=source.digest, source=source.text, notes={"hypothesis": ""})


def crew_of(store: Store, run_id: int, settings: Settings = SETTINGS, workers: int = 1) -> Crew:
    return Crew(store, settings, run_id, ThreadFleet(store, workers))


def worked(crew: Crew) -> list[EvaluationRow]:
    """Starts the crew, waits until all is judged, and returns what it reported."""
    ended: list[EvaluationRow] = []
    with crew:
        crew.work(ended.append)
    return ended


def happened(store: Store) -> list[EventRow]:
    return [event for event in store.events() if event.evaluation_id is not None]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Replace every worker's supervisor."""
    stand_in = StandIn()
    monkeypatch.setattr(worker, "Supervisor", stand_in)
    return stand_in


def test_a_hanging_candidate_is_one_verdict_in_one_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first evaluation takes longer than a lease, and the second worker is free before it ends: the second worker
    must not take an evaluation that is still running.
    """
    asked = module.request_for

    def never_out_of_steps(store: Store, row: CandidateRow, settings: Settings, purpose: str) -> Request:
        return replace(asked(store, row, settings, purpose), max_steps=1 << 40)

    monkeypatch.setattr(module, "request_for", never_out_of_steps)
    monkeypatch.setattr(module, "SEARCH_LIMITS", Limits(wall_seconds=WALL_SECONDS))
    monkeypatch.setattr(module, "FINAL_LIMITS", Limits(wall_seconds=WALL_SECONDS - 2))
    text = RUNGS["scalar"].path.read_text()
    assert text.count(ENDLESS[0]) == 1
    source = CandidateSource(text.replace(*ENDLESS))
    with open_store(tmp_path / "weft.db") as store:
        run = start_search(store, SETTINGS)
        row = store.add_candidate(run.id, digest=source.digest, source=source.text)
        for purpose in (SEARCH, FINAL):
            enqueue(store, row, SETTINGS, purpose)
        fleet = ThreadFleet(store, 2, replace(THREAD_TERMS, lease_seconds=LEASE_SECONDS))
        ended = worked(Crew(store, SETTINGS, run.id, fleet))
        assert [each.request["for"] for each in ended] == [FINAL, SEARCH]
        for each in ended:
            assert (each.state, each.status, each.attempts, each.token) == (State.DONE, "TIMEOUT", 1, 1)
            leased, finished = [event for event in store.events() if event.evaluation_id == each.id]
            assert (leased.kind, finished.kind) == (Happened.LEASED, Happened.FINISHED)
            assert leased.owner == finished.owner
            assert (finished.at - leased.at).total_seconds() < WALL_SECONDS + 10


def test_every_evaluation_is_judged_once_and_reported_once(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        first = candidate(store, 0)
        rows = [enqueue(store, first, SETTINGS, SEARCH)]
        for number in range(1, 6):
            source = CandidateSource(RUNGS["scalar"].path.read_text() + f"\n// {number}\n")
            row = store.add_candidate(first.run_id, digest=source.digest, source=source.text)
            rows.append(enqueue(store, row, SETTINGS, SEARCH))
        ended = worked(crew_of(store, first.run_id, workers=3))
        assert sorted(row.id for row in ended) == [row.id for row in rows]
        assert {row.status for row in ended} == {"PASSED"} and len(judge.seen) == 6
        assert Counter(event.kind for event in happened(store)) == {Happened.LEASED: 6, Happened.FINISHED: 6}
        assert len(store.workers()) == 3 and all(row.stopped_at is not None for row in store.workers())


def test_workers_stay_from_generation_to_generation(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        with crew_of(store, row.run_id) as crew:
            for purpose in (SEARCH, FINAL):
                enqueue(store, row, SETTINGS, purpose)
                crew.work(lambda ended: None)
        kinds = Counter(event.kind for event in store.events())
        assert (kinds[Happened.WORKER_STARTED], kinds[Happened.WORKER_STOPPED], kinds[Happened.FINISHED]) == (1, 1, 2)


def test_what_ends_one_worker_ends_the_search(tmp_path: Path, judge: StandIn) -> None:
    """The sibling's evaluation is queued again at once, and no worker counts as lost over it."""

    def during(number: int) -> None:
        if number == 2:
            raise OSError("no space left on device")
        judge.until_interrupted(number)

    judge.during = during
    with open_store(tmp_path / "weft.db") as store:
        first = candidate(store, 0)
        enqueue(store, first, SETTINGS, SEARCH)
        enqueue(store, first, SETTINGS, FINAL)
        with pytest.raises(OSError, match="no space left"):
            worked(crew_of(store, first.run_id, workers=2))
        rows = store.evaluations(first.run_id)
        assert [(row.state, row.attempts) for row in rows] == [(State.QUEUED, 0)] * 2


def test_an_interrupt_queues_running_evaluations_again(tmp_path: Path, judge: StandIn) -> None:
    judge.during = judge.until_interrupted
    with open_store(tmp_path / "weft.db") as store:
        first = candidate(store, 0)
        row = enqueue(store, first, SETTINGS, SEARCH)
        with pytest.raises(KeyboardInterrupt), crew_of(store, first.run_id):
            while not judge.seen:
                time.sleep(0.01)
            raise KeyboardInterrupt
        given_back = store.evaluation(row.id)
        assert (given_back.state, given_back.attempts, given_back.owner) == (State.QUEUED, 0, None)


def test_the_leases_of_a_driver_that_was_killed_are_free_at_once(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        first = candidate(store, 0)
        worked(crew_of(store, first.run_id))
        (name,) = [each.name for each in store.workers()]
        row = enqueue(store, first, SETTINGS, SEARCH)
        assert store.lease(name, seconds=3600) is not None  # and then it was killed
        other = enqueue(store, first, SETTINGS, FINAL)
        assert store.lease("elsewhere-1-abc", seconds=0.5, evaluation_id=other.id) is not None
        start = time.monotonic()
        worked(crew_of(store, first.run_id))
        assert time.monotonic() - start < 30
        assert store.evaluation(row.id).state is State.DONE
        taken = [event for event in store.events() if event.kind is Happened.RECLAIMED]
        assert [event.owner for event in taken] == [name]  # the other lease had to expire


def older(store: Store, row: CandidateRow, settings: Settings = SETTINGS) -> EvaluationRow:
    """Return an evaluation that an older version of Weft queued: the key covers another judge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "request_key", lambda request: "0" * 64)
        return enqueue(store, row, settings, SEARCH)


def test_what_an_older_version_queued_is_queued_again(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        stale = older(store, row)
        worked(crew_of(store, row.run_id))
        before, now = store.evaluations(row.run_id)
        assert (before.id, before.state, before.status) == (stale.id, State.ABANDONED, SUPERSEDED)
        assert (now.state, now.status, now.request) == (State.DONE, "PASSED", stale.request)
        assert store.cached(stale.key) is None and store.cached(now.key) is not None
        (member,) = read_history(store, row.run_id)
        assert member.status == "PASSED"


def test_what_a_worker_of_an_older_version_left_is_queued_again(tmp_path: Path, judge: StandIn) -> None:
    """Its lease expires while the crew waits: the crew's own worker refuses it, the crew queues it again."""
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        stale = older(store, row)
        assert store.lease("elsewhere-1-abc", seconds=1) is not None
        worked(crew_of(store, row.run_id))
        before, now = store.evaluations(row.run_id)
        assert (before.id, before.status, now.status) == (stale.id, SUPERSEDED, "PASSED")


def test_a_run_may_go_back_to_the_version_it_came_from(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        first = enqueue(store, row, SETTINGS, SEARCH)
        store.supersede(first.id, "0" * 64, request=first.request)
        worked(crew_of(store, row.run_id))
        assert [each.status for each in store.evaluations(row.run_id)] == ["PASSED", SUPERSEDED]
        (member,) = read_history(store, row.run_id)
        assert member.status == "PASSED"


def test_settings_of_a_resumed_run_apply_to_queued_evaluations(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        enqueue(store, row, SETTINGS, SEARCH)
        worked(crew_of(store, row.run_id, replace(SETTINGS, isolation=2)))
        assert [request.isolation for request in judge.seen] == [2]


def test_a_request_that_cannot_be_read_ends_the_search(tmp_path: Path, judge: StandIn) -> None:
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        key = module.request_key(module.request_for(store, row, SETTINGS, SEARCH))
        store.enqueue(row.run_id, row.id, key, request={"for": SEARCH, ASK: {}})
        with pytest.raises(NotOurs, match="cannot be read here"):
            worked(crew_of(store, row.run_id))
        assert judge.seen == []


def test_too_little_isolation_ends_the_search(tmp_path: Path, judge: StandIn) -> None:
    def during(number: int) -> None:
        raise NotIsolated("level 3 is required, level 1 is there")

    judge.during = during
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        enqueue(store, row, SETTINGS, SEARCH)
        with pytest.raises(NotIsolated, match="level 3 is required"):
            worked(crew_of(store, row.run_id))
        (left,) = store.evaluations(row.run_id)
        assert (left.state, left.attempts) == (State.QUEUED, 0)


def test_a_candidate_that_loses_three_children_is_given_up(tmp_path: Path, judge: StandIn) -> None:
    judge.status = Status.LOST
    with open_store(tmp_path / "weft.db") as store:
        row = candidate(store, 0)
        enqueue(store, row, SETTINGS, SEARCH)
        (ended,) = worked(crew_of(store, row.run_id))
        assert (ended.state, ended.status, len(judge.seen)) == (State.ABANDONED, "LOST", 3)
