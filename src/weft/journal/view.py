"""The texts and figures of a ledger, shared by text, Markdown and HTML."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from .amounts import show_hours, show_minutes, show_money, show_rate, show_tokens
from .checkpoints import next_stop
from .claims import SUM, agrees, money_against, time_against, wrong_sums
from .costs import Account, CostLine
from .ledger import BlockAccount, Iteration, Ledger, MachineAccount
from .records import Block, CommandRun
from .watch_command import shown_command


@dataclass(frozen=True)
class PlanRow:
    """Time or money, planned and actual."""

    what: str
    planned: str
    actual: str
    difference: str
    over: bool = False


@dataclass(frozen=True)
class Cumulative:
    """A block's row in the table of all blocks, with sums up to and including it."""

    block: BlockAccount
    planned: Decimal
    actual: Decimal
    seconds: int


def show_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def block_name(block: Block) -> str:
    return f"block {block.number} · {block.title}"


def block_times(block: Block, now: datetime) -> str:
    """Return `2026-11-15 09:12 to 09:59 UTC`, `open since` a time, or the day of a block recorded afterwards."""
    if not block.clocked:
        return f"recorded for {block.started:%Y-%m-%d}"
    if block.stopped is None:
        elapsed = show_minutes(max(0, round((now - block.started).total_seconds())))
        return f"open since {show_time(block.started)}, {elapsed}"
    day = "" if block.stopped.date() == block.started.date() else f"{block.stopped:%Y-%m-%d} "
    return f"{block.started:%Y-%m-%d %H:%M} to {day}{block.stopped:%H:%M} UTC"


def money_of(account: Account, currency: str) -> str:
    """Return the sum, with `at least` if a part of it has no price."""
    return f"{'at least ' if account.unpriced else ''}{show_money(account.money, currency)}"


def plan_rows(account: Account, currency: str) -> list[PlanRow]:
    plan = account.plan
    time = PlanRow("time", "", show_minutes(account.seconds), "no plan")
    if plan.seconds is not None:
        against = time_against(account.seconds, plan.seconds)
        time = PlanRow("time", show_minutes(plan.seconds), time.actual, against, over=account.seconds > plan.seconds)
    money = PlanRow("money", "", money_of(account, currency), "no plan")
    if plan.money is not None:
        against = money_against(account.money, plan.money, currency)
        if account.unpriced and account.money <= plan.money:
            against = "not known"
        planned = show_money(plan.money, currency)
        money = PlanRow("money", planned, money.actual, against, over=account.money > plan.money)
    rows = [time, money]
    if account.gpu_seconds:
        rows.append(PlanRow("GPU", "", show_hours(account.gpu_seconds), ""))
    if account.tokens:
        rows.append(PlanRow("tokens", "", show_tokens(account.tokens), ""))
    return rows


def _cost_row(line: CostLine, currency: str) -> list[str]:
    """Return the cells: name, quantity, rate, cost, booked."""
    what = f"{line.label} ({line.origin})" if line.origin else line.label
    rate = "" if line.rate is None else show_rate(line.rate, currency, line.unit)
    amount = "no rate" if line.amount is None else show_money(line.amount, currency)
    booked = "" if line.booked is None else show_money(line.booked, currency)
    if line.booked is not None and not agrees(line.booked, line.computed):
        booked += f", off by {show_money(abs(line.booked - (line.computed or 0)), currency)}"
    return [what, line.shown_quantity, rate, amount, booked]


