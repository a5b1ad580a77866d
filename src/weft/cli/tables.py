"""Tables: drawn on a terminal, tab-separated in a pipe."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """To standard output."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            print("\t".join(map(str, row)))
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)
