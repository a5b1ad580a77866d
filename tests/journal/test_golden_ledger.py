"""The ledger of the logs: GPU 1.5 h at $0.20/h booked as $0.60, engineer 47 min at $50/h, plan 30 min and $25.30."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from weft.journal.as_json import block_record
from weft.journal.html import html
from weft.journal.ledger import Ledger, add_up
from weft.journal.markdown import markdown
from weft.journal.records import Block, Book, Kind, Plan, Rate, Use

DAY = datetime(2026, 11, 15, tzinfo=UTC)
GPU_LINE = "GPU l4, 1.5 h: booked $0.60, the rate of $0.20/h gives $0.30: off by $0.30"
SUM_LINE = (
    "the sum: booked $39.77, should be $39.47: off by $0.30; $39.47 against a plan of $25.30, $14.17 (56 %) over; "
    "47 min against 30 min, 17 min (57 %) over"
)


def ledger(*, gpu_booked: str = "0.60", booked_sum: str = "39.77") -> Ledger:
    uses = (
        Use(Kind.ENGINEER, "", 47 * 60, Decimal("39.17")),
        Use(Kind.GPU, "l4", 90 * 60, Decimal(gpu_booked)),
    )
    plan = Plan(seconds=30 * 60, money=Decimal("25.30"))
    block = Block(1, "Stage C", DAY, DAY, plan, clocked=False, uses=uses, booked_sum=Decimal(booked_sum))
    rates = (Rate(Kind.ENGINEER, "", Decimal(50), DAY), Rate(Kind.GPU, "l4", Decimal("0.20"), DAY))
    return add_up(Book(rates=rates, blocks=(block,)), DAY)


def test_the_rate_decides() -> None:
    (block,) = ledger().blocks
    engineer, gpu = (line.computed for line in block.account.lines)
    assert engineer == Decimal(47) * 50 / 60 and gpu == Decimal("0.30")
    assert block.account.money.quantize(Decimal("0.01")) == Decimal("39.47")
    assert Decimal("0.60") + Decimal("39.17") == Decimal("39.77") == block.account.booked_sum  # the log adds up,


def test_the_wrong_sum_is_named() -> None:
    (block,) = ledger().blocks
    assert [wrong.text for wrong in block.wrong] == [GPU_LINE, SUM_LINE]  # but with a wrong part


@pytest.mark.parametrize("render", [markdown, html])
def test_the_reports_say_so(render: object) -> None:
    assert callable(render)
    text = render(ledger())
    assert GPU_LINE in text and SUM_LINE in text
    for figure in ("$0.60, off by $0.30", "$39.77, off by $0.30", "$39.47", "$25.30", "17 min (57 %) over"):
        assert figure in text


def test_the_record_says_so() -> None:
    (block,) = ledger().blocks
    record = block_record(block)
    assert record["money"] == "39.47" and record["booked_sum"] == "39.77"
    assert record["wrong_sums"] == [
        {"what": "GPU l4", "booked": "0.60", "right": "0.30", "text": GPU_LINE},
        {"what": "the sum", "booked": "39.77", "right": "39.47", "text": SUM_LINE},
    ]


def test_the_right_ledger_is_left_alone() -> None:
    """The correct counterpart: amounts rounded to the cent."""
    (block,) = ledger(gpu_booked="0.30", booked_sum="39.47").blocks
    assert block.wrong == ()
    assert "off by" not in markdown(ledger(gpu_booked="0.30", booked_sum="39.47"))


def test_a_sum_that_does_not_follow_from_its_parts() -> None:
    (block,) = ledger(gpu_booked="0.30", booked_sum="39.74").blocks
    (wrong,) = block.wrong
    assert wrong.text.startswith(
        "the sum: booked $39.74, should be $39.47 (the booked parts add to $39.47): off by $0.27"
    )


def test_a_difference_of_a_cent_is_reported() -> None:
    (block,) = ledger(gpu_booked="0.31", booked_sum="39.47").blocks
    assert [wrong.what for wrong in block.wrong] == ["GPU l4"]
