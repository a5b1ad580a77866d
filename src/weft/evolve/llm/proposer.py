"""Children from a language model or another source of answers: validated, recorded, with their costs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from weft.core.errors import UsageError
from weft.engines.launch_lines import parse_lines
from weft.evolve.elites import parents
from weft.evolve.history import History
from weft.evolve.records import Member, Proposal, Spent
from weft.evolve.search import start_source
from weft.evolve.settings import Settings
from weft.store.store import Store
from weft.supervise.records import CandidateSource
from weft.tasks.registry import find_task

from .briefs import Brief, make_brief, read_brief
from .client import Endpoint
from .folder import Folder, write_verdicts
from .prompt import Prompts, cut
from .question import Asker, Message, Question
from .record import Exchanges, Replay, Total
from .reply import SELECTORS, BrokenReply, Reply, Rules, read_reply

TURNS = 2
"""Turns per place: a reply, and one more after a complaint."""
MOST_ECHOED_CHARS = 80_000


class ModelProposer:
    """Asks `asker`. No question is asked twice: answers are in the store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        asker: Asker,
        *,
        name: str,
        model: str,
        brief: Brief,
        record: Path | None = None,
        on_history: Callable[[History], object] | None = None,
    ) -> None:
        self.name, self.gave_up = name, ""
        self._store, self._asker, self._model, self._brief, self._file = store, asker, model, brief, record
        self._on_history = on_history
        declared = {line.name for line in parse_lines(start_source(settings.start).text, settings.start).defines}
        selectors = tuple(each for each in SELECTORS if each in declared)
        self._rules = Rules(find_task(settings.task), selectors, brief.counters)
        self._exchanges: dict[int, Exchanges] = {}
        self._given: dict[str, Total] = {}

    def propose(
        self, history: History, settings: Settings, place: str, siblings: Sequence[Proposal]
    ) -> Proposal | None:
        """Return None if the model gives no usable reply for this place, even after a complaint, or a budget ended."""
        pool = parents(history, settings)
        if not pool:
            self.gave_up = "no candidate passes"
            return None
        random = Random(f"{settings.seed}/{place}")
        (parent,) = random.choices([member for member, _ in pool], weights=[weight for _, weight in pool])
        asked = self._prompts(settings).child(history, parent, siblings)
        known = {member.digest for member in history} | {sibling.source.digest for sibling in siblings}
        reply = self._converse(history, settings, place, asked, known)
        return self._proposal(reply, history, place, (parent.id,)) if reply is not None else None

    def repair(self, history: History, settings: Settings, failed: Member, place: str) -> Proposal | None:
        """Return a child of the same parent with the same levers; None as above."""
        asked = self._prompts(settings).repair(history, failed)
        reply = self._converse(history, settings, place, asked, {member.digest for member in history})
        if reply is None:
            return None
        return self._proposal(reply, history, place, (failed.parents[0], failed.id), repairs=failed.id)

    def _prompts(self, settings: Settings) -> Prompts:
        return Prompts(
            self._brief, settings, lambda member: self._store.text(self._store.candidate(member.id).source_digest)
        )

    def _of(self, history: History) -> Exchanges:
        run_id = self._store.candidate(history.start.id).run_id
        if run_id not in self._exchanges:
            self._exchanges[run_id] = Exchanges(self._store, run_id, self._file)
        return self._exchanges[run_id]

    def _converse(
        self, history: History, settings: Settings, place: str, messages: tuple[Message, ...], known: set[str]
    ) -> Reply | None:
        if self._on_history is not None:
            self._on_history(history)
        exchanges = self._of(history)
        for turn in range(TURNS):
            question = Question(place, turn, self._model, messages)
            answer = exchanges.find(question)
            if answer is None:
                self.gave_up = spent(history, settings, exchanges.total())
                if self.gave_up:
                    return None
                answer = self._asker.ask(question)
                exchanges.keep(question, answer)
            try:
                reply = read_reply(answer.text, self._rules)
                if CandidateSource(reply.source).digest in known:
                    raise BrokenReply("the source is the same as that of a known candidate: change two levers")
                self.gave_up = ""
                return reply
            except BrokenReply as complaint:
                exchanges.refuse(question, str(complaint))
                self.gave_up = f"no usable reply for place {place}: {complaint}"
                echoed = Message("assistant", cut(answer.text, MOST_ECHOED_CHARS) or "(nothing)")
                messages = (*messages, echoed, Message("user", _complaint(complaint)))
        return None

    def _proposal(
        self, reply: Reply, history: History, place: str, of: tuple[int, ...], *, repairs: int | None = None
    ) -> Proposal:
        return Proposal(
            source=CandidateSource(reply.source),
            parents=of,
            changes=reply.changes,
            hypothesis=reply.hypothesis,
            predicted=reply.predicted,
            repairs=repairs,
            spent=self._booked(history, place),
        )

    def _booked(self, history: History, place: str) -> Spent:
        """Return the cost, including earlier exchanges that gave no candidate, so that every exchange is counted."""
        generation = place.partition("/")[0]
        self._given = {
            at: total for at, total in self._given.items() if at != place and at.partition("/")[0] == generation
        }
        total = self._of(history).total(until=place)
        for booked in (*(Total.of(member.spent) for member in history), *self._given.values()):
            total = total.minus(booked)
        self._given[place] = total
        return total.spent


