"""Tables: drawn on a terminal, tab-separated in a pipe."""

import sys
from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table to standard output."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print("\t".join(map(str, row)))
        return
    from rich.table import Table
    from rich.text import Text

    from .terminal import console

    table = Table(*columns)
    for row in rows:
        # Text, so that a cell such as `tile[x]` is not read as markup.
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)
