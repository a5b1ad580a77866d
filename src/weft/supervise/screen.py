"""Check that a text is a valid candidate: device source and declarative launch lines, no host files, no compiler flags.

The check runs in the child, before the compiler: a text made to keep a scanner busy keeps only the child busy. It
ignores comments and strings, so it may refuse an `#include` inside one; it never misses one.
"""

import re

from weft.core.status import Status
from weft.judge.runs import Refused

MOST_BYTES = 4 << 20
OPTIONS = re.compile(
    r"-default-device|--?std=c\+\+(17|20)|--?use_fast_math|--?(maxrregcount|ftz|prec-div|prec-sqrt)=\w+"
    r"|--?extra-device-vectorization|--?expt-relaxed-constexpr|--?(?:expt-)?extended-lambda"
)
"""Compiler options that a candidate's lines may set: none that names a file."""
_GAP = r"(?:[ \t\v\f]|/\*.*?\*/)*"
_HASH = r"(?:\#|%:|\?\?=)"
_DIRECTIVE = re.compile(rf"{_HASH}{_GAP}(include_next|include|import|embed|line)\b{_GAP}([^\n]*)", re.DOTALL)
_HAS_INCLUDE = re.compile(rf"__has_(?:include|embed)(?:_next)?{_GAP}\(?{_GAP}([^\n]*)", re.DOTALL)
_NAME = re.compile(r'"([^"\n]*)"|<([^>\n]*)>')
_LINK = re.compile(r"^\s*(?://+|\#+)\s*weft\s*:\s*link\b.*$", re.IGNORECASE | re.MULTILINE)
_ALLOW = re.compile(r"((?://|\#)[^\S\n]*weft[^\S\n]*):([^\S\n]*allow\b)", re.IGNORECASE)


class Rejected(Refused):
    """The text is not a valid candidate."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.REJECTED, message)


def screen(text: str, language: str, launch: str = "") -> None:
    """Raises Rejected with the reason. `launch` are the launch lines of a PTX text."""
    if language == "triton":
        raise Rejected("a Triton candidate is Python code, which would run on the host: give CUDA C++ or PTX")
    if language not in ("cuda", "ptx"):
        raise Rejected(f"candidates are `cuda` or `ptx`, not {language!r}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Rejected(f"the source is not text: {error}") from error
    if size > MOST_BYTES:
        raise Rejected(f"the source has {size} bytes; a candidate has at most {MOST_BYTES}")
    if "\0" in text:
        raise Rejected("the source contains a zero byte")
    link = _LINK.search(text) or _LINK.search(launch)
    if link:
        raise Rejected(f"{link[0].strip()[:200]}: a candidate is one file; a link line would read files of the host")
    if language == "cuda":
        _screen_directives(re.sub(r"\\[ \t]*\r?\n", "", text))


def screen_options(options: tuple[str, ...]) -> None:
    """Raises Rejected for an option that candidates may not set."""
    for option in options:
        if not OPTIONS.fullmatch(option):
            raise Rejected(f"option {option}: a candidate may not set this compiler option")


def without_allows(text: str) -> str:
    """Return the text with every `weft: allow` disabled: a candidate cannot allow its findings. Line numbers stay."""
    return _ALLOW.sub(r"\1 \2", text)


def _screen_directives(text: str) -> None:
    for directive, rest in _DIRECTIVE.findall(text):
        if directive == "line":
            raise Rejected("#line would move findings to other files: remove it")
        if directive in ("import", "embed"):
            raise Rejected(f"#{directive} reads files of the host: remove it")
        _screen_name(f"#{directive} {rest}", rest)
    for rest in _HAS_INCLUDE.findall(text):
        _screen_name(f"__has_include({rest}", rest)


def _screen_name(spelled: str, rest: str) -> None:
    match = _NAME.match(rest)
    if match is None:
        raise Rejected(f"{spelled.strip()[:200]}: a candidate must name its headers; a macro may name any file")
    name = match[1] or match[2] or ""
    parts = re.split(r"[/\\]", name)
    if not name or name[0] in "/\\~" or ".." in parts or "\\" in name or ":" in name:
        raise Rejected(f"{spelled.strip()[:200]}: a candidate may include CUDA's headers only, no files of the host")
