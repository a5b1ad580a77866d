"""`weft journal add|run|amend|block`: record iterations and finished blocks."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.journal.amounts import parse_seconds
from weft.journal.as_json import block_record, entry_record
from weft.journal.checkpoints import make_plan
from weft.journal.parse_uses import parse_uses
from weft.journal.records import Block, Entry, ShapeResult, Texts
from weft.journal.watch_command import kind_of, watch

from .journal_output import EXIT_STOPPED, asked_and_stopped, finish, notices, open_journal, print_block, print_entry

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Hypothesis = Annotated[str, typer.Option(help="What should happen, and why.")]
Change = Annotated[str, typer.Option(help="What was changed.")]
Result = Annotated[str, typer.Option(help="The result.")]
Finding = Annotated[str, typer.Option(help="What was learnt.")]
Decision = Annotated[str, typer.Option(help="The next step, such as: pass → the next rung, fail → debug.")]
Spent = Annotated[str | None, typer.Option(metavar="TIME", help="Working time of a person: 12m.")]
Gpu = Annotated[list[str] | None, typer.Option("--gpu", metavar="[NAME=]TIME", help="GPU time used: l4=1.5h.")]
Tokens = Annotated[list[str] | None, typer.Option("--tokens", metavar="[NAME=]N", help="Tokens used: 120k.")]
Booked = Annotated[
    list[str] | None,
    typer.Option("--booked", metavar="WHAT=MONEY", help="An amount from another log, to be checked: gpu=0.60."),
]
InBlock = Annotated[int | None, typer.Option("--block", help="Its block (default: the open one).")]


def add(
    goal: Annotated[str, typer.Argument(help="What the iteration is for.")],
    hypothesis: Hypothesis = "",
    change: Change = "",
    result: Result = "",
    finding: Finding = "",
    decision: Decision = "",
    shape: Annotated[list[str] | None, typer.Option(metavar="NAME=RESULT", help="The result of one shape.")] = None,
    kind: Annotated[str, typer.Option(help="check, diagnose, profile, bench, evolve or any other word.")] = "note",
    spent: Spent = None,
    gpu: Gpu = None,
    tokens: Tokens = None,
    booked: Booked = None,
    block: InBlock = None,
    as_json: AsJson = False,
) -> int:
    """Record an iteration."""
    texts = Texts(goal, hypothesis, change, result, finding, decision)
    with open_journal() as books:
        uses, total = parse_uses(
            gpu=gpu or (), tokens=tokens or (), booked=booked or (), currency=books.read().currency
        )
        if total is not None:
            raise UsageError("--booked sum is for a block: weft journal block")
        entry = Entry(
            0,
            books.now(),
            kind,
            texts,
            block=block,
            shapes=tuple(map(_shape, shape or ())),
            spent=None if spent is None else parse_seconds(spent),
            uses=uses,
        )
        number = books.enter(entry).number
        ledger = books.ledger()
    iteration = ledger.iteration(number)
    assert iteration is not None
    if not as_json:
        print_entry(iteration, ledger)
    finish(ledger, [], {"entry": entry_record(iteration)}, as_json=as_json)
    return 0


def run_command(
    command: Annotated[list[str], typer.Argument(help="The command; put -- before it: -- weft check kernel.cu")],
    goal: Annotated[str, typer.Option(help="What it is for.")] = "",
    hypothesis: Hypothesis = "",
    change: Change = "",
    decision: Decision = "",
) -> int:
    """Run a command and record how it ended.

    Recorded are its time, its exit code, its last line and, for weft check, the result of each shape.

    The output and the exit code are those of the command; the journal prints to standard error. At a checkpoint
    of the budget nothing runs and the exit code is 4.
    """
    with open_journal() as books:
        if asked_and_stopped(books.ledger(), books):
            return EXIT_STOPPED
    # The store is closed meanwhile: the command may open the journal itself.
    watched = watch(command)
    texts = Texts(goal or " ".join(command), hypothesis, change, decision=decision)
    with open_journal() as books:
        entry = Entry(0, books.now(), kind_of(command), texts, shapes=watched.shapes, run=watched.run)
        entry = books.enter(entry)
        ledger = books.ledger()
    said = f"exit code {watched.run.exit_code} after {watched.run.seconds:.1f} s"
    todo = "" if decision else f" · then: weft journal amend {entry.number} --decision '…'"
    for line in [*notices(ledger), f"journal: entry {entry.number} · {entry.kind} · {said}{todo}"]:
        print(line, file=sys.stderr)
    return watched.run.exit_code


def amend(
    number: Annotated[int, typer.Argument(help="Number of the entry.")],
    goal: Annotated[str, typer.Option(help="What the iteration is for.")] = "",
    hypothesis: Hypothesis = "",
    change: Change = "",
    result: Result = "",
    finding: Finding = "",
    decision: Decision = "",
    spent: Spent = None,
    gpu: Gpu = None,
    tokens: Tokens = None,
    booked: Booked = None,
    as_json: AsJson = False,
) -> int:
    """Add a finding, a decision or resources used to an entry."""
    given = {
        "goal": goal,
        "hypothesis": hypothesis,
        "change": change,
        "result": result,
        "finding": finding,
        "decision": decision,
    }
    with open_journal() as books:
        uses, _ = parse_uses(gpu=gpu or (), tokens=tokens or (), booked=booked or (), currency=books.read().currency)
        seconds = None if spent is None else parse_seconds(spent)
        books.amend(number, {name: text for name, text in given.items() if text}, spent=seconds, uses=uses)
        ledger = books.ledger()
    iteration = ledger.iteration(number)
    assert iteration is not None
    if not as_json:
        print_entry(iteration, ledger)
    finish(ledger, [], {"entry": entry_record(iteration)}, as_json=as_json)
    return 0


def block(
    title: Annotated[str, typer.Argument(help="What the block was for.")],
    engineer: Annotated[str, typer.Option(metavar="TIME", help="Time of a person: 47m.")],
    plan: Annotated[
        str | None, typer.Option(metavar="TIME/MONEY", help="Planned time and money: 30m/25.30, or one of them.")
    ] = None,
    gpu: Gpu = None,
    tokens: Tokens = None,
    booked: Booked = None,
    on: Annotated[str | None, typer.Option(metavar="DATE", help="Its day, 2026-11-15 (default: today).")] = None,
    as_json: AsJson = False,
) -> int:
    """Record a finished block and check its sums.

    For logs written by hand: amounts are computed from the rates, and each booked amount that differs is listed.
    """
    with open_journal() as books:
        day = books.now() if on is None else _day(on)
        currency = books.read().currency
        uses, total = parse_uses(
            engineer=engineer, gpu=gpu or (), tokens=tokens or (), booked=booked or (), currency=currency
        )
        written = Block(0, title, day, day, make_plan(plan, (), currency), clocked=False, uses=uses, booked_sum=total)
        number = books.write_block(written).number
        ledger = books.ledger()
    (account,) = (each for each in ledger.blocks if each.block.number == number)
    if not as_json:
        print_block(account, ledger)
    finish(ledger, [], {"block": block_record(account)}, as_json=as_json)
    return 0


def _shape(text: str) -> ShapeResult:
    shape, sign, result = text.partition("=")
    if not sign or not shape:
        raise UsageError(f"--shape {text}: give it as NAME=RESULT, such as mission=passed")
    return ShapeResult(shape, result)


def _day(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise UsageError(f"--on {text}: give a day, such as 2026-11-15") from error
