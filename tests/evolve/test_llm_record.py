"""The record: answers by place in the store, by digest in a file; files that a killed driver left."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.core.errors import UsageError
from weft.evolve.llm.question import Answer, Message, Question
from weft.evolve.llm.record import Exchanges, NotRecorded, Replay, Total
from weft.store.store import Store, open_store

FIRST = Question("1/0/0", 0, "m", (Message("user", "é?"),))
SECOND = Question("1/0/0", 1, "m", (Message("user", "again"),))
THIRD = Question("1/1/0", 0, "m", (Message("user", "é?"),))
YES, NO = Answer("yes", 10, 1, 100), Answer("no", 20, 2, 250)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "weft.db") as opened:
        opened.start_run("evolve", task="sdpa")
        opened.start_run("evolve", task="sdpa")
        yield opened


def test_an_answer_is_found_by_run_and_place(store: Store) -> None:
    mine, other = Exchanges(store, 1), Exchanges(store, 2)
    mine.keep(FIRST, YES)
    assert mine.find(FIRST) == YES and mine.find(SECOND) is None and mine.find(THIRD) is None
    assert other.find(FIRST) is None
    # The brief was edited: the place is the same, and its answer was paid for.
    assert Exchanges(store, 1).find(Question("1/0/0", 0, "m", (Message("user", "edited"),))) == YES
    mine.keep(FIRST, NO)
    assert mine.find(FIRST) == YES


def test_totals_stop_at_a_place(store: Store) -> None:
    exchanges = Exchanges(store, 1)
    assert exchanges.total() == Total()
    for question, answer in ((FIRST, YES), (SECOND, NO), (THIRD, NO)):
        exchanges.keep(question, answer)
    assert exchanges.total() == Total(50, 5, 600)
    assert exchanges.total(until="1/0/0") == Total(30, 3, 350)
    assert Total.of(exchanges.total().spent) == exchanges.total()


def test_a_file_answers_only_recorded_questions(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    exchanges = Exchanges(store, 1, file)
    exchanges.keep(FIRST, YES)
    exchanges.keep(SECOND, NO)
    replay = Replay(file)
    assert replay.model == "m" and replay.ask(FIRST) == YES and replay.ask(SECOND) == NO
    with pytest.raises(NotRecorded, match=r"place 1/1/0, turn 0 .*no model was asked"):
        replay.ask(THIRD)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["question"]["messages"] for row in rows] == [
        [{"role": "user", "content": "é?"}],
        [{"role": "user", "content": "again"}],
    ]


def test_a_file_gets_what_a_killed_driver_did_not_write(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    exchanges = Exchanges(store, 1, file)
    exchanges.keep(FIRST, YES)
    exchanges.keep(SECOND, NO)
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    assert Replay(file).ask(FIRST) == YES
    again = Exchanges(store, 1, file)
    assert again.find(FIRST) == YES and again.find(SECOND) == NO
    assert file.read_bytes() == whole


def test_an_invalid_record_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    with pytest.raises(UsageError, match="cannot read"):
        Replay(file)
    file.write_text('{"key": "x"}\n')
    with pytest.raises(UsageError, match=r"record.jsonl:1 is not an exchange"):
        Replay(file)
    file.write_text("")
    with pytest.raises(UsageError, match="name one with --model"):
        _ = Replay(file).model
