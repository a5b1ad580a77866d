"""The instruction set as tables, one module per chapter of the manual."""

from functools import lru_cache

from .bits import ROWS as BITS
from .bulk import ROWS as BULK
from .cluster import ROWS as CLUSTER
from .compare import ROWS as COMPARE
from .control import ROWS as CONTROL
from .convert import ROWS as CONVERT
from .floating import ROWS as FLOATING
from .form import Form
from .half import ROWS as HALF
from .integer import ROWS as INTEGER
from .matrix import ROWS as MATRIX
from .mbarrier import ROWS as MBARRIER
from .memory import ROWS as MEMORY
from .refused import refusal
from .sync import ROWS as SYNC
from .wgmma import ROWS as WGMMA

ROWS: tuple[Form, ...] = (
    *INTEGER,
    *BITS,
    *FLOATING,
    *HALF,
    *COMPARE,
    *CONVERT,
    *MEMORY,
    *CONTROL,
    *SYNC,
    *MBARRIER,
    *MATRIX,
    *WGMMA,
    *BULK,
    *CLUSTER,
)
_BY_NAME: dict[str, list[Form]] = {}
for _row in ROWS:
    _BY_NAME.setdefault(_row.name, []).append(_row)


@lru_cache(maxsize=4096)
def lookup(opcode: str) -> tuple[Form, dict[str, str]] | None:
    """Return the row of `opcode` and its modifiers by slot, or None if the table has no such form."""
    name, *parts = opcode.split(".")
    rows = _BY_NAME.get(name, [])
    for match in (Form.match, Form.match_in_any_order):
        for row in rows:
            mods = match(row, tuple(parts))
            if mods is not None:
                return row, mods
    return None


__all__ = ["ROWS", "Form", "lookup", "refusal"]
