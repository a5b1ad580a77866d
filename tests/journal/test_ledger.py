"""Blocks, machines and rates over time, added up."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from weft.journal.costs import rate_at
from weft.journal.ledger import Ledger, add_up
from weft.journal.markdown import markdown
from weft.journal.records import Block, Book, Entry, Kind, MachineRun, Plan, Rate, Texts, Use
from weft.journal.view import machine_lines, summary_line, warning_lines

START = datetime(2026, 11, 15, 9, tzinfo=UTC)
RATES = (
    Rate(Kind.ENGINEER, "", Decimal(60), START),
    Rate(Kind.GPU, "l4", Decimal("0.20"), START),
    Rate(Kind.TOKENS, "", Decimal(3), START),
)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def block(number: int, first: float, last: float | None, **more: object) -> Block:
    stopped = None if last is None else at(last)
    return Block(number, f"work {number}", at(first), stopped, **more)  # type: ignore[arg-type]


def money(ledger: Ledger) -> Decimal:
    return ledger.total.money


def test_a_rate_holds_from_its_time_on() -> None:
    rates = (Rate(Kind.GPU, "l4", Decimal(1), at(10)), Rate(Kind.GPU, "l4", Decimal(2), at(20)))
    assert [rate_at(rates, Kind.GPU, "l4", at(m)) for m in (0, 10, 19, 20, 90)] == [1, 1, 1, 2, 2]
    assert rate_at(rates, Kind.GPU, "a100", at(30)) is None
    anyone = Rate(Kind.GPU, "", Decimal(5), at(0))
    assert rate_at((*rates, anyone), Kind.GPU, "a100", at(30)) == 5
    assert rate_at((*rates, anyone), Kind.GPU, "l4", at(30)) == 2


def test_the_clock_of_a_block() -> None:
    ledger = add_up(Book(rates=RATES, blocks=(block(1, 0, 47), block(2, 60, None))), at(70))
    assert [each.account.seconds for each in ledger.blocks] == [47 * 60, 10 * 60]
    assert money(ledger) == 57
    said = add_up(Book(rates=RATES, blocks=(block(1, 0, 47, engineer=1800),)), at(70))
    assert money(said) == 30, "the time that the user gives overrides the clock"


def test_a_machine_left_running_is_counted_outside_blocks() -> None:
    machine = MachineRun("l4-vm", "l4", None, at(30), None)
    ledger = add_up(Book(rates=RATES, blocks=(block(1, 0, 60), block(2, 90, 120)), machines=(machine,)), at(180))
    assert [each.account.gpu_seconds for each in ledger.blocks] == [30 * 60, 30 * 60]
    assert ledger.outside.gpu_seconds == 90 * 60
    assert ledger.total.gpu_seconds == 150 * 60
    assert money(ledger) == 90 + Decimal("0.20") * 150 / 60
    assert machine_lines(ledger) == [
        "GPU machine l4-vm is running: 2 h 30 min, $0.50 so far · when it is stopped: weft journal machine stop l4-vm"
    ]
    assert summary_line(ledger).endswith("1 GPU machine running")


def test_a_stopped_machine_is_silent_and_paid_for() -> None:
    machine = MachineRun("l4-vm", "l4", Decimal("0.40"), at(0), at(30))
    ledger = add_up(Book(rates=RATES, machines=(machine,)), at(600))
    assert machine_lines(ledger) == [] and money(ledger) == Decimal("0.20"), "the machine's rate has priority"


def test_what_has_no_rate_is_never_free() -> None:
    uses = (Use(Kind.GPU, "a100", 3600), Use(Kind.GPU, "l4", 3600))
    ledger = add_up(
        Book(rates=RATES, blocks=(block(1, 0, 0, clocked=False, uses=uses, plan=Plan(money=Decimal(9))),)), at(0)
    )
    assert ledger.total.unpriced == ("GPU a100",) and money(ledger) == Decimal("0.20")
    assert "at least $0.20" in summary_line(ledger)
    assert warning_lines(ledger) == ["no rate for GPU a100, so sums are too low: weft journal rates --gpu NAME=0.20/h"]
    assert "| money | $9.00 | at least $0.20 | not known |" in markdown(ledger)


def test_a_bill_without_a_rate_counts_as_booked() -> None:
    uses = (Use(Kind.GPU, "h100", 3600, Decimal("2.50")), Use(Kind.GPU, "h100", 60, Decimal("0.50")))
    ledger = add_up(Book(blocks=(block(1, 0, 0, clocked=False, uses=uses),)), at(0))
    assert money(ledger) == 3 and ledger.total.unpriced == () and ledger.wrong == ()


def test_iterations_take_the_time_between_them() -> None:
    entries = tuple(
        Entry(number, at(minutes), "check", Texts(goal=f"try {number}"), block=1, spent=spent)
        for number, minutes, spent in ((1, 10, None), (2, 25, None), (3, 40, 120))
    )
    ledger = add_up(Book(rates=RATES, blocks=(block(1, 0, 60),), entries=entries), at(60))
    assert [each.spent for each in ledger.blocks[0].iterations] == [600, 900, 120]
    assert money(ledger) == 60, "the block's clock counts them already"


def test_entries_outside_blocks_count_what_they_say() -> None:
    tokens = Use(Kind.TOKENS, "small-model", 2_000_000)
    entries = (
        Entry(1, at(5), "note", Texts("read"), spent=1800),
        Entry(2, at(6), "evolve", Texts("search"), uses=(tokens,)),
    )
    ledger = add_up(Book(rates=RATES, entries=entries), at(10))
    assert money(ledger) == 30 + 6 and ledger.total.tokens == 2_000_000
    assert ledger.outside.money == 36


def test_plans_are_summed_and_work_without_a_plan_is_separate() -> None:
    blocks = (
        block(1, 0, 30, plan=Plan(1200, Decimal(20))),
        block(2, 30, 40),
        block(3, 40, 50, plan=Plan(600, Decimal(15))),
    )
    ledger = add_up(Book(rates=RATES, blocks=blocks), at(50))
    assert ledger.total.plan == Plan(1800, Decimal(35)) and ledger.unplanned == 10
    assert "50 min, $50.00 · $40.00 of it against plans of $35.00, $5.00 (14 %) over" in summary_line(ledger)
    text = markdown(ledger)
    assert "| 1 work 1 | 20 min | 30 min | $20.00 | $30.00 |  | $20.00 | $30.00 |" in text
    assert "| 3 work 3 | 10 min | 10 min | $15.00 | $10.00 |  | $35.00 | $50.00 |" in text
