"""The output of `weft journal`: text or JSON, always with the running machines and a summary."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from weft.journal.as_json import state_record
from weft.journal.costs import Account
from weft.journal.journal import Journal
from weft.journal.ledger import BlockAccount, Iteration, Ledger
from weft.journal.view import (
    PLAN_COLUMNS,
    block_name,
    block_times,
    cost_table,
    entry_fields,
    entry_heading,
    machine_lines,
    next_stop_line,
    plan_rows,
    stop_lines,
    summary_line,
    warning_lines,
)
from weft.store.records import utc_now
from weft.store.store import open_store

from .tables import print_table as print_any_table

EXIT_STOPPED = 4
"""Exit code: a checkpoint of the budget was reached and not answered; nothing ran."""
HOW_TO_GO_ON = "to continue: weft journal go-on 'why' · to end the block: weft journal stop"


@contextmanager
def open_journal() -> Iterator[Journal]:
    """Open the journal of WEFT_STORE, or of this user."""
    with open_store(clock=utc_now) as store:
        yield Journal(store)


def finish(ledger: Ledger, lines: Sequence[str], record: Mapping[str, object], *, as_json: bool) -> None:
    """Print what a command did, then the notices that end every output of the journal."""
    if as_json:
        print(json.dumps({**record, **state_record(ledger)}, indent=2, ensure_ascii=False))
        return
    for line in lines:
        print(line)
    for line in notices(ledger):
        print(line)
    print(summary_line(ledger))


def notices(ledger: Ledger) -> list[str]:
    waiting = stop_lines(ledger)
    lines = [f"checkpoint: {line}" for line in waiting]
    return [*warning_lines(ledger), *lines, *([HOW_TO_GO_ON] if waiting else []), *machine_lines(ledger)]


def asked_and_stopped(ledger: Ledger, journal: Journal) -> bool:
    """Return whether to stop at a checkpoint: ask on a terminal; in a pipe stop and print what to do."""
    waiting = stop_lines(ledger)
    for line in waiting:
        print(f"weft: checkpoint: {line}", file=sys.stderr)
    if not waiting:
        return False
    if sys.stdin.isatty() and sys.stderr.isatty():
        print("weft: continue? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            journal.go_on("asked on the terminal")
            return False
    print(f"weft: stopped at a checkpoint, nothing was run · {HOW_TO_GO_ON}", file=sys.stderr)
    return True


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; a text of several lines becomes one line."""
    drawn = sys.stdout.isatty()
    print_any_table(columns, [[str(cell) if drawn else _one_line(str(cell)) for cell in row] for row in rows])


def print_plan(account: Account, currency: str) -> None:
    rows = plan_rows(account, currency)
    print_table(PLAN_COLUMNS, [[row.what, row.planned, row.actual, row.difference] for row in rows])


def print_block(account: BlockAccount, ledger: Ledger) -> None:
    currency = ledger.book.currency
    print(f"{block_name(account.block)} · {block_times(account.block, ledger.now)}")
    print_plan(account.account, currency)
    if account.account.lines:
        print_table(*cost_table(account.account, currency))
    ahead = next_stop_line(account, currency)
    if ahead and account.block.stopped is None:
        print(ahead)


def print_entry(iteration: Iteration, ledger: Ledger) -> None:
    print(entry_heading(iteration))
    for label, text in entry_fields(iteration, ledger.book.currency):
        print(f"  {label:<14} {_one_line(text)}")


def print_blocks(ledger: Ledger) -> None:
    rows = []
    for account in ledger.blocks:
        time, money, *_ = plan_rows(account.account, ledger.book.currency)
        block = account.block
        when = f"{block.started:%Y-%m-%d}" if block.stopped else "open"
        rows.append([block.number, block.title, when, time.planned, time.actual, money.planned, money.actual])
    if rows:
        print_table(["block", "title", "day", "time planned", "time", "money planned", "money"], rows)


def _one_line(cell: str) -> str:
    return " ".join(cell.split())


def print_entries(iterations: Sequence[Iteration]) -> None:
    """Print the entries as a table; print nothing if there are none."""
    if not iterations:
        return
    rows = []
    for entry in (iteration.entry for iteration in iterations):
        result = entry.texts.result or (entry.run.summary if entry.run else "")
        code = "" if entry.run is None else entry.run.exit_code
        block = "" if entry.block is None else entry.block
        rows.append([entry.number, block, entry.kind, entry.texts.goal, code, result, entry.texts.decision])
    print_table(["entry", "block", "kind", "goal", "exit", "result", "decision"], rows)
