"""The report as one HTML file that loads no script, font or picture."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from html import escape

from .amounts import show_minutes, show_money
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

STYLE = """
:root{--ink:#1c2128;--quiet:#59626d;--page:#faf9f6;--card:#fff;--line:#e3dfd7;--plan:#c9c4b9;--spent:#0d6b68;
--over:#b23a16;--warn:#fdece5}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--quiet:#a2aab5;--page:#121418;--card:#191c21;--line:#2b3037;
--plan:#434a54;--spent:#62cdbf;--over:#ff9d78;--warn:#37211a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:1.25rem}
h1{margin:.5rem 0 0;font-size:1.9rem;letter-spacing:-.02em}
h2{margin:2rem 0 .5rem;font-size:1.25rem}h3{margin:1rem 0 .3rem;font-size:1rem}
p{margin:.3rem 0}.quiet{color:var(--quiet);font-size:.875rem}
.notice{margin:.6rem 0;padding:.6rem .8rem;border-left:4px solid var(--over);background:var(--warn);
overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}
.figures div{flex:1 1 8rem;padding:.6rem .8rem;background:var(--card);border:1px solid var(--line);
border-radius:.5rem}
.figures b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}
.figures span{color:var(--quiet);font-size:.875rem}
.bar{display:grid;grid-template-columns:1fr 9rem;align-items:center;gap:.6rem;margin:.2rem 0;font-size:.875rem}
.bar i{display:block;height:.9rem;min-width:2px;border-radius:.2rem;background:var(--plan)}
.bar .spent{background:var(--spent)}.bar .over{background:var(--over)}
.wide{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--quiet);font-weight:500}th:first-child,td:first-child{text-align:left}
.over td:last-child{color:var(--over);font-weight:600}.sum td{font-weight:600}
.entry{margin:1rem 0;padding:.2rem .9rem .7rem;background:var(--card);border:1px solid var(--line);
border-radius:.5rem;border-left:4px solid var(--plan)}
.entry.good{border-left-color:var(--spent)}.entry.bad{border-left-color:var(--over)}
dl{display:grid;grid-template-columns:9rem 1fr;font-size:.9rem;gap:.2rem .9rem;margin:.4rem 0}
dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere}
code,pre{font:.85rem/1.45 ui-monospace,monospace}pre{overflow-x:auto;margin:.4rem 0}
summary{cursor:pointer;color:var(--quiet)}
@media(max-width:34rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}.bar{grid-template-columns:1fr}}
"""


def html(ledger: Ledger) -> str:
    """Return the page; it fits small screens and follows the system's light or dark mode."""
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
    """Yield per block a bar for the plan and one for the spent sum; the largest sum is the widest bar."""
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
