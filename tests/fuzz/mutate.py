"""PTX texts changed at random, and the only results that reading them may have."""

import random
import re
from collections.abc import Callable, Sequence

from weft.core.errors import ParseError, Unsupported
from weft.ptx.parse import parse, parse_kernel

_PIECES = re.compile(r"[ \t]+|\n|[\w.$%:]+|.")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|0[fFdD][0-9a-fA-F]+|\d+")
_NUMBERS = (
    "0",
    "-1",
    "1",
    "7",
    "08",
    "255",
    "4096",
    "65537",
    "1048577",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "1" + "0" * 40,
    "9" * 5000,
    "0x",
    "0xFFFFFFFFFFFFFFFF",
    "0x1FFFFFFFFFFFFFFFF",
    "0b102",
    "0f3F8",
    "0f7F800000",
    "0d7FF0000000000000",
    "1e999",
    "1.5",
    "8.4e1",
    "3.",
    "1U",
)
_CHARACTERS = "{}()[],;:@!|+-*/%&^~<>=?._$%\"\\\n\t 0aZ#'`\x00\x7fé²٣𝟙"
_LONG_NESTS = (2, 40, 127, 129, 3000)
_BRACKETS = (("{", "}"), ("(", ")"), ("[", "]"), ("/*", "*/"), ('"', '"'))


class Mutator:
    """Takes a text of the corpus and changes it one to four times; deterministic by seed."""

    def __init__(self, corpus: Sequence[str], seed: int) -> None:
        self.draw = random.Random(seed)
        self.corpus = [_PIECES.findall(text) for text in corpus]
        self.pool = sorted({piece for pieces in self.corpus for piece in pieces})
        self.changes: tuple[Callable[[list[str]], None], ...] = (
            self.remove,
            self.repeat,
            self.swap,
            self.replace,
            self.replace,
            self.insert,
            self.number,
            self.number,
            self.character,
            self.character,
            self.line,
            self.line,
            self.nest,
            self.cut,
            self.splice,
        )

    def text(self) -> str:
        """Return the next text."""
        pieces = list(self.draw.choice(self.corpus))
        for _ in range(self.draw.choice((1, 1, 1, 2, 2, 4))):
            if pieces:
                self.draw.choice(self.changes)(pieces)
        return "".join(pieces)

    def at(self, pieces: list[str]) -> int:
        return self.draw.randrange(len(pieces))

    def remove(self, pieces: list[str]) -> None:
        at = self.at(pieces)
        del pieces[at : at + self.draw.choice((1, 1, 2, 5))]

    def repeat(self, pieces: list[str]) -> None:
        at = self.at(pieces)
        pieces[at:at] = pieces[at : at + self.draw.choice((1, 1, 3, 30))]

    def swap(self, pieces: list[str]) -> None:
        one, other = self.at(pieces), self.at(pieces)
        pieces[one], pieces[other] = pieces[other], pieces[one]

    def replace(self, pieces: list[str]) -> None:
        pieces[self.at(pieces)] = self.draw.choice(self.pool)

    def insert(self, pieces: list[str]) -> None:
        pieces.insert(self.at(pieces), self.draw.choice(self.pool))

    def number(self, pieces: list[str]) -> None:
        """Replace a number: in an operand, an offset, a size, a register's or a version's."""
        places = [at for at, piece in enumerate(pieces) if any(character.isdigit() for character in piece)]
        if places:
            at = self.draw.choice(places)
            new = self.draw.choice(_NUMBERS)
            pieces[at] = _NUMBER.sub(lambda found: new if self.draw.random() < 0.7 else found[0], pieces[at])

    def character(self, pieces: list[str]) -> None:
        at = self.at(pieces)
        text, place = pieces[at], self.draw.randrange(len(pieces[at]) + 1)
        gone = self.draw.choice((0, 1))
        pieces[at] = text[:place] + self.draw.choice((*_CHARACTERS, "")) + text[place + gone :]

    def line(self, pieces: list[str]) -> None:
        """Remove a line, repeat it, or insert one from another text."""
        ends = [at for at, piece in enumerate(pieces) if piece == "\n"]
        if len(ends) < 3:
            return
        at = self.draw.randrange(len(ends) - 1)
        line = pieces[ends[at] : ends[at + 1]]
        match self.draw.choice(("remove", "repeat", "move", "foreign")):
            case "remove":
                del pieces[ends[at] : ends[at + 1]]
            case "repeat":
                pieces[ends[at] : ends[at]] = line
            case "move":
                del pieces[ends[at] : ends[at + 1]]
                to = self.draw.randrange(len(pieces) + 1)
                pieces[to:to] = line
            case _:
                other = "".join(self.draw.choice(self.corpus)).splitlines()
                pieces.insert(ends[at], "\n" + self.draw.choice(other))

    def nest(self, pieces: list[str]) -> None:
        """Put brackets around a part, once or many times, closed or not."""
        left, right = self.draw.choice(_BRACKETS)
        times = self.draw.choice(_LONG_NESTS) if self.draw.random() < 0.2 else 1
        start = self.at(pieces)
        end = min(len(pieces), start + self.draw.choice((1, 5, 40)))
        if self.draw.random() < 0.8:
            pieces.insert(end, right * times)
        pieces.insert(start, left * times)

    def cut(self, pieces: list[str]) -> None:
        del pieces[self.at(pieces) :]

    def splice(self, pieces: list[str]) -> None:
        """Append the rest of another text."""
        other = self.draw.choice(self.corpus)
        pieces[self.at(pieces) :] = other[self.draw.randrange(len(other)) :]


def outcome(text: str) -> str:
    """Return how reading ends: module, parse error or unsupported, both with a line. Else AssertionError.

    Each kernel of a module must be the same if it is read alone.
    """
    try:
        module = parse(text)
        for entry in module.entries():
            whole, alone = module.functions[entry], parse_kernel(text, entry).functions[entry]
            assert (whole.body, whole.line, str(whole.refused)) == (alone.body, alone.line, str(alone.refused)), text
        for function in module.functions.values():
            function.check_supported()
    except AssertionError:
        raise
    except (ParseError, Unsupported) as error:
        assert error.line is not None and 1 <= error.line <= text.count("\n") + 1, f"line {error.line} of {text!r}"
        return "unsupported" if isinstance(error, Unsupported) else "parse error"
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error} for {text[:3000]!r}") from error
    return "module"
