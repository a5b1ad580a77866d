"""One line on the terminal while a GPU machine runs: rent is paid whether anybody looks or not."""

import sys

from weft.journal.reminder import anything_runs


def remind() -> None:
    """On a terminal only: a pipe, a script and CI read exactly what they asked for."""
    if not sys.stderr.isatty() or not anything_runs():
        return
    from weft.journal.view import machine_lines

    from .journal_output import open_journal

    with open_journal() as books:
        lines = machine_lines(books.ledger())
    more = f" (and {len(lines) - 1} more)" if lines[1:] else ""
    for line in lines[:1]:
        print(f"weft: {line}{more}", file=sys.stderr)
