"""`weft journal machine`: GPU machines that cost money until somebody stops them."""

from typing import Annotated

import typer

from weft.journal.amounts import parse_rate, show_minutes, show_money
from weft.journal.as_json import machine_record
from weft.journal.ledger import machine_account

from .journal_output import finish, open_journal

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

machine = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Register GPU machines, shown while they run.",
)


@machine.command()
def start(
    name: Annotated[str, typer.Argument(help="What you call it.")],
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="0.20/h (default: the GPU's rate).")] = None,
    gpu: Annotated[str, typer.Option(help="Which GPU it has, as in `rates --gpu` (default: the machine's name).")] = "",
    as_json: AsJson = False,
) -> int:
    """Say that a machine runs from now on. This starts nothing: it keeps the bill in sight."""
    with open_journal() as books:
        amount = None if rate is None else parse_rate(rate, books.read().currency, "h")
        books.start_machine(name, gpu=gpu or name, rate=amount)
        ledger = books.ledger()
    finish(ledger, [], {}, as_json=as_json)
    return 0


@machine.command()
def stop(name: Annotated[str, typer.Argument(help="Which.")], as_json: AsJson = False) -> int:
    """Say that a machine was stopped, and what it cost."""
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
