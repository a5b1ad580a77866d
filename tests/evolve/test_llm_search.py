"""Complete searches with a model behind a server on loopback: good, broken and wrong replies; replay; resume."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from weft.core.status import Status
from weft.evolve.history import History, read_history
from weft.evolve.levers import Change, family, observed, render, start_of
from weft.evolve.llm import (
    ModelError,
    NotRecorded,
    make_files_proposer,
    make_llm_proposer,
    write_brief,
    write_verdicts,
)
from weft.evolve.llm.briefs import METRICS
from weft.evolve.llm.record import Exchanges
from weft.evolve.search import Ended, Search, start_search, start_source
from weft.evolve.settings import Budget, Settings
from weft.judge.select import Choice
from weft.store.store import Store, open_store
from weft.supervise.records import ScoreOn

from .stub_model import COMPLETION_TOKENS, PROMPT_TOKENS, Refusal, StubModel, reply_text, served

ONE = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), seeds=(0,))
SMALL = Settings(
    proposer="llm", model="stub-1", seed=1, batch=2, score_on=ScoreOn(shape="small"), choice=ONE, final=ONE,
    budget=Budget(evaluations=4),
)  # fmt: skip
SPACE, START = family("sdpa"), start_of("wmma")
BETTER = START.moved({"EXP": "exp2", "TAIL": "edge"})
REPAIRED = START.moved({"EXP": "exp2", "RESCALE": "moved"})
SCALED, UNSCALED = "factor = scale * LOG2_E;", "factor = LOG2_E;"
KEY = "sk-secret-0123456789"


@dataclass(frozen=True)
class Recorded:
    ended: Ended
    stub: StubModel
    store: Path
    file: Path


def good() -> str:
    return reply_text(render(SPACE, BETTER), SPACE.changes(START, BETTER))


def wrong() -> str:
    """A kernel that forgets 1/√D."""
    text = render(SPACE, REPAIRED)
    assert SCALED in text
    return reply_text(text.replace(SCALED, UNSCALED), SPACE.changes(START, REPAIRED))


def repaired() -> str:
    return reply_text(render(SPACE, REPAIRED), SPACE.changes(START, REPAIRED))


def broken() -> str:
    return good().partition("```json")[0]


def script() -> list[str | Refusal]:
    """Slot 0 of the first generation: a rate limit, then a child. Slot 1: a reply without JSON; after the complaint, a
    wrong kernel. The second generation has space for one child: the wrong kernel is repaired.
    """
    return [Refusal(429, {"retry-after": "0"}), good(), broken(), wrong(), repaired()]


def search(store: Store, settings: Settings, **options: object) -> Ended:
    run = start_search(store, settings)
    return go_on(store, run.id, settings, **options)


def go_on(store: Store, run_id: int, settings: Settings, **options: object) -> Ended:
    proposer = make_llm_proposer(store, settings, **options)  # type: ignore[arg-type]
    return Search(store, run_id, settings, proposer, workers=1).go()


def begun(store: Store, recorded: Recorded, settings: Settings) -> History:
    """Return a separate run whose start was judged like the recorded one."""
    start = recorded.ended.history.start
    source = start_source("wmma")
    run = start_search(store, settings)
    row = store.add_candidate(run.id, digest=source.digest, source=source.text)
    assert row.digest == start.digest
    return History((replace(start, id=row.id),))


def lineage(history: History) -> list[tuple[object, ...]]:
    """Return all decisions of a search, with candidates by digest: another store numbers them differently."""
    digests = {member.id: member.digest for member in history}
    return [
        (
            member.digest,
            [digests[parent] for parent in member.parents],
            member.generation,
            member.changes,
            member.hypothesis,
            member.predicted,
            member.repairs and digests[member.repairs],
            member.spent,
            member.status,
            member.score,
        )
        for member in history
    ]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("llm")
    with pytest.MonkeyPatch.context() as patch, served(script()) as stub, open_store(folder / "weft.db") as store:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setenv("NO_PROXY", "127.0.0.1")
        ended = search(store, SMALL, base_url=stub.url, record=folder / "record.jsonl")
    yield Recorded(ended, stub, folder / "weft.db", folder / "record.jsonl")


def test_a_good_child_a_wrong_one_and_its_repair(recorded: Recorded) -> None:
    start, child, failed, repaired = recorded.ended.history
    assert recorded.ended.why == "4 evaluations are used up" and not recorded.stub.script
    assert child.passed and child.changes == (Change("EXP", "exp", "exp2"), Change("TAIL", "every", "edge"))
    assert child.score is not None and start.score is not None and child.score < start.score
    assert failed.evaluation is not None and failed.evaluation.status is Status.INCORRECT_NUMERICAL
    assert repaired.passed and repaired.repairs == failed.id and repaired.parents == (start.id, failed.id)
    assert recorded.ended.winner is not None and recorded.ended.winner.passed


def test_the_rate_limit_was_waited_for_and_every_token_is_booked(recorded: Recorded) -> None:
    first, second = recorded.stub.asked[:2]
    assert first == second
    answers = recorded.stub.answered
    assert answers == 4 and len(recorded.stub.asked) == 5
    prompt = [member.spent.prompt_tokens for member in recorded.ended.history]
    # The wrong kernel cost two answers: the first could not be used.
    assert prompt == [0, PROMPT_TOKENS, 2 * PROMPT_TOKENS + 1 + 2, PROMPT_TOKENS + 3]
    completion = [member.spent.completion_tokens for member in recorded.ended.history]
    assert completion == [0, COMPLETION_TOKENS, 2 * COMPLETION_TOKENS + 1 + 2, COMPLETION_TOKENS + 3]


def test_the_model_receives_what_is_wrong(recorded: Recorded) -> None:
    generate, _, _, complaint, repair = recorded.stub.prompts()
    assert "0 closed ```json blocks" in complaint
    for part in ("# Task: sdpa", "## The chip", "# The parent", "wmma_attention", "shared_wavefronts:"):
        assert part in generate
    assert "# Insights" not in generate
    diagnosis = recorded.ended.history.members[2].evaluation
    assert diagnosis is not None and diagnosis.diagnosis
    for part in (UNSCALED, "INCORRECT_NUMERICAL", diagnosis.diagnosis[:100], "# Insights", "est_cycles"):
        assert part in repair
    # The first child's effects are measured: one instruction less per score shows in its counters.
    assert "EXP exp → exp2, TAIL every → edge" in repair and "falls was expected: confirmed" in repair
    assert all(len(prompt) < 60_000 for prompt in recorded.stub.prompts())


def test_the_reason_of_a_refused_reply_is_kept(recorded: Recorded) -> None:
    with open_store(recorded.store) as store:
        ((place, turn, why),) = Exchanges(store, recorded.ended.run_id).refusals()
    assert (place, turn) == ("1/1/0", 0) and "```json" in why


def test_the_key_is_sent_and_never_kept(recorded: Recorded) -> None:
    assert set(recorded.stub.keys) == {f"Bearer {KEY}"}
    assert KEY not in recorded.file.read_text()
    assert KEY.encode() not in recorded.store.read_bytes()


def test_a_run_is_replayed_bit_for_bit_without_a_network(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setitem(sys.modules, "openai", None)
    with open_store(tmp_path / "again.db") as store:
        again = search(store, replace(SMALL, model=""), replay=recorded.file, record=tmp_path / "again.jsonl")
    assert lineage(again.history) == lineage(recorded.ended.history)
    assert again.why == recorded.ended.why and again.winner is not None and recorded.ended.winner is not None
    assert again.winner.digest == recorded.ended.winner.digest
    assert (tmp_path / "again.jsonl").read_text() == recorded.file.read_text()


def test_a_replay_of_another_run_says_so(recorded: Recorded) -> None:
    other = replace(SMALL, chip="a100")
    with open_store(recorded.store) as store:
        proposer = make_llm_proposer(store, other, replay=recorded.file)
        with pytest.raises(NotRecorded, match="no answer for place 1/0/0, turn 0"):
            proposer.propose(begun(store, recorded, other), other, "1/0/0", ())


@pytest.mark.parametrize("answers", [2, 3])
def test_a_stopped_run_is_resumed_and_asks_nothing_twice(recorded: Recorded, answers: int) -> None:
    """The endpoint refuses after this many answers: during the repair of a reply, and before that of a kernel."""
    replies = [line for line in script() if isinstance(line, str)]
    with open_store(recorded.store) as store:
        run = start_search(store, SMALL)
        with served([*replies[:answers], Refusal(401)]) as stub, pytest.raises(ModelError, match="401"):
            go_on(store, run.id, SMALL, base_url=stub.url)
        asked = stub.asked[:answers]
        with served(replies[answers:]) as rest:
            rest.answered = answers
            ended = go_on(store, run.id, SMALL, base_url=rest.url)
    assert [*asked, *rest.asked] == recorded.stub.asked[1:]
    tokens = [(member.spent.prompt_tokens, member.spent.completion_tokens) for member in ended.history]
    assert tokens == [(each.spent.prompt_tokens, each.spent.completion_tokens) for each in recorded.ended.history]
    assert [member.digest for member in ended.history] == [member.digest for member in recorded.ended.history]


def test_the_budget_of_tokens_ends_a_run(recorded: Recorded) -> None:
    """1010 tokens are used up after the first answer: no model is asked for the second child."""
    settings = replace(SMALL, budget=Budget(evaluations=4, tokens=PROMPT_TOKENS + COMPLETION_TOKENS))
    with served([good(), good()]) as stub, open_store(recorded.store) as store:
        ended = search(store, settings, base_url=stub.url)
    assert ended.why == f"{PROMPT_TOKENS + COMPLETION_TOKENS} tokens are used up"
    assert len(stub.asked) == 1 and [member.status for member in ended.history] == ["PASSED", "PASSED"]


def test_a_run_whose_model_gives_nothing_ends_with_the_reason(recorded: Recorded) -> None:
    settings = replace(SMALL, batch=1)
    with served(["I cannot do that."] * 3) as stub, open_store(recorded.store) as store:
        ended = search(store, settings, base_url=stub.url)
    assert len(stub.asked) == 2 and len(ended.history.members) == 1
    assert ended.why.startswith("no usable reply for place 1/0/0: the reply has 0 closed ```cuda blocks")


def test_tokens_of_replies_that_led_to_nothing_are_booked_on_the_next_child(recorded: Recorded) -> None:
    with served(["No.", "No.", good()]) as stub, open_store(recorded.store) as store:
        history = begun(store, recorded, SMALL)
        proposer = make_llm_proposer(store, SMALL, base_url=stub.url)
        assert proposer.propose(history, SMALL, "1/0/0", ()) is None
        child = proposer.propose(history, SMALL, "1/1/0", ())
        assert child is not None and child.spent.prompt_tokens == 3 * PROMPT_TOKENS + 0 + 1 + 2
        # Another driver of the run books the same.
        other = make_llm_proposer(store, SMALL, base_url=stub.url)
        assert other.propose(history, SMALL, "1/0/0", ()) is None
        assert other.propose(history, SMALL, "1/1/0", ()) == child


def test_a_known_source_is_not_a_child(recorded: Recorded) -> None:
    same = reply_text(start_source("wmma").text, SPACE.changes(START, BETTER))
    with served([same, good()]) as stub, open_store(recorded.store) as store:
        history = begun(store, recorded, SMALL)
        child = make_llm_proposer(store, SMALL, base_url=stub.url).propose(history, SMALL, "1/0/0", ())
    assert child is not None and child.source.text == render(SPACE, BETTER)
    assert "as that of a known candidate" in stub.prompts()[1]


def test_an_edited_brief_changes_what_is_asked(recorded: Recorded, tmp_path: Path) -> None:
    settings = replace(SMALL, folder=str(tmp_path / "brief"))
    task, _, metrics = write_brief(tmp_path / "brief", settings)
    with served([good(), good(), good()]) as stub, open_store(recorded.store) as store:
        make_llm_proposer(store, settings, base_url=stub.url).propose(
            begun(store, recorded, settings), settings, "1/0/0", ()
        )
        task.write_text(task.read_text() + "\nKeep the launch lines in capital letters.\n")
        metrics.write_text("issued: warp instructions\n")
        edited = make_llm_proposer(store, settings, base_url=stub.url)
        assert edited.propose(begun(store, recorded, settings), settings, "1/0/0", ()) is None
    as_written, changed, complaint = stub.prompts()
    # Unchanged files give the same prompt as no files.
    assert as_written == recorded.stub.prompts()[0]
    assert "capital letters" in changed and "shuffles" in as_written and "shuffles 3" not in changed
    # The reply predicts counters that are no longer in the list.
    assert "is not a counter; there are issued" in complaint and "is not a counter" in edited.gave_up


def test_the_metric_list_is_what_is_measured(recorded: Recorded) -> None:
    start = recorded.ended.history.start.evaluation
    assert start is not None and start.profile is not None
    assert set(METRICS) == set(observed(start.profile.kernel))


def test_the_history_of_the_store_is_the_one_that_ended(recorded: Recorded) -> None:
    with open_store(recorded.store) as store:
        assert lineage(read_history(store, recorded.ended.run_id)) == lineage(recorded.ended.history)


def documented_agent() -> Callable[..., None]:
    """Return the agent of the documentation page."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "evolve_agents.md").read_text()
    found: dict[str, Callable[..., None]] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], found)
    return found["answer"]


