"""Finds the user's files that a source includes, transitively: they belong to the cache key.

The scan ignores `#if`, so it may include a file that the compiler skips (at worst a needless cache miss), but never
omits one that the compiler reads.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_GAP = r"(?:[ \t]|/\*.*?\*/)*"
_DIRECTIVE = re.compile(rf"^{_GAP}(?:#|%:){_GAP}include(?:_next)?\b{_GAP}(.*)$", re.MULTILINE)
_NAME = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')
_DEFINE = re.compile(rf"^{_GAP}(?:#|%:){_GAP}define[ \t]+(\w+)(?:\((\w+)\))?[ \t]+(.*)$", re.MULTILINE)
_MACRO = re.compile(r"(\w+)[ \t]*(?:\([ \t]*([\w./]+)[ \t]*\))?[ \t]*(?://.*|/\*.*)?$")
_HAS_INCLUDE = re.compile(r'__has_include(?:_next)?\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)')


@dataclass(frozen=True)
class Includes:
    """The user's files that a source includes, and whether the list is complete."""

    files: tuple[tuple[str, bytes], ...]
    """Path and content, in order of discovery."""
    computed: bool
    """An `#include MACRO` was found whose macro no file defines: the list cannot be used as a key."""


def find_includes(
    source: str, *, directory: Path, include_dirs: Sequence[Path], defines: Collection[str] = ()
) -> Includes:
    """Return the included files, searched as the compiler does: quotes in the file's own folder first, then each `-I`.

    `defines` are macros of the command line.
    """
    found: dict[str, bytes] = {}
    texts: list[str] = []
    computed: list[tuple[str, Path]] = []
    pending = [(source, directory)]

    def look_for(quoted: str, angled: str, here: Path) -> None:
        places = (here, directory, *include_dirs) if quoted else tuple(include_dirs)
        for place in places:
            path = os.path.normpath(place / (quoted or angled))
            if os.path.isfile(path):
                if path not in found:
                    found[path] = Path(path).read_bytes()
                    pending.append((found[path].decode(errors="replace"), Path(path).parent))
                break

    while pending:
        text, here = pending.pop()
        texts.append(text.replace("\\\r\n", "").replace("\\\n", ""))
        for quoted, angled in _HAS_INCLUDE.findall(texts[-1]):
            look_for(quoted, angled, here)
        for rest in _DIRECTIVE.findall(texts[-1]):
            match = _NAME.match(rest)
            if match:
                look_for(match[1] or "", match[2] or "", here)
            else:
                computed.append((rest, here))
        if not pending:  # every file named so far is read: a file named by a macro may include more
            known = _definitions({_macro(rest) for rest, _ in computed}, texts)
            for rest, place in computed:
                for quoted, angled in _expanded(rest, known) or ():
                    look_for(quoted, angled, place)
    known = _definitions({_macro(rest) for rest, _ in computed}, texts)
    unknown = any(_macro(rest) in defines or _expanded(rest, known) is None for rest, _ in computed)
    return Includes(files=tuple(found.items()), computed=unknown)


def _macro(rest: str) -> str:
    match = _MACRO.match(rest)
    return match[1] if match else ""


def _definitions(macros: Collection[str], texts: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return parameter and value of each definition, inside any `#if`."""
    found: dict[str, list[tuple[str, str]]] = {}
    for text in texts if macros else ():
        if any(macro in text for macro in macros):
            for name, parameter, value in _DEFINE.findall(text):
                if name in macros:
                    found.setdefault(name, []).append((parameter, value))
    return found


def _expanded(rest: str, known: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[tuple[str, str], ...] | None:
    """Return what `MACRO` or `MACRO(word)` may mean by each of its definitions; None if one is not a file name."""
    match = _MACRO.match(rest)
    names = []
    for parameter, value in known.get(match[1], ()) if match else ():
        argument = match[2] if match else None
        filled = re.sub(rf"\b{parameter}\b", argument, value) if parameter and argument else value
        name = _NAME.match(filled)
        if name is None or bool(parameter) != bool(argument):
            return None
        names.append((name[1] or "", name[2] or ""))
    return tuple(names) or None
