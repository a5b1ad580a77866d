"""The report as one HTML file: no script, no font, no picture from anywhere else."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from html import escape

from .amounts import show_minutes, show_money
from .html_style import STYLE
from .ledger import BlockAccount, Iteration, Ledger
from .view import (
    PLAN_COLUMNS,
    block_times,
    cost_table,
    cumulative,
    entry_fields,
    machine_lines,
    money_of,
    plan_rows,
    show_time,
    stop_lines,
    summary_line,
    warning_lines,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Bars have their widths in style attributes; nothing else may be loaded or run."""


def html(ledger: Ledger) -> str:
    """Fit for a telephone; light or dark as the reader's system is."""
    return "\n".join(_lines(ledger)) + "\n"


def _lines(ledger: Ledger) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield f"<title>Journal</title><style>{STYLE}</style></head><body><main>"
    yield f'<h1>Journal</h1><p class="quiet">Added up at {show_time(ledger.now)}</p>'
    for kind, lines in (
        ("machine", machine_lines(ledger)),
        ("stop", stop_lines(ledger)),
        ("wrong", warning_lines(ledger)),
    ):
        yield from (f'<p class="notice {kind}">{escape(line)}</p>' for line in lines)
    yield from _headline(ledger)
    yield from _overview(ledger)
    for block in ledger.blocks:
        yield from _block(block, ledger)
    if ledger.outside.lines or ledger.loose:
        yield "<section><h2>Outside any block</h2>"
        if ledger.outside.lines:
            yield from _table(*cost_table(ledger.outside, ledger.book.currency))
        for iteration in ledger.loose:
            yield from _entry(iteration, ledger.book.currency)
        yield "</section>"
    yield f'<p class="quiet">{escape(summary_line(ledger))}</p>'
    yield "</main></body></html>"


def _headline(ledger: Ledger) -> Iterator[str]:
    total, currency = ledger.total, ledger.book.currency
    figures = [("spent", money_of(total, currency)), ("of people's time", show_minutes(total.seconds))]
    if total.plan.money is not None:
        figures.insert(1, ("planned", show_money(total.plan.money, currency)))
    if total.gpu_seconds:
        figures.append(("of GPU time", show_minutes(total.gpu_seconds)))
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for label, value in figures)
    yield f'<div class="figures">{cells}</div>'


def _overview(ledger: Ledger) -> Iterator[str]:
    """A bar for the plan and one for what was spent, per block; the widest is the largest sum of all."""
    rows, currency = cumulative(ledger), ledger.book.currency
    if not rows:
        return
    widest = max((max(row.block.account.money, row.block.account.plan.money or Decimal(0)) for row in rows), default=0)
    yield "<section><h2>Planned against actual</h2>"
    for row in rows:
        account = row.block.account
        planned = account.plan.money
        over = planned is not None and account.money > planned
        yield f"<h3>{row.block.block.number} · {escape(row.block.block.title)}</h3>"
        if planned is not None:
            yield _bar("plan", planned, widest, f"planned {show_money(planned, currency)}")
        yield _bar("over" if over else "spent", account.money, widest, f"spent {money_of(account, currency)}")
        so_far = f"so far {show_money(row.actual, currency)}, {show_minutes(row.seconds)}"
        if row.planned:
            so_far += f" against plans of {show_money(row.planned, currency)}"
        yield f'<p class="quiet">{escape(so_far)}</p>'
    yield "<h3>All costs</h3>"
    yield from _table(*cost_table(ledger.total, currency))
    yield "</section>"


def _bar(kind: str, amount: Decimal, widest: Decimal | int, text: str) -> str:
    width = 100 * amount / widest if widest else Decimal(0)
    return f'<div class="bar"><i class="{kind}" style="width:{width:.1f}%"></i><span>{escape(text)}</span></div>'


def _block(account: BlockAccount, ledger: Ledger) -> Iterator[str]:
    currency, block = ledger.book.currency, account.block
    yield f"<section><h2>Block {block.number} · {escape(block.title)}</h2>"
    yield f'<p class="quiet">{escape(block_times(block, ledger.now))}</p>'
    rows = plan_rows(account.account, currency)
    yield from _table(
        PLAN_COLUMNS,
        [[row.what, row.planned, row.actual, row.difference] for row in rows],
        marked=[at for at, row in enumerate(rows) if row.over],
    )
    yield from _table(*cost_table(account.account, currency))
    for answer in ledger.book.go_ons:
        if answer.block == block.number:
            spent = f"{show_minutes(answer.seconds)} and {show_money(answer.money, currency)}"
            yield f"<p>asked after {escape(spent)}: go on{escape(f', {answer.why}' if answer.why else '')}</p>"
    for iteration in account.iterations:
        yield from _entry(iteration, currency)
    yield "</section>"


def _entry(iteration: Iteration, currency: str) -> Iterator[str]:
    entry = iteration.entry
    run = entry.run
    state = "" if run is None else (" good" if run.exit_code == 0 else " bad")
    yield f'<article class="entry{state}"><h3>{escape(entry.texts.goal or "no goal given")}</h3>'
    yield f'<p class="quiet">entry {entry.number} · {escape(entry.kind)}</p><dl>'
    for label, text in entry_fields(iteration, currency):
        shown = f"<code>{escape(text)}</code>" if label == "command" else escape(text)
        yield f"<dt>{escape(label)}</dt><dd>{shown}</dd>"
    yield "</dl>"
    if run is not None and run.tail:
        yield f"<details><summary>what it printed</summary><pre>{escape(run.tail)}</pre></details>"
    yield "</article>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, marked: Sequence[int] = ()) -> Iterator[str]:
    yield '<div class="wide"><table><tr>' + "".join(f"<th>{escape(name)}</th>" for name in columns) + "</tr>"
    for at, row in enumerate(rows):
        kind = ' class="over"' if at in marked else ' class="sum"' if row[0] == "sum" else ""
        yield f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</table></div>"
