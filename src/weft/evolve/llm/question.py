"""Questions to a model and its answers: frozen values."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from weft.core.errors import WeftError
from weft.store.keys import content_digest


class ModelError(WeftError):
    """There is no answer: the endpoint refuses, cannot be reached or answers invalid data. The run can be resumed."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class Question:
    """A conversation that waits for an answer. Place and turn identify it in its run."""

    place: str
    turn: int
    model: str
    messages: tuple[Message, ...]

    @cached_property
    def text(self) -> str:
        """Return the canonical JSON text."""
        record = {
            "place": self.place,
            "turn": self.turn,
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in self.messages],
        }
        return json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @property
    def key(self) -> str:
        """Return the digest of the question."""
        return content_digest(self.text)


@dataclass(frozen=True)
class Answer:
    """An answer and its cost."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0


class Asker(Protocol):
    """Answers questions: a model, a recording or an external agent."""

    def ask(self, question: Question) -> Answer:
        """Return the answer. Raises ModelError if there is none."""
        ...
