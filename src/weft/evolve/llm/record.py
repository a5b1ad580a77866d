"""Every exchange with a model, stored by run and place, and in a JSONL file if one is named.

A resumed run finds its answers by place; a file answers only by the digest of the question.
"""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from weft.core.errors import UsageError
from weft.evolve.records import Spent
from weft.store.database import insert_new
from weft.store.schema import METADATA, Utc
from weft.store.store import Store

from .question import Answer, ModelError, Question

exchanges = sa.Table(
    "evolve_exchanges",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.id"), nullable=False),
    sa.Column("place", sa.String(64), nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("question", sa.ForeignKey("artefacts.digest"), nullable=False),
    sa.Column("answer", sa.ForeignKey("artefacts.digest"), nullable=False),
    sa.Column("prompt_tokens", sa.Integer, nullable=False),
    sa.Column("completion_tokens", sa.Integer, nullable=False),
    sa.Column("milliseconds", sa.Integer, nullable=False),
    sa.Column("refused", sa.Text, nullable=False),
    sa.Column("created_at", Utc, nullable=False),
    sa.UniqueConstraint("run_id", "place", "turn"),
)
"""The table of exchanges: a paid question is never asked again."""


class NotRecorded(ModelError):
    """A replay has no answer to a question."""


@dataclass(frozen=True)
class Total:
    """The cost of exchanges, as integers, so that sums are exact."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0

    def minus(self, other: "Total") -> "Total":
        return Total(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(Total)))

    @classmethod
    def of(cls, spent: Spent) -> "Total":
        return cls(spent.prompt_tokens, spent.completion_tokens, round(1000 * spent.seconds))

    @property
    def spent(self) -> Spent:
        return Spent(self.prompt_tokens, self.completion_tokens, self.milliseconds / 1000)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class Exchanges:
    """The exchanges of one run; `file` gets a line for each."""

    def __init__(self, store: Store, run_id: int, file: Path | None = None) -> None:
        self._store, self._run_id, self._file = store, run_id, file
        store.create(exchanges)
        self._written = _reopened(file) if file is not None and file.exists() else set()

    def find(self, question: Question) -> Answer | None:
        """Return the answer at its place, even if the brief was edited since."""
        with self._store.reading() as connection:
            row = connection.execute(sa.select(exchanges).where(self._at(question))).one_or_none()
        if row is None:
            return None
        answer = Answer(self._store.text(row.answer), row.prompt_tokens, row.completion_tokens, row.milliseconds)
        self._write(self._store.text(row.question), row.question, answer)
        return answer

    def keep(self, question: Question, answer: Answer) -> None:
        """Store an exchange once, before the answer is used."""
        counts = {name: value for name, value in asdict(answer).items() if name != "text"}
        digests = {
            "question": self._store.put(question.text.encode(), kind="question"),
            "answer": self._store.put(answer.text.encode(), kind="answer"),
        }
        with self._store.begin() as connection:
            values = {
                "run_id": self._run_id,
                "place": question.place,
                "turn": question.turn,
                **digests,
                **counts,
                "refused": "",
                "created_at": self._store.now(),
            }
            insert_new(connection, exchanges, values)
        self._write(question.text, question.key, answer)

    def refuse(self, question: Question, why: str) -> None:
        """Record what is wrong with an answer."""
        with self._store.begin() as connection:
            connection.execute(exchanges.update().where(self._at(question)).values(refused=why))

    def refusals(self) -> tuple[tuple[str, int, str], ...]:
        """Return place, turn and reason of all answers that could not be used."""
        columns = (exchanges.c.place, exchanges.c.turn, exchanges.c.refused)
        query = sa.select(*columns).where((exchanges.c.run_id == self._run_id) & (exchanges.c.refused != ""))
        with self._store.reading() as connection:
            return tuple((row.place, row.turn, row.refused) for row in connection.execute(query.order_by("id")))

    def total(self, until: str | None = None) -> Total:
        """Return the cost of all exchanges; with `until`, only of those up to that place."""
        mine = exchanges.c.run_id == self._run_id
        if until is not None:
            at_place = sa.select(sa.func.max(exchanges.c.id)).where(mine & (exchanges.c.place == until))
            mine &= exchanges.c.id <= at_place.scalar_subquery()
        sums = [sa.func.coalesce(sa.func.sum(exchanges.c[each.name]), 0) for each in fields(Total)]
        with self._store.reading() as connection:
            return Total(*(int(each) for each in connection.execute(sa.select(*sums).where(mine)).one()))

    def _at(self, question: Question) -> sa.ColumnElement[bool]:
        return (
            (exchanges.c.run_id == self._run_id)
            & (exchanges.c.place == question.place)
            & (exchanges.c.turn == question.turn)
        )

    def _write(self, asked: str, key: str, answer: Answer) -> None:
        """Write a line unless the file has it: a driver may have been killed between the store and the file."""
        if self._file is None or key in self._written:
            return
        line = json.dumps({"key": key, "question": json.loads(asked), "answer": asdict(answer)}, ensure_ascii=False)
        with self._file.open("ab") as stream:
            stream.write(f"{line}\n".encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._written.add(key)


class Replay:
    """Answers from a file; there is no network."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = read_lines(file)

    @property
    def model(self) -> str:
        """Return the name of the model that answered."""
        models = {str(line["question"]["model"]) for line in self._known.values()}
        if len(models) != 1:
            raise UsageError(
                f"{self._file} has answers of {', '.join(sorted(models)) or 'no model'}: name one with --model"
            )
        return models.pop()

    def ask(self, question: Question) -> Answer:
        """Return the recorded answer. Raises NotRecorded."""
        line = self._known.get(question.key)
        if line is None:
            raise NotRecorded(
                f"{self._file} has no answer for place {question.place}, turn {question.turn} ({question.key[:12]}): "
                "seed, settings, brief, model or Weft differ from those of the recorded run; no model was asked"
            )
        try:
            return Answer(**line["answer"])
        except TypeError as error:
            raise UsageError(
                f"{self._file}: the answer of {question.key[:12]} is not a valid record: {error}"
            ) from error


def read_lines(file: Path) -> dict[str, dict[str, Any]]:
    """Return key → line. An incomplete last line, which a killed driver leaves, is ignored; others must be complete."""
    try:
        whole = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    found: dict[str, dict[str, Any]] = {}
    for number, text in enumerate(whole.split("\n")[:-1], 1):
        try:
            line = json.loads(text)
            found.setdefault(str(line["key"]), {"question": line["question"], "answer": line["answer"]})
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file}:{number} is not an exchange: {error}") from error
    return found


def _reopened(file: Path) -> set[str]:
    """Return the keys of a file that is continued; remove the incomplete line that a killed driver left."""
    known = set(read_lines(file))
    content = file.read_bytes()
    if not content.endswith(b"\n"):
        os.truncate(file, content.rfind(b"\n") + 1)
    return known
