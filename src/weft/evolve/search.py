"""The loop: propose a generation, judge it, learn, until the budget is used up; then run the whole check of the best.

Every decision depends only on the store's rows and the run's seed, and every step is idempotent: after a driver was
killed at any moment, another one continues by calling `go` again.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from weft.core.errors import UsageError
from weft.fleet.fleets import Fleet, ThreadFleet
from weft.kernels.ladder import RUNGS
from weft.store.records import CandidateRow, RunRow, RunState, State
from weft.store.store import Store
from weft.supervise.records import CandidateSource, Canonical

from .crew import Crew, enqueue, request_for
from .elites import elites
from .history import FINAL, SEARCH, History, read_history
from .ledger import write_lessons
from .levers.space import rung_source
from .proposer import Proposer
from .records import Member, Proposal
from .settings import Budget, Settings
from .stopwatch import Stopwatch, time_child

KIND = "evolve"
ATTEMPTS = 6
"""Limit of proposals for one place of a generation, until one is new."""

Watch = Callable[[str, History], None]


def _silent(what: str, history: History) -> None:
    """Ignores every event."""


@dataclass(frozen=True)
class Ended:
    """The result of a search."""

    run_id: int
    why: str
    history: History
    winner: Member | None
    """The best candidate that passes the whole check; None if none does."""
    refused: tuple[tuple[int, str], ...]
    """Better candidates that failed the whole check, and why."""


def start_search(store: Store, settings: Settings) -> RunRow:
    """Add a run; nothing is evaluated yet."""
    start_source(settings.start)
    return store.start_run(KIND, task=settings.task, chip=settings.chip, seed=settings.seed, settings=settings.record())


def settings_of(run: RunRow, budget: Budget | None = None) -> Settings:
    """Return the settings of a run to resume, with another budget if one is given."""
    if run.kind != KIND:
        raise UsageError(f"run {run.id} is not a search; `weft runs` lists the searches")
    settings = Settings.from_record(run.settings)
    return replace(settings, budget=budget) if budget is not None else settings


def start_source(start: str) -> CandidateSource:
    """Return the source of a rung, or of a file."""
    path = RUNGS[start].path if start in RUNGS else Path(start)
    if path.suffix == ".py":
        raise UsageError(f"{start} is Triton, which runs Python on this host: a search starts from {_cuda_like(start)}")
    if path.suffix != ".cu":
        raise UsageError(f"{start}: a search starts from CUDA source, a rung or a .cu file with launch lines")
    try:
        return CandidateSource(rung_source(start) if start in RUNGS else path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {start}: {error}; it is neither a rung nor a file") from error


def _cuda_like(start: str) -> str:
    """Return what a search can start from instead of a Triton kernel."""
    rungs = [rung for rung in RUNGS.values() if rung.language == "CUDA"]
    same = [rung.name for rung in rungs if start in RUNGS and rung.task == RUNGS[start].task]
    named = f"a CUDA rung of the same task ({', '.join(same)})" if same else "a .cu file with `lever` lines"
    return f"{named}; `weft profile {start} -D LEVER=VALUE` compares the levers of a Triton kernel"


class Search:
    """The driver of one run of the store."""

    def __init__(
        self,
        store: Store,
        run_id: int,
        settings: Settings,
        proposer: Proposer,
        *,
        workers: int = 0,
        watch: Watch = _silent,
        stopwatch: Stopwatch | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        self.store, self.run_id, self.settings, self.proposer, self.watch = store, run_id, settings, proposer, watch
        self.stopwatch = stopwatch
        if fleet is None:  # more workers than children of a generation would be idle
            fleet = ThreadFleet(store, min(workers or os.cpu_count() or 1, settings.batch))
        self.crew = Crew(store, settings, run_id, fleet)

    def go(self) -> Ended:
        """Continue the run from its current state to its end."""
        with self.crew:
            self.store.set_run(self.run_id, state=RunState.RUNNING)
            self._add_start()
            why = self._generations()
            return self._finish(why)

    def _generations(self) -> str:
        while True:
            self.crew.work(lambda row: self.watch("evaluated", read_history(self.store, self.run_id)))
            history = self._timed(read_history(self.store, self.run_id))
            self._learn(history)
            if not history.start.passed:
                return f"the start does not pass: {_why(history.start)}"
            made = int(self.store.run(self.run_id).progress.get("generation", 0))
            if history.generation > made:  # the driver was killed during the proposals
                self._propose(history.until(made), history.generation)
                continue
            why = spent(history, self.settings)
            if why:
                return why
            if not self._propose(history, made + 1):
                return self.proposer.gave_up or "there is nothing new to propose"

    def _add_start(self) -> None:
        source = start_source(self.settings.start)
        row = self._add(source, {}, {"hypothesis": "the start"}, (), 0, "start")
        self._queue(row)

    def _propose(self, history: History, generation: int) -> bool:
        """Queue one generation; return False if nothing could be proposed."""
        room = min(self.settings.batch, self.settings.budget.evaluations - history.evaluations)
        siblings: list[Proposal] = []
        queued = 0
        for slot, failed in enumerate((*self._to_repair(history), *([None] * room))[:room]):
            for proposal in self._attempts(history, generation, slot, failed, siblings):
                siblings.append(proposal)
                if self._take(proposal, generation):
                    queued += 1
                    break
        self.store.set_run(self.run_id, progress={"generation": generation})
        self.watch("proposed", read_history(self.store, self.run_id))
        return queued > 0

    def _attempts(
        self, history: History, generation: int, slot: int, failed: Member | None, siblings: list[Proposal]
    ) -> Iterator[Proposal]:
        if failed is not None:
            repaired = self.proposer.repair(history, self.settings, failed, f"{generation}/{slot}/repair")
            if repaired is not None:
                yield repaired
        for attempt in range(ATTEMPTS):
            proposal = self.proposer.propose(history, self.settings, f"{generation}/{slot}/{attempt}", siblings)
            if proposal is None:
                return
            yield proposal

    def _to_repair(self, history: History) -> tuple[Member, ...]:
        """Return the members of the last generation that failed and were not repaired too often."""
        return tuple(
            member
            for member in history.of(history.generation)
            if member.parents
            and member.evaluation is not None
            and not member.evaluation.passed
            and _repairs_before(history, member) < self.settings.repairs
        )

    def _take(self, proposal: Proposal, generation: int) -> bool:
        """Add the proposal to the store and the queue; return False if the same code is known."""
        row = self._add(
            proposal.source,
            proposal.levers_record(),
            proposal.notes_record(),
            proposal.parents,
            generation,
            self.proposer.name,
        )
        if row.generation != generation:  # the same text is known
            return False
        return self._queue(row)

    def _queue(self, row: CandidateRow) -> bool:
        """Queue a candidate. Repeating it after a kill between any two of its steps gives the same result."""
        digest = row.canonical if row.canonical is not None else self._canonical(row).digest
        if digest is not None:
            self.store.set_canonical(row.id, digest)
            same = [each for each in self.store.with_canonical(self.run_id, digest) if each.id < row.id]
            if same:
                self.store.set_notes(row.id, {**row.notes, "duplicate_of": same[0].id})
                return False
        enqueue(self.store, row, self.settings, SEARCH)
        return True

    def _canonical(self, row: CandidateRow) -> Canonical:
        return self.crew.supervisor.canonical_ptx(request_for(self.store, row, self.settings, SEARCH))

    def _add(
        self,
        source: CandidateSource,
        levers: dict[str, object],
        notes: dict[str, object],
        parents: tuple[int, ...],
        generation: int,
        proposer: str,
    ) -> CandidateRow:
        return self.store.add_candidate(
            self.run_id,
            digest=source.digest,
            source=source.text,
            language=source.language,
            launch=source.launch,
            defines=source.defines,
            parents=parents,
            levers=levers,
            generation=generation,
            proposer=proposer,
            notes=notes,
        )

    def _timed(self, history: History) -> History:
        """Return the history with the times of a real GPU, in a search that measures; each is stored at once."""
        if self.stopwatch is None:
            return history
        for member in history:
            if member.timing is None and member.passed:
                row, parent = self.store.candidate(member.id), history.parent(member)
                source = CandidateSource(self.store.text(row.source_digest))
                parent_source = (
                    None
                    if parent is None
                    else CandidateSource(self.store.text(self.store.candidate(parent.id).source_digest))
                )
                timing = time_child(self.stopwatch, source, parent_source, self.settings.gain)
                self.store.set_notes(member.id, {**row.notes, "timing": timing.record()})
        return read_history(self.store, self.run_id)

    def _learn(self, history: History) -> None:
        known = {row.candidate_id for row in self.store.insights(self.run_id)}
        for member in history:
            if member.id not in known:
                write_lessons(self.store, self.run_id, history, member, self.settings.gain)

    def _finish(self, why: str) -> Ended:
        """Find the best that passes the whole check: the search itself judges a few workloads only."""
        history = read_history(self.store, self.run_id)
        refused: list[tuple[int, str]] = []
        winner = None
        for member in elites(history, self.settings):
            self.watch(f"running the whole check of candidate {member.id}", history)
            row = enqueue(self.store, self.store.candidate(member.id), self.settings, FINAL)
            self.crew.work(lambda row: None)
            row = self.store.evaluation(row.id)
            if row.state is State.DONE and row.status == "PASSED":
                winner = member
                break
            refused.append((member.id, f"{row.status}: {(row.result or {}).get('message', '')}"))
        generation = self.store.run(self.run_id).progress.get("generation", 0)
        ended = {"generation": generation, "why": why, "winner": winner.id if winner else None, "refused": refused}
        self.store.set_run(self.run_id, state=RunState.DONE, progress=ended)
        return Ended(self.run_id, why, history, winner, tuple(refused))


def spent(history: History, settings: Settings) -> str:
    """Return the budget that is used up; empty if none is."""
    budget = settings.budget
    if history.evaluations >= budget.evaluations:
        return f"{budget.evaluations} evaluations are used up"
    if budget.seconds is not None and history.seconds >= budget.seconds:
        return f"{budget.seconds:g} seconds are used up"
    if budget.tokens is not None and history.tokens >= budget.tokens:
        return f"{budget.tokens} tokens are used up"
    if budget.money is not None and history.money(settings.prices) >= budget.money:
        return f"the budget of {budget.money:g} in money is used up"
    return ""


def _repairs_before(history: History, member: Member) -> int:
    """Return how many repairs led to it."""
    count = 0
    while member.repairs is not None:
        member, count = history.by_id[member.repairs], count + 1
    return count


def _why(member: Member) -> str:
    message = member.evaluation.message if member.evaluation else "it was not evaluated"
    return f"{member.status}: {member.refused or message}"