def spent(history: History, settings: Settings, total: Total) -> str:
    """Return the budget of tokens or money that the exchanges have used up; empty if none."""
    budget, prices = settings.budget, settings.prices
    if budget.tokens is not None and total.tokens >= budget.tokens:
        return f"{budget.tokens} tokens are used up"
    tokens = total.prompt_tokens * prices.prompt_per_million + total.completion_tokens * prices.completion_per_million
    if budget.money is not None and tokens / 1e6 + history.seconds * prices.machine_per_hour / 3600 >= budget.money:
        return f"the budget of {budget.money:g} in money is used up"
    return ""


def make_llm_proposer(
    store: Store,
    settings: Settings,
    *,
    base_url: str = "",
    key_variable: str = "OPENAI_API_KEY",
    record: Path | None = None,
    replay: Path | None = None,
) -> ModelProposer:
    """Return a proposer with the model `settings.model` at `base_url`, or with the recorded answers of a file."""
    if replay is not None:
        answers = Replay(replay)
        return ModelProposer(
            store,
            settings,
            answers,
            name="llm",
            model=settings.model or answers.model,
            brief=_brief(settings),
            record=record,
        )
    if not settings.model:
        raise UsageError("name the model with --model, and its endpoint with --base-url")
    counted = settings.budget.tokens is not None or settings.budget.money is not None
    endpoint = Endpoint(base_url, key_variable=key_variable, counted=counted)
    return ModelProposer(
        store, settings, endpoint, name="llm", model=settings.model, brief=_brief(settings), record=record
    )


def make_files_proposer(
    store: Store,
    settings: Settings,
    *,
    wait_seconds: float = 3600.0,
    record: Path | None = None,
    replay: Path | None = None,
) -> ModelProposer:
    """Return a proposer for an external agent that reads `outbox` and writes `inbox` in the brief's folder."""
    if not settings.folder:
        raise UsageError("name the folder with --folder; weft evolve init creates it")
    folder = Path(settings.folder)
    asker = Replay(replay) if replay is not None else Folder(folder, wait_seconds)
    return ModelProposer(
        store,
        settings,
        asker,
        name="files",
        model=settings.model or "files",
        brief=_brief(settings),
        record=record,
        on_history=lambda history: write_verdicts(folder, history),
    )


def _brief(settings: Settings) -> Brief:
    return read_brief(Path(settings.folder), settings) if settings.folder else make_brief(settings)


def _complaint(complaint: BrokenReply) -> str:
    return f"Your reply cannot be used: {complaint}\n\nGive the whole reply again, in the format as instructed."