def cost_table(account: Account, currency: str) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return columns and rows: the lines and, if several, their sum; the column `booked` only if something was."""
    rows = _cost_rows(account, currency)
    width = len(COST_COLUMNS) if any(row[-1] for row in rows) else len(COST_COLUMNS) - 1
    return COST_COLUMNS[:width], [row[:width] for row in rows]


def _cost_rows(account: Account, currency: str) -> list[list[str]]:
    rows = [_cost_row(line, currency) for line in account.lines]
    if len(rows) > 1 or account.booked_sum is not None:
        booked = "" if account.booked_sum is None else show_money(account.booked_sum, currency)
        if any(wrong.what == SUM for wrong in wrong_sums(account, currency)) and account.booked_sum is not None:
            booked += f", off by {show_money(abs(account.booked_sum - account.money), currency)}"
        rows.append(["sum", "", "", money_of(account, currency), booked])
    return rows


COST_COLUMNS = ("what", "quantity", "rate", "cost", "booked")
PLAN_COLUMNS = ("", "planned", "actual", "difference")


def entry_heading(iteration: Iteration) -> str:
    entry = iteration.entry
    return f"entry {entry.number} · {entry.kind} · {entry.texts.goal or 'no goal given'}"


def entry_fields(iteration: Iteration, currency: str) -> list[tuple[str, str]]:
    """Return labels and texts in the order of an iteration, without empty ones."""
    entry, run = iteration.entry, iteration.entry.run
    ended = "" if run is None else f"exit code {run.exit_code} after {run.seconds:.1f} s"
    account = iteration.account
    cost = money_of(account, currency) if account.lines else ""
    fields = [
        ("hypothesis", entry.texts.hypothesis),
        ("change", entry.texts.change),
        ("command", "" if run is None else shown_command(run.words)),
        ("source", "" if run is None else " · ".join(source_words(run))),
        ("ended", ended),
        ("summary", "" if run is None else run.summary),
        *((f"result, {each.shape}", each.text) for each in entry.shapes),
        ("result", entry.texts.result),
        ("key finding", entry.texts.finding),
        ("decision", entry.texts.decision or "none yet"),
        ("time spent", "" if iteration.spent is None else show_minutes(iteration.spent)),
        ("cost", cost),
        ("at", show_time(entry.at) + (f", amended {show_time(entry.amended)}" if entry.amended else "")),
    ]
    return [(label, text) for label, text in fields if text]


def source_words(run: CommandRun) -> list[str]:
    """Return the kernels with the digests of their files, and the commit."""
    kernels = [f"{each.path} {each.digest[:12]}" for each in run.kernels]
    return [*kernels, f"commit {run.commit[:10]}{'+' * run.commit.endswith('+')}"] if run.commit else kernels


def cumulative(ledger: Ledger) -> list[Cumulative]:
    rows: list[Cumulative] = []
    planned, actual, seconds = Decimal(0), Decimal(0), 0
    for block in ledger.blocks:
        planned += block.account.plan.money or 0
        actual += block.account.money
        seconds += block.account.seconds
        rows.append(Cumulative(block, planned, actual, seconds))
    return rows


def machine_line(account: MachineAccount, currency: str) -> str:
    machine = account.machine
    cost = "cost unknown, it has no rate" if account.cost is None else f"{show_money(account.cost, currency)} so far"
    return (
        f"GPU machine {machine.name} is running: {show_minutes(account.seconds)}, {cost} · "
        f"when it is stopped: weft journal machine stop {machine.name}"
    )


def machine_lines(ledger: Ledger) -> list[str]:
    return [machine_line(account, ledger.book.currency) for account in ledger.running]


def stop_lines(ledger: Ledger) -> list[str]:
    """Return the checkpoints that wait for an answer."""
    block = ledger.open_block
    lines = [f"budget of the journal: {stop.text}" for stop in ledger.stops]
    if block is not None:
        lines += [f"{block_name(block.block)}: {stop.text}" for stop in block.stops]
    return lines


def warning_lines(ledger: Ledger) -> list[str]:
    """Return the wrong sums, and the sums without a rate."""
    lines = [f"wrong sum in {where}: {wrong.text}" for where, wrong in ledger.wrong]
    cures = {"engineer": "--engineer 50/h", "GPU": "--gpu NAME=0.20/h", "tokens": "--tokens NAME=3/M"}
    for what in ledger.total.unpriced:
        lines.append(f"no rate for {what}, so sums are too low: weft journal rates {cures[what.partition(' ')[0]]}")
    return lines


def next_stop_line(block: BlockAccount, currency: str) -> str:
    ahead = next_stop(block.block.plan, block.account, currency)
    return f"stops to ask at {ahead}" if ahead else ""


def summary_line(ledger: Ledger) -> str:
    """Return the last line of every output of the journal."""
    total, currency = ledger.total, ledger.book.currency
    parts = [f"{_count(len(ledger.blocks), 'block')}, {_count(len(ledger.book.entries), 'entry', 'entries')}"]
    parts.append(f"{show_minutes(total.seconds)}, {money_of(total, currency)}")
    if total.plan.money is not None:
        planned = total.money - ledger.unplanned
        part = f"{show_money(planned, currency)} of it " if ledger.unplanned else ""
        against = money_against(planned, total.plan.money, currency)
        parts.append(f"{part}against plans of {show_money(total.plan.money, currency)}, {against}")
    wrong = len(ledger.wrong)
    if wrong:
        parts.append(_count(wrong, "wrong sum"))
    if ledger.running:
        parts.append(f"{_count(len(ledger.running), 'GPU machine')} running")
    return "journal: " + " · ".join(parts)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