def test_an_external_agent_answers_by_files(recorded: Recorded, tmp_path: Path) -> None:
    settings = replace(SMALL, proposer="files", model="", folder=str(tmp_path))
    write_brief(tmp_path, settings)
    described = json.loads(good().partition("```json\n")[2].removesuffix("\n```\n"))
    answers = [{**described, "levers": [*described["levers"], described["levers"][0]]}, described]

    def think(asked: str) -> tuple[str, object]:
        assert "# Task: sdpa" in asked
        return render(SPACE, BETTER), answers.pop(0)

    def answering() -> None:
        with suppress(IndexError):  # it has no answer to a third question
            documented_agent()(tmp_path, think, 60)

    agent = threading.Thread(target=answering)
    with open_store(recorded.store) as store:
        history = begun(store, recorded, settings)
        proposer = make_files_proposer(store, settings, wait_seconds=60)
        agent.start()
        child = proposer.propose(history, settings, "1/0/0", ())
        assert child is not None and child.source.text == render(SPACE, BETTER)
        assert proposer.name == "files" and child.spent.prompt_tokens == 0
        silent = make_files_proposer(store, settings, wait_seconds=0.2)
        assert silent.propose(history, settings, "1/0/0", ()) is not None
        with pytest.raises(ModelError, match=r"no .*inbox.*1_1_0\..*\.json after 0\.2 s"):
            silent.propose(history, settings, "1/1/0", ())
        agent.join()
    first, second = sorted((tmp_path / "outbox").glob("1_0_0.*.md"), key=lambda path: path.stat().st_mtime_ns)
    assert "Your reply cannot be used" not in first.read_text()
    assert "exactly two objects with name, before and after, not 3" in second.read_text()


def test_verdicts_are_written_as_files(recorded: Recorded, tmp_path: Path) -> None:
    paths = write_verdicts(tmp_path, recorded.ended.history)
    verdicts = [json.loads(path.read_text()) for path in paths]
    assert [verdict["status"] for verdict in verdicts] == ["PASSED", "PASSED", "INCORRECT_NUMERICAL", "PASSED"]
    assert verdicts[3]["parents"] == [verdicts[0]["digest"], verdicts[2]["digest"]]
    assert verdicts[2]["diagnosis"] and verdicts[2]["failure"]["gates"] and verdicts[1]["modelled_cycles"] > 0
