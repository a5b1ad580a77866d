"""Records of the generator: a token, a line, and a mutant."""

from dataclasses import dataclass
from typing import Literal

Language = Literal["CUDA", "Triton"]


@dataclass(frozen=True)
class Token:
    """A token of a line that may be changed, and the kind of code that contains it."""

    kind: str
    """word, number or punct."""
    text: str
    start: int
    """Column, from 0."""
    end: int
    where: str
    """`code`; `index` within a subscript; `template` in template arguments; `size` in an array's declaration."""
    partner: int
    """The column of the other bracket, if it is on the same line; -1 otherwise."""


@dataclass(frozen=True)
class Line:
    """One line of a kernel with the tokens that are code: no comment, string, asm, signature or assertion."""

    number: int
    text: str
    tokens: tuple[Token, ...]
    language: Language
    following: "Line | None" = None
    """The next line of the text, if it is code too."""

    @property
    def code(self) -> str:
        """The line without indentation and comment, which a label refers to."""
        return self.text[: self.tokens[-1].end].strip() if self.tokens else ""


@dataclass(frozen=True)
class Mutant:
    """A kernel file with one line changed, or two adjacent lines exchanged."""

    id: str
    """Made from file, operator, text and occurrence: it does not change when other lines of the file change."""
    path: str
    """The file's name."""
    line: int
    """The first changed line, from 1."""
    operator: str
    klass: str
    before: str
    after: str
    held_out: bool
    """Whether its operator is held out: it is scored separately."""
