"""The report as Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from .amounts import show_hours, show_minutes, show_money
from .costs import Account
from .ledger import BlockAccount, Iteration, Ledger
from .view import (
    PLAN_COLUMNS,
    block_name,
    block_times,
    cost_table,
    cumulative,
    entry_fields,
    entry_heading,
    machine_lines,
    plan_rows,
    show_time,
    stop_lines,
    summary_line,
    warning_lines,
)


def markdown(ledger: Ledger) -> str:
    """Return Markdown with headings, tables and lists only, which is readable as text."""
    return "\n".join(_lines(ledger)) + "\n"


def _lines(ledger: Ledger) -> Iterator[str]:
    currency = ledger.book.currency
    yield "# Journal"
    yield ""
    yield f"Added up at {show_time(ledger.now)}."
    notices = [*machine_lines(ledger), *stop_lines(ledger), *warning_lines(ledger)]
    if notices:
        yield ""
        yield from (f"- **{_escaped(line)}**" for line in notices)
    yield ""
    yield "## Planned against actual"
    yield ""
    yield from _overview(ledger)
    yield ""
    yield from _costs(ledger.total, currency)
    for block in ledger.blocks:
        yield ""
        yield from _block(block, ledger)
    if ledger.outside.lines or ledger.loose:
        yield ""
        yield "## Outside any block"
        if ledger.outside.lines:
            yield ""
            yield from _costs(ledger.outside, currency)
        for iteration in ledger.loose:
            yield from _entry(iteration, currency)
    yield ""
    yield summary_line(ledger)


def _overview(ledger: Ledger) -> Iterator[str]:
    currency, total = ledger.book.currency, ledger.total
    columns = ("block", "time planned", "time", "money planned", "money", "GPU", "planned so far", "spent so far")
    rows = []
    for row in cumulative(ledger):
        account = row.block.account
        sums = [show_money(row.planned, currency), show_money(row.actual, currency)]
        rows.append([f"{row.block.block.number} {row.block.block.title}", *_figures(account, currency), *sums])
    if ledger.outside.lines:
        outside = _figures(ledger.outside, currency)
        rows.append(["outside any block", *outside, "", show_money(total.money, currency)])
    rows.append(["**all**", *_figures(total, currency), "", ""])
    yield from _table(columns, rows)


def _figures(account: Account, currency: str) -> list[str]:
    time, money, *_ = plan_rows(account, currency)
    gpu = show_hours(account.gpu_seconds) if account.gpu_seconds else ""
    return [time.planned, time.actual, money.planned, money.actual, gpu]


def _block(account: BlockAccount, ledger: Ledger) -> Iterator[str]:
    currency = ledger.book.currency
    name = block_name(account.block)
    yield f"## {_escaped(name[0].upper() + name[1:])}"
    yield ""
    yield f"{block_times(account.block, ledger.now)}."
    yield ""
    rows = [[row.what, row.planned, row.actual, row.difference] for row in plan_rows(account.account, currency)]
    yield from _table(PLAN_COLUMNS, rows)
    yield ""
    yield from _costs(account.account, currency)
    answers = [each for each in ledger.book.go_ons if each.block == account.block.number]
    if answers:
        yield ""
    for answer in answers:
        spent = f"{show_minutes(answer.seconds)} and {show_money(answer.money, currency)}"
        yield f"- asked after {spent}: go on{_escaped(f', {answer.why}' if answer.why else '')}"
    for iteration in account.iterations:
        yield from _entry(iteration, currency)


def _entry(iteration: Iteration, currency: str) -> Iterator[str]:
    heading = entry_heading(iteration)
    yield ""
    yield f"### {_escaped(heading[0].upper() + heading[1:])}"
    yield ""
    for label, text in entry_fields(iteration, currency):
        yield f"- {label}: {_code(text) if label == 'command' else _escaped(text)}"


def _costs(account: Account, currency: str) -> Iterator[str]:
    yield from _table(*cost_table(account, currency))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_escaped(cell) for cell in row)} |"


def _escaped(text: str) -> str:
    """Return the text as one line, with characters escaped that end a cell or begin HTML."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"
