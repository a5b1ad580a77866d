"""Changes of the journal: they are read back unchanged, and invalid ones are refused with advice."""

from decimal import Decimal
from pathlib import Path

import pytest

from tests.journal.conftest import Clock
from weft.core.errors import UsageError
from weft.journal.checkpoints import make_plan
from weft.journal.journal import Journal
from weft.journal.records import Block, CommandRun, Entry, Kind, Plan, ShapeResult, Texts, Use
from weft.store.store import open_store


def entry(journal: Journal, goal: str = "try", **more: object) -> Entry:
    return Entry(0, journal.now(), "check", Texts(goal), **more)  # type: ignore[arg-type]


def test_everything_comes_back_as_it_was(journal: Journal, clock: Clock, tmp_path: Path) -> None:
    rate = journal.set_rate(Kind.GPU, "l4", Decimal("0.20"))
    plan = make_plan("30m/25.30", ["50%"], "$")
    journal.set_budget(make_plan("20h/1000", (), "$"))
    block = journal.start("stage C", plan)
    clock.after(minutes=7, microseconds=3)
    run = CommandRun(("weft", "check", "a b.cu"), 1, 2.5, "0 of 1", "line\n0 of 1")
    shapes = (ShapeResult("mission", "0 of 1"),)
    texts = Texts("goal", "hypothesis", "change", "result", "finding", "decision")
    written = journal.enter(
        Entry(
            0,
            clock(),
            "check",
            texts,
            shapes=shapes,
            run=run,
            spent=60,
            uses=(Use(Kind.TOKENS, "", 5, Decimal("0.1")),),
        )
    )
    machine = journal.start_machine("l4-vm", gpu="l4", rate=None)
    with open_store(tmp_path / "weft.db", clock=clock) as again:
        book = Journal(again).read()
    assert book.rates == (rate,) and book.blocks == (block,) and book.machines == (machine,)
    assert book.entries == (written,) and written.number == 1 and written.block == block.number
    assert book.budget == Plan(72_000, Decimal(1000)) and book.blocks[0].plan == plan


def test_one_block_at_a_time(journal: Journal) -> None:
    journal.start("first", Plan())
    with pytest.raises(UsageError, match=r"block 1 \(first\) is still open: end it with weft journal stop"):
        journal.start("second", Plan())
    journal.stop()
    assert journal.start("second", Plan()).number == 2


def test_nothing_to_stop(journal: Journal) -> None:
    with pytest.raises(UsageError, match="weft journal start TITLE"):
        journal.stop()


def test_an_entry_belongs_to_the_open_block_or_the_one_it_names(journal: Journal, clock: Clock) -> None:
    past = journal.write_block(Block(0, "past", clock(), clock(), clocked=False))
    assert journal.enter(entry(journal)).block is None
    now = journal.start("now", Plan())
    assert journal.enter(entry(journal)).block == now.number
    assert journal.enter(entry(journal, block=past.number)).block == past.number
    with pytest.raises(UsageError, match="there is no block 9"):
        journal.enter(entry(journal, block=9))


def test_amending_adds_what_is_given(journal: Journal, clock: Clock) -> None:
    number = journal.enter(entry(journal, "first goal", uses=(Use(Kind.GPU, "l4", 60),))).number
    later = clock.after(minutes=5)
    journal.amend(number, {"decision": "next rung"}, spent=None, uses=(Use(Kind.TOKENS, "", 9),))
    (amended,) = journal.read().entries
    assert amended.texts == Texts("first goal", decision="next rung") and amended.amended == later
    assert [use.kind for use in amended.uses] == [Kind.GPU, Kind.TOKENS]
    with pytest.raises(UsageError, match="there is no entry 7"):
        journal.amend(7, {}, spent=None, uses=())


def test_a_checkpoint_waits_until_it_is_answered(journal: Journal, clock: Clock) -> None:
    journal.set_rate(Kind.ENGINEER, "", Decimal(60))
    journal.set_budget(make_plan("100.00", (), "$"))
    journal.start("work", make_plan("30m", (), "$"))
    assert journal.go_on("nothing to answer") == ()
    clock.after(minutes=31)
    assert journal.go_on("nearly there") == ("spent 31 min of 30 min planned",)
    assert journal.go_on("again") == ()
    clock.after(minutes=70)
    waiting = journal.go_on("the deadline moved")
    assert waiting == ("spent $101.00 of $100.00 planned", "spent 101 min of 30 min planned")
    assert [answer.why for answer in journal.read().go_ons] == ["nearly there"] + 2 * ["the deadline moved"]


def test_machines(journal: Journal, clock: Clock) -> None:
    journal.start_machine("l4-vm", gpu="l4", rate=Decimal("0.20"))
    with pytest.raises(UsageError, match="running already"):
        journal.start_machine("l4-vm", gpu="l4", rate=None)
    with pytest.raises(UsageError, match=r"a100 is not registered as running \(running: l4-vm\)"):
        journal.stop_machine("a100")
    clock.after(hours=3)
    assert [machine.cost for machine in journal.ledger().running] == [Decimal("0.60")]
    journal.stop_machine("l4-vm")
    assert journal.ledger().running == ()
    journal.start_machine("l4-vm", gpu="l4", rate=None)
    assert len(journal.read().machines) == 2


def test_a_currency_is_fixed_by_the_first_amount(journal: Journal) -> None:
    journal.set_currency("€")
    journal.set_rate(Kind.ENGINEER, "", Decimal(50))
    journal.set_currency("€")
    with pytest.raises(UsageError, match="uses €"):
        journal.set_currency("$")
    assert journal.read().currency == "€"
