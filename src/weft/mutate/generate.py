"""Generates every mutant that the operators find in a kernel's text."""

import hashlib
from collections import Counter
from functools import lru_cache
from pathlib import Path

from weft.core.errors import UsageError

from .operators import OPERATORS
from .records import Language, Mutant
from .source import read_lines


def language_of(path: str | Path) -> Language:
    """Return CUDA or Triton, by the file's suffix."""
    endings: dict[str, Language] = {".cu": "CUDA", ".cuh": "CUDA", ".py": "Triton"}
    if Path(path).suffix not in endings:
        raise UsageError(f"{path}: mutants can be made only from .cu, .cuh and .py files")
    return endings[Path(path).suffix]


@lru_cache(maxsize=32)
def generate(source: str, language: Language, path: str) -> tuple[Mutant, ...]:
    """Return all mutants, line by line, in the order of the table; no two of them have the same text."""
    found: list[Mutant] = []
    seen: set[tuple[int, str]] = set()
    occurrences: Counter[str] = Counter()
    for line in read_lines(source, language, path):
        occurrence = occurrences[line.text]
        occurrences[line.text] += 1
        for operator in OPERATORS:
            for after in operator.change(line):
                pair = "\n" in after
                before = f"{line.text}\n{line.following.text}" if pair and line.following else line.text
                if after == before or (line.number, after) in seen:
                    continue
                seen.add((line.number, after))
                digest = hashlib.sha256(f"{before}\0{after}\0{occurrence}".encode()).hexdigest()[:8]
                mark = f"{Path(path).stem}-{operator.name}-{digest}"
                which = (operator.name, operator.klass, before, after, operator.held_out)
                found.append(Mutant(mark, path, line.number, *which))
    return tuple(found)


def apply(mutant: Mutant, source: str) -> str:
    """Return the mutant's complete text. Raises UsageError if `source` is not the text it was made from."""
    rows = source.split("\n")
    before = mutant.before.split("\n")
    at = slice(mutant.line - 1, mutant.line - 1 + len(before))
    if rows[at] != before:
        raise UsageError(f"line {mutant.line} of {mutant.path} is not the line that mutant {mutant.id} was made from")
    rows[at] = mutant.after.split("\n")
    return "\n".join(rows)
