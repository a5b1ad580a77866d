"""What a thread's strong writes publish, computed only when one does.

In a grid of 32,768 threads that all fence, a row for each fence would be 4 GB, and most threads never write a flag. So
it is kept as the rows that it consists of, and the additional epochs that are over.
"""

from collections.abc import Iterable

import numpy as np

from .observation import Ints

_MOST_PARTS = 2048
"""Beyond this many, the parts of what threads publish together are merged into one row."""


class Ready:
    """Rows, and (column, epoch) pairs on top of them."""

    __slots__ = ("_marks", "_row", "_rows")

    def __init__(self, rows: dict[int, Ints], marks: tuple[tuple[int, int], ...] = ()) -> None:
        """The rows by their `id`."""
        self._rows, self._marks = rows, marks
        self._row: Ints | None = None

    def row(self) -> Ints:
        """Return all of it as one row."""
        if self._row is None:
            first, *others = self._rows.values()
            row = first.copy()
            for other in others:
                np.maximum(row, other, out=row)
            if self._marks:
                columns, epochs = np.array(self._marks, np.int32).T
                np.maximum.at(row, columns, epochs)
            self._row = row
        return self._row

    @staticmethod
    def joined(parts: "Iterable[Ready | None]") -> "Ready | None":
        """Return what several threads have ready together; threads that met share one object."""
        found = list({id(part): part for part in parts if part is not None}.values())
        if len(found) < 2:
            return found[0] if found else None
        rows = {name: row for part in found for name, row in part._rows.items()}
        together = Ready(rows, tuple(mark for part in found for mark in part._marks))
        if len(together._rows) + len(together._marks) <= _MOST_PARTS:
            return together
        row = together.row()
        return Ready({id(row): row})
