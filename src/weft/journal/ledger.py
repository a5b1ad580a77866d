"""The sums of a journal at a moment: an account per block, one for entries in no block, and the total."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from .checkpoints import Checkpoint, reached
from .claims import WrongSum, wrong_sums
from .costs import Account, CostLine, rate_at, together
from .records import Block, Book, Entry, GoOn, Kind, MachineRun, Rate, Use


@dataclass(frozen=True)
class Iteration:
    """An entry and its time: as given, or since the entry before it in its block."""

    entry: Entry
    spent: int | None
    account: Account
    """Its time and its booked amounts. The block's clock includes the time: do not add the two."""
    booked: tuple[CostLine, ...]
    """The amounts that were booked on the entry."""


@dataclass(frozen=True)
class BlockAccount:
    """A block with its sums."""

    block: Block
    account: Account
    iterations: tuple[Iteration, ...]
    wrong: tuple[WrongSum, ...]
    stops: tuple[Checkpoint, ...]
    """Checkpoints that were reached and not answered; only an open block has any."""


@dataclass(frozen=True)
class MachineAccount:
    """A machine and its cost so far."""

    machine: MachineRun
    seconds: int
    cost: Decimal | None
    """None if no rate is set."""


@dataclass(frozen=True)
class Ledger:
    """All sums at `now`."""

    book: Book
    now: datetime
    blocks: tuple[BlockAccount, ...]
    outside: Account
    """Entries in no block, and machines that ran while no block was open."""
    loose: tuple[Iteration, ...]
    """Entries in no block."""
    total: Account
    """The total, with the sum of the blocks' plans."""
    unplanned: Decimal
    """Money of the total for which no block had a plan."""
    running: tuple[MachineAccount, ...]
    stops: tuple[Checkpoint, ...]
    """Checkpoints of the budget of the whole journal."""

    @property
    def open_block(self) -> BlockAccount | None:
        return next((account for account in self.blocks if account.block.stopped is None), None)

    @property
    def wrong(self) -> tuple[tuple[str, WrongSum], ...]:
        """Return the wrong sums, each with the name of its block."""
        inside = [(f"block {each.block.number}", wrong) for each in self.blocks for wrong in each.wrong]
        return (*inside, *(("outside any block", wrong) for wrong in wrong_sums(self.outside, self.book.currency)))

    def iteration(self, number: int) -> Iteration | None:
        everything = (*self.loose, *(each for account in self.blocks for each in account.iterations))
        return next((each for each in everything if each.entry.number == number), None)


def add_up(book: Book, now: datetime) -> Ledger:
    """Return the ledger of a book at a moment. This is a pure function."""
    blocks = tuple(_block_account(book, block, now) for block in book.blocks)
    loose = tuple(_iterations(book, None))
    outside = Account((*_outside_lines(book, loose), *_idle_machines(book, now)))
    total = together([*(account.account for account in blocks), outside])
    planned = sum((each.account.money for each in blocks if each.account.plan.money is not None), Decimal(0))
    return Ledger(
        book=book,
        now=now,
        blocks=blocks,
        outside=outside,
        loose=loose,
        total=total,
        unplanned=total.money - planned,
        running=tuple(machine_account(book, machine, now) for machine in book.running),
        stops=reached(book.budget, total, _last_go_on(book.go_ons, None), book.currency),
    )


def machine_account(book: Book, machine: MachineRun, now: datetime) -> MachineAccount:
    line = _machine_line(book, machine, _overlap(machine, machine.started, machine.stopped or now, now))
    return MachineAccount(machine, line.quantity, line.computed)


def _block_account(book: Book, block: Block, now: datetime) -> BlockAccount:
    iterations = tuple(_iterations(book, block))
    account = Account(tuple(_block_lines(book, block, iterations, now)), block.plan, block.booked_sum)
    answered = _last_go_on(book.go_ons, block.number)
    stops = reached(block.plan, account, answered, book.currency) if block.stopped is None else ()
    return BlockAccount(block, account, iterations, wrong_sums(account, book.currency), stops)


def _block_lines(book: Book, block: Block, iterations: Sequence[Iteration], now: datetime) -> Iterator[CostLine]:
    if block.clocked:
        clock = _seconds(block.started, block.stopped or now)
        spent, origin = (clock, "clock") if block.engineer is None else (block.engineer, "given")
        yield CostLine(Kind.ENGINEER, "", spent, rate_at(book.rates, Kind.ENGINEER, "", block.started), origin=origin)
        for machine in book.machines:
            seconds = _overlap(machine, block.started, block.stopped or now, now)
            if seconds:
                yield _machine_line(book, machine, seconds)
    yield from _use_lines(book.rates, block.uses, block.started)
    for iteration in iterations:
        yield from iteration.booked


def _iterations(book: Book, block: Block | None) -> Iterator[Iteration]:
    """Yield in the order of time; in a clocked block each took the time since the one before."""
    number = None if block is None else block.number
    before = block.started if block is not None and block.clocked else None
    for entry in sorted((e for e in book.entries if e.block == number), key=lambda e: (e.at, e.number)):
        spent = entry.spent
        if spent is None and before is not None:
            spent = _seconds(before, entry.at)
        before = entry.at if before is not None else None
        booked = tuple(_use_lines(book.rates, entry.uses, entry.at))
        time = () if spent is None else (_time_line(book, entry, spent),)
        yield Iteration(entry, spent, Account((*time, *booked)), booked)


def _outside_lines(book: Book, loose: Iterable[Iteration]) -> Iterator[CostLine]:
    """Yield the lines of entries in no block, with their given times: no clock counted them."""
    for iteration in loose:
        if iteration.entry.spent is not None:
            yield _time_line(book, iteration.entry, iteration.entry.spent)
        yield from iteration.booked


def _time_line(book: Book, entry: Entry, seconds: int) -> CostLine:
    rate = rate_at(book.rates, Kind.ENGINEER, "", entry.at)
    return CostLine(Kind.ENGINEER, "", seconds, rate, origin=f"entry {entry.number}")


def _idle_machines(book: Book, now: datetime) -> Iterator[CostLine]:
    """Yield the machine time that no block covers. Blocks do not overlap."""
    for machine in book.machines:
        whole = _overlap(machine, machine.started, machine.stopped or now, now)
        covered = sum(
            _overlap(machine, block.started, block.stopped or now, now) for block in book.blocks if block.clocked
        )
        if whole > covered:
            yield replace(_machine_line(book, machine, whole - covered), origin=f"{machine.name}, no block open")


def _machine_line(book: Book, machine: MachineRun, seconds: int) -> CostLine:
    rate = machine.rate
    if rate is None:
        rate = rate_at(book.rates, Kind.GPU, machine.gpu, machine.started)
    return CostLine(Kind.GPU, machine.gpu, seconds, rate, origin=machine.name)


def _use_lines(rates: Sequence[Rate], uses: Iterable[Use], at: datetime) -> Iterator[CostLine]:
    for use in uses:
        yield CostLine(use.kind, use.name, use.quantity, rate_at(rates, use.kind, use.name, at), use.booked)


def _overlap(machine: MachineRun, start: datetime, stop: datetime, now: datetime) -> int:
    return _seconds(max(machine.started, start), min(machine.stopped or now, stop))


def _seconds(start: datetime, stop: datetime) -> int:
    return max(0, round((stop - start).total_seconds()))


def _last_go_on(go_ons: Iterable[GoOn], block: int | None) -> GoOn | None:
    return max((go_on for go_on in go_ons if go_on.block == block), key=lambda go_on: go_on.at, default=None)
