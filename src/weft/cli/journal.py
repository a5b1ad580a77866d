"""`weft journal`: record the work with its time, money and decisions. Nothing leaves the machine."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.journal.amounts import parse_rate, parse_seconds, show_minutes, show_money, show_rate
from weft.journal.as_json import block_record, entry_record, ledger_record, machine_record
from weft.journal.checkpoints import make_plan
from weft.journal.costs import Account, named
from weft.journal.html import html
from weft.journal.ledger import BlockAccount, Ledger, machine_account
from weft.journal.markdown import markdown
from weft.journal.parse_uses import split_name
from weft.journal.records import Kind
from weft.journal.view import machine_lines, show_time

from .help_text import FullSummaries
from .journal_entries import add, amend, block, run_command
from .journal_output import (
    EXIT_STOPPED,
    asked_and_stopped,
    finish,
    open_journal,
    print_block,
    print_blocks,
    print_entries,
    print_entry,
    print_plan,
    print_table,
)
from .journal_versions import versions

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Plan = Annotated[
    str | None, typer.Option("--plan", metavar="TIME/MONEY", help="Planned time and money: 30m/25.30, or one of them.")
]
AskAt = Annotated[
    list[str] | None, typer.Option("--ask-at", metavar="AT", help="Stop and ask at 15m, at 10.00 or at 80%.")
]

journal = typer.Typer(
    cls=FullSummaries,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

machine = typer.Typer(
    cls=FullSummaries,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Register GPU machines, shown while they run.",
)


class Format(StrEnum):
    """The format of a report."""

    MARKDOWN = "markdown"
    HTML = "html"


@journal.callback(invoke_without_command=True)
def status(context: typer.Context, as_json: AsJson = False) -> int | None:
    """Record the work: goals, changes, results, decisions, time and money. Nothing leaves the machine.

    Without a command, show the open block and its plan. Every output lists GPU machines that are running.
    """
    if context.invoked_subcommand is not None:
        return None
    with open_journal() as books:
        ledger = books.ledger()
    account = ledger.open_block
    if account is not None:
        return _show_block(ledger, account.block.number, as_json=as_json)
    finish(ledger, ["no block is open: weft journal start TITLE --plan 30m/25.30"], {"block": None}, as_json=as_json)
    return 0


# The order of the help; the other commands follow.
journal.command("run", context_settings={"allow_interspersed_args": False})(run_command)
journal.command()(add)
journal.command()(amend)
journal.command()(block)
journal.command()(versions)
journal.add_typer(machine, name="machine")


@journal.command()
def rates(
    engineer: Annotated[str | None, typer.Option(metavar="RATE", help="Rate of a person: 50/h.")] = None,
    gpu: Annotated[list[str] | None, typer.Option(metavar="NAME=RATE", help="Rate of a GPU: l4=0.20/h.")] = None,
    tokens: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]RATE", help="Price of a million tokens: 3/M.")
    ] = None,
    currency: Annotated[
        str | None, typer.Option(help="Sign before amounts; cannot change once amounts are recorded.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show or set the rates: what an hour or a million tokens cost."""
    with open_journal() as books:
        if currency is not None:
            books.set_currency(currency)
        sign = books.read().currency
        given = [] if engineer is None else [(Kind.ENGINEER, "", parse_rate(engineer, sign, "h"))]
        for kind, texts, unit in ((Kind.GPU, gpu, "h"), (Kind.TOKENS, tokens, "M")):
            for name, value in map(split_name, texts or ()):
                given.append((kind, name, parse_rate(value, sign, unit)))
        for kind, name, amount in given:
            books.set_rate(kind, name, amount)
        ledger = books.ledger()
    rows = [
        [named(rate.kind, rate.name), show_rate(rate.amount, sign, rate.unit), show_time(rate.since)]
        for rate in ledger.book.rates
    ]
    if not as_json:
        print_table(["what", "rate", "since"], rows)
    finish(ledger, [], {"rates": ledger_record(ledger)["rates"]}, as_json=as_json)
    return 0


@journal.command()
def budget(plan: Plan = None, ask_at: AskAt = None, as_json: AsJson = False) -> int:
    """Show or set the budget of the whole journal."""
    with open_journal() as books:
        if plan is not None or ask_at:
            books.set_budget(make_plan(plan, ask_at or (), books.read().currency))
        ledger = books.ledger()
    if not as_json:
        print_plan(Account(ledger.total.lines, ledger.book.budget), ledger.book.currency)
    finish(ledger, [], {"budget": ledger_record(ledger)["budget"]}, as_json=as_json)
    return 0


@journal.command()
def start(
    title: Annotated[str, typer.Argument(help="What the block is for.")],
    plan: Plan = None,
    ask_at: AskAt = None,
    as_json: AsJson = False,
) -> int:
    """Begin a working block and start its clock."""
    with open_journal() as books:
        opened = books.start(title, make_plan(plan, ask_at or (), books.read().currency))
        ledger = books.ledger()
    return _show_block(ledger, opened.number, as_json=as_json)


