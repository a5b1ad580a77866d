"""Words that Weft's texts do not use, because readers misunderstand them, with the words to write instead."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

INSTEAD = {
    r"hang(?:s|ing)? on": "depends on",
    r"hung on": "depended on",
    r"mend(?:s|ed|ing)?": "fix",
    r"nobody(?:'s)?": "the subject: no thread, no process, no test",
    r"somebody(?:'s)?": "the subject: the user, another process",
    r"besides?": "next to, with, in addition to, apart from",
    r"(?:is|are|was|were|be|been|being)(?: not| never| also)? told": "is reported, is given, is passed, receives",
    r"(?:not|unless|when|already|as) told": "is reported, is given, unless given",
    r"told (?:apart|from)": "distinguished from",
    r"told (?:to|of|how|so|what|that)": "is asked to, is reported, is passed",
    r"of (?:its|their|your|our|his|her|my|one's) own": "its own X, a separate X, or nothing",
    r"(?:is|are|was|were|be|been|being)(?: not| never| also)? tried": "tested, run, attempted",
    r"tried (?:with|on|alone|out)": "tested with, run on, run alone",
    r"doubts?": "the question itself",
    r"strangers?(?:'s?)?": "untrusted code, other people's code",
    r"guilty": "faulty line, line at fault",
    r"(?:held|holds?|holding)(?: \w+){0,3} against": "compared with, checked against",
    r"say(?:s|ing)? of": "describes, reports, names",
    r"said of": "described, reported, named",
    r"speak(?:s|ing)? of": "describes, reports, names",
    r"spoken of": "described, reported, named",
    r"anew": "again",
    r"whence": "from which, where it comes from",
    r"wholly": "entirely",
    r"in vain": "without effect",
    r"to and fro": "back and forth",
    r"at hand": "available",
    r"(?:the|its|their) like": "similar X, and so on",
    r"gone through": "iterated, read, checked",
    r"one gets": "you get, the result is",
    r"what one (?:can|gets|has|knows|learns|leaves|may|must|needs|otherwise|sees|wants|would)": "name the subject",
}
"""Forbidden phrase → what to write instead. A phrase is a regular expression of whole words, lower case."""

EXCEPTIONS = {
    ("benchmarks/postgres_server.py", "nobody"): "the Unix user of this name",
}
"""(File, phrase as it is found there) → why it stays. An exception that is no longer needed fails the test."""

FOLDERS = ("src", "docs", "tests", "benchmarks", "scripts", "examples")
FILES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
SUFFIXES = (".py", ".md", ".cu", "")  # scripts have no suffix

_GAP = r"(?:[ \t]*[\"']?[ \t]*\n[ \t]*(?:#+|//+|[>*]|[fr]?[\"'])?[ \t]*|[ \t_]+)"
"""What may be between two words: also the end of a line with the comment sign or quotation mark of the next one."""


def _literal(phrase: str) -> str:
    """Return the longest word that every match contains: files without it need no regular expression."""
    return max(re.findall(r"\w+", re.sub(r"\(\?:[^)]*\)\??|\w\?", " ", phrase)), key=len)


_PHRASES = [
    (_literal(phrase), re.compile(phrase.replace(" ", _GAP) + "(?![a-z0-9])"), instead)
    for phrase, instead in INSTEAD.items()
]


class Hit(NamedTuple):
    """A forbidden phrase: its line, itself, and what to write instead."""

    line: int
    phrase: str
    instead: str


def hits(text: str) -> Iterator[Hit]:
    """Return the forbidden phrases of a text, each place once.

    `_` counts as a space, and a phrase may continue in the next line.
    """
    lower, taken = text.lower(), set[int]()
    for literal, phrase, instead in _PHRASES:
        for match in phrase.finditer(lower) if literal in lower else ():
            at, places = match.start(), range(*match.span())
            # This check of the word's start is faster than a look-behind in the expression.
            if (at == 0 or not lower[at - 1].isalnum()) and taken.isdisjoint(places):
                taken.update(places)
                yield Hit(lower.count("\n", 0, at) + 1, re.sub(_GAP, " ", match[0]), instead)


def files() -> Iterator[Path]:
    """Return every file that the test reads; this one is left out, because it lists the phrases."""
    yield from (ROOT / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path != Path(__file__) and path.is_file():
                yield path


def test_no_text_has_a_forbidden_phrase() -> None:
    used, found = set(), []
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        for hit in sorted(hits(path.read_text())):
            if (name, hit.phrase) in EXCEPTIONS:
                used.add((name, hit.phrase))
            else:
                found.append(f"{name}:{hit.line}: {hit.phrase!r}; write: {hit.instead}")
    assert not found, f"{len(found)} forbidden phrases:\n" + "\n".join(found)
    assert used == set(EXCEPTIONS), f"unused exceptions: {sorted(set(EXCEPTIONS) - used)}"


@pytest.mark.parametrize(
    ("text", "line", "phrase"),
    [
        ("one\nThe result hangs on the seed.", 2, "hangs on"),
        ("def test_nobody_writes() -> None:", 1, "nobody"),
        ("    # The worker is\n    # told the size.", 1, "is told"),
        ('message = (\n    "a thread of its "\n    f"own {name}"\n)', 2, "of its own"),
        ("Beside the kernel", 1, "beside"),
        ("Each output is held\nagainst the oracle.", 1, "held against"),
        ("It is told to stop.", 1, "is told"),
    ],
)
def test_a_planted_phrase_is_found(text: str, line: int, phrase: str) -> None:
    (hit,) = hits(text)
    assert (hit.line, hit.phrase) == (line, phrase)


@pytest.mark.parametrize(
    "text",
    [
        "The kernel hangs at the barrier.",
        "amend, recommend, tremendous",
        "its own stream, your own kernel",
        "except ValueError: tried += 1",
        "The sentence ends. What one thread reads is printed.",
    ],
)
def test_plain_text_has_no_hit(text: str) -> None:
    assert not list(hits(text))
