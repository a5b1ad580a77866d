"""Is a text what a candidate may be? Device source and declarative launch lines: no host files, no compiler's flags.

It runs in the child, before the compiler does: a text made to keep a scanner busy keeps only the child busy. It takes
no account of comments and strings, so it may refuse an `#include` inside one; it never overlooks one.
"""

import re

from weft.core.status import Status
from weft.judge.runs import Refused

MOST_BYTES = 4 << 20
OPTIONS = re.compile(
    r"-default-device|--?std=c\+\+(17|20)|--?use_fast_math|--?(maxrregcount|ftz|prec-div|prec-sqrt)=\w+"
    r"|--?extra-device-vectorization"
)
"""Options of the compiler that a candidate's lines may ask for: none that names a file."""
_GAP = r"(?:[ \t\v\f]|/\*.*?\*/)*"
_HASH = r"(?:\#|%:|\?\?=)"
_DIRECTIVE = re.compile(rf"{_HASH}{_GAP}(include_next|include|import|embed|line)\b{_GAP}([^\n]*)", re.DOTALL)
_HAS_INCLUDE = re.compile(rf"__has_(?:include|embed)(?:_next)?{_GAP}\(?{_GAP}([^\n]*)", re.DOTALL)
_NAME = re.compile(r'"([^"\n]*)"|<([^>\n]*)>')
_ALLOW = re.compile(r"((?://|\#)[^\S\n]*weft[^\S\n]*):([^\S\n]*allow\b)", re.IGNORECASE)


class Rejected(Refused):
    """The text is not what a candidate may be."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.REJECTED, message)


def screen(text: str, language: str) -> None:
    """Raises Rejected with the reason."""
    if language == "triton":
        raise Rejected("a Triton candidate is Python, which would run on the host: give CUDA C++ or PTX")
    if language not in ("cuda", "ptx"):
        raise Rejected(f"candidates are `cuda` or `ptx`, not {language!r}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Rejected(f"the source is no text: {error}") from error
    if size > MOST_BYTES:
        raise Rejected(f"the source has {size} bytes; a candidate has at most {MOST_BYTES}")
    if "\0" in text:
        raise Rejected("the source holds a zero byte")
    if language == "cuda":
        _screen_directives(re.sub(r"\\[ \t]*\r?\n", "", text))


def screen_options(options: tuple[str, ...]) -> None:
    """Raises Rejected for an option that candidates may not ask for."""
    for option in options:
        if not OPTIONS.fullmatch(option):
            raise Rejected(f"option {option}: a candidate may not set this option of the compiler")


def without_allows(text: str) -> str:
    """The text with every `weft: allow` made a plain comment: nobody excuses himself. Lines stay where they are."""
    return _ALLOW.sub(r"\1 \2", text)


def _screen_directives(text: str) -> None:
    for directive, rest in _DIRECTIVE.findall(text):
        if directive == "line":
            raise Rejected("#line would put findings into other files: leave it out")
        if directive in ("import", "embed"):
            raise Rejected(f"#{directive} reads files of the host: leave it out")
        _screen_name(f"#{directive} {rest}", rest)
    for rest in _HAS_INCLUDE.findall(text):
        _screen_name(f"__has_include({rest}", rest)


def _screen_name(spelled: str, rest: str) -> None:
    match = _NAME.match(rest)
    if match is None:
        raise Rejected(f"{spelled.strip()[:200]}: a candidate names the headers it includes; a macro may name any file")
    name = match[1] or match[2] or ""
    parts = re.split(r"[/\\]", name)
    if not name or name[0] in "/\\~" or ".." in parts or "\\" in name or ":" in name:
        raise Rejected(f"{spelled.strip()[:200]}: a candidate includes CUDA's headers only, never files of the host")
