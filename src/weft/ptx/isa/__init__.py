"""The instruction set as tables, one module per chapter of the manual."""

from functools import lru_cache

from . import bits, compare, control, convert, floating, half, integer, matrix, memory, sync
from .form import Form

CHAPTERS = (integer, bits, floating, half, compare, convert, memory, control, sync, matrix)
ROWS: tuple[Form, ...] = tuple(row for chapter in CHAPTERS for row in chapter.ROWS)
_BY_NAME: dict[str, list[Form]] = {}
for _row in ROWS:
    _BY_NAME.setdefault(_row.name, []).append(_row)


@lru_cache(maxsize=4096)
def lookup(opcode: str) -> tuple[Form, dict[str, str]] | None:
    """The row of `opcode` and its modifiers by slot, or None where the table has no such form."""
    name, *parts = opcode.split(".")
    for row in _BY_NAME.get(name, ()):
        mods = row.match(tuple(parts))
        if mods is not None:
            return row, mods
    return None


__all__ = ["CHAPTERS", "ROWS", "Form", "lookup"]