@journal.command()
def stop(
    engineer: Annotated[
        str | None, typer.Option(metavar="TIME", help="Working time, such as 47m, if the clock is wrong.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """End the open block and compare it with its plan."""
    with open_journal() as books:
        ended = books.stop(engineer=None if engineer is None else parse_seconds(engineer))
        ledger = books.ledger()
    return _show_block(ledger, ended.number, as_json=as_json)


@journal.command("go-on")
def go_on(why: Annotated[str, typer.Argument(help="Why to continue.")] = "", as_json: AsJson = False) -> int:
    """Continue after the checkpoints that were reached."""
    with open_journal() as books:
        answered = books.go_on(why)
        ledger = books.ledger()
    lines = [f"continuing: {text}" for text in answered] or ["no checkpoint was waiting"]
    finish(ledger, lines, {"answered": list(answered)}, as_json=as_json)
    return 0


@journal.command()
def ask() -> int:
    """At a checkpoint, ask on a terminal or exit with code 4."""
    with open_journal() as books:
        return EXIT_STOPPED if asked_and_stopped(books.ledger(), books) else 0


@journal.command("list")
def list_entries(as_json: AsJson = False) -> int:
    """List blocks and entries."""
    with open_journal() as books:
        ledger = books.ledger()
    if not as_json:
        print_blocks(ledger)
        everything = [*(each for account in ledger.blocks for each in account.iterations), *ledger.loose]
        print_entries(sorted(everything, key=lambda each: each.entry.number))
    finish(ledger, [], ledger_record(ledger), as_json=as_json)
    return 0


@journal.command()
def show(
    which: Annotated[str, typer.Argument(metavar="[N | bN]", help="Entry N or block N (default: last entry).")] = "",
    as_json: AsJson = False,
) -> int:
    """Show one entry, or a block with its costs."""
    with open_journal() as books:
        ledger = books.ledger()
    if which.lower().startswith("b") and which[1:].isdecimal():
        return _show_block(ledger, int(which[1:]), as_json=as_json)
    if which and not which.isdecimal():
        raise UsageError(f"{which}: give the number of an entry, as 3, or of a block, as b2")
    numbers = [entry.number for entry in ledger.book.entries]
    wanted = int(which) if which else max(numbers, default=0)
    iteration = ledger.iteration(wanted)
    if iteration is None:
        raise UsageError(f"there is no entry {wanted}: weft journal list shows them" if wanted else "no entry yet")
    if not as_json:
        print_entry(iteration, ledger)
    finish(ledger, [], {"entry": entry_record(iteration)}, as_json=as_json)
    return 0


@journal.command()
def report(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file; .html makes HTML.")] = None,
    form: Annotated[Format | None, typer.Option("--format", help="markdown or html.")] = None,
    as_json: AsJson = False,
) -> int:
    """Write the whole journal as Markdown or HTML."""
    with open_journal() as books:
        ledger = books.ledger()
    if as_json:
        text = json.dumps(ledger_record(ledger), indent=2, ensure_ascii=False) + "\n"
    elif form is Format.HTML or (form is None and output is not None and output.suffix in (".html", ".htm")):
        text = html(ledger)
    else:
        text = markdown(ledger)
    if output is None:
        print(text, end="")
        return 0
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    for line in machine_lines(ledger):
        print(line)
    print(f"{output}: {len(text):,} characters")
    return 0


def _show_block(ledger: Ledger, number: int, *, as_json: bool) -> int:
    account = _find_block(ledger, number)
    if not as_json:
        print_block(account, ledger)
        print_entries(account.iterations)
    finish(ledger, [], {"block": block_record(account)}, as_json=as_json)
    return 0


def _find_block(ledger: Ledger, number: int) -> BlockAccount:
    for account in ledger.blocks:
        if account.block.number == number:
            return account
    raise UsageError(f"there is no block {number}: weft journal list shows them")


@machine.command("start")
def start_machine(
    name: Annotated[str, typer.Argument(help="A name for the machine.")],
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="0.20/h (default: the GPU's rate).")] = None,
    gpu: Annotated[str, typer.Option(help="Its GPU, as in `rates --gpu` (default: the machine's name).")] = "",
    as_json: AsJson = False,
) -> int:
    """Record that a machine runs from now on. This does not start the machine."""
    with open_journal() as books:
        amount = None if rate is None else parse_rate(rate, books.read().currency, "h")
        books.start_machine(name, gpu=gpu or name, rate=amount)
        ledger = books.ledger()
    finish(ledger, [], {}, as_json=as_json)
    return 0


@machine.command("stop")
def stop_machine(name: Annotated[str, typer.Argument(help="Name of the machine.")], as_json: AsJson = False) -> int:
    """Record that a machine was stopped, and show its cost."""
    with open_journal() as books:
        stopped = books.stop_machine(name)
        ledger = books.ledger()
    account = machine_account(ledger.book, stopped, ledger.now)
    cost = "cost unknown, it has no rate" if account.cost is None else show_money(account.cost, ledger.book.currency)
    lines = [f"GPU machine {name} ran {show_minutes(account.seconds)}: {cost}"]
    finish(ledger, lines, {"machine": machine_record(account)}, as_json=as_json)
    return 0


@machine.command("list")
def list_machines(as_json: AsJson = False) -> int:
    """Show every run of every machine."""
    with open_journal() as books:
        ledger = books.ledger()
    accounts = [machine_account(ledger.book, each, ledger.now) for each in ledger.book.machines]
    lines = [
        f"{account.machine.name}: {show_minutes(account.seconds)} from {account.machine.started:%Y-%m-%d %H:%M} UTC, "
        + ("no rate" if account.cost is None else show_money(account.cost, ledger.book.currency))
        for account in accounts
        if account.machine.stopped is not None
    ]
    finish(ledger, lines, {"runs": [machine_record(account) for account in accounts]}, as_json=as_json)
    return 0
