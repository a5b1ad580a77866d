"""Inserts the headers next to a CUDA file into its text, and records where each line comes from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.toolchain.cuda_headers import include_dirs as toolkit_dirs

from .cpp_tokens import scan_tokens

_INCLUDE = re.compile(r"#\s*include\s*\"([^\"]+)\"")
_ONCE = re.compile(r"^[ \t]*#\s*pragma\s+once[ \t]*$", re.MULTILINE)
HOST_FOLDERS = ("torch/", "ATen/", "c10/", "pybind11/", "caffe2/", "THC/")
"""Headers of PyTorch, which are never read."""
_LEVELS = 3
"""Number of parent folders that are searched for a header that is not on the include path."""


@dataclass(frozen=True)
class Origin:
    """A line of the joined text: the file and line it comes from, and the line of the user's file that includes it."""

    file: str
    line: int
    main_line: int


@dataclass(frozen=True)
class Joined:
    """The text, the origin of each of its lines, and notes about headers that were found elsewhere."""

    text: str
    origins: tuple[Origin, ...]
    notes: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class _Piece:
    text: str
    file: str
    line: int
    main_line: int | None


def join_headers(text: str, path: str, include_dirs: Sequence[str] = ()) -> Joined:
    """Replace every `#include "x.cuh"` that is found by its text, once each; others stay."""
    notes: list[tuple[int, str]] = []
    pieces = _pieces(text, Path(path), path, None, include_dirs, {Path(path).resolve()}, notes)
    origins: list[Origin] = []
    for piece in pieces:
        for number, part in enumerate(piece.text.split("\n")):
            line = piece.line + number
            origin = Origin(piece.file, line, line if piece.main_line is None else piece.main_line)
            if number or not origins:
                origins.append(origin)
            elif part.strip():
                origins[-1] = origin
    return Joined("".join(piece.text for piece in pieces), tuple(origins), tuple(notes))


def _pieces(
    text: str,
    file: Path,
    shown: str,
    main_line: int | None,
    include_dirs: Sequence[str],
    seen: set[Path],
    notes: list[tuple[int, str]],
) -> list[_Piece]:
    found: list[_Piece] = []
    at, line = 0, 1
    for token in scan_tokens(text, shown):
        match = _INCLUDE.match(token.text) if token.kind == "directive" else None
        header = _find(match[1], file, include_dirs) if match else None
        if match is None or header is None:
            continue
        brought = token.line if main_line is None else main_line
        found.append(_Piece(text[at : token.start], shown, line, main_line))
        at, line = token.end, token.line + token.text.count("\n")
        if header.resolve() in seen:
            continue
        seen.add(header.resolve())
        if not (file.parent / match[1]).is_file():
            notes.append((brought, f"{match[1]} is read from {header}; give another folder with -I"))
        inner = _ONCE.sub("", header.read_text(errors="replace"))
        found.append(_Piece("\n", shown, line, main_line))
        found += _pieces(inner, header, str(header), brought, include_dirs, seen, notes)
        found.append(_Piece("\n", shown, line, main_line))
    return [*found, _Piece(text[at:], shown, line, main_line)]


def _find(name: str, file: Path, include_dirs: Sequence[str]) -> Path | None:
    """Find a header next to the file, on the include path, else in nearby folders: a build may add include paths."""
    for folder in (file.parent, *map(Path, include_dirs)):
        if (folder / name).is_file():
            return folder / name
    if name.startswith(HOST_FOLDERS) or any((folder / name).is_file() for folder in toolkit_dirs()):
        return None
    around = file.resolve().parent
    for _ in range(_LEVELS):
        around = around.parent
        candidates = [around / name, *(folder / name for folder in _folders(around))]
        found = [candidate for candidate in candidates if candidate.is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            return None
    return None


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return []
