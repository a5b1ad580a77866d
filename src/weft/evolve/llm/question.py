"""What a model is asked, and what it answered: frozen values."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from weft.core.errors import WeftError
from weft.store.keys import content_digest


class ModelError(WeftError):
    """Nobody answered: the endpoint refuses, is not there, or says nothing we understand. The run can go on later."""


@dataclass(frozen=True)
class Message:
    """One of a conversation; `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class Question:
    """A conversation that waits for an answer. Place and turn name it within its run."""

    place: str
    turn: int
    model: str
    messages: tuple[Message, ...]

    @cached_property
    def text(self) -> str:
        """As JSON, always in the same spelling."""
        record = {
            "place": self.place,
            "turn": self.turn,
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in self.messages],
        }
        return json.dumps(record, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @property
    def key(self) -> str:
        """The digest of all of it."""
        return content_digest(self.text)


@dataclass(frozen=True)
class Answer:
    """What came back, and what it took."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0


class Asker(Protocol):
    """Somebody who answers."""

    def ask(self, question: Question) -> Answer:
        """Raises ModelError where there is no answer."""
        ...
