"""The reports: complete, self-contained, and safe whatever people write."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser

import pytest

from weft.journal.html import html
from weft.journal.ledger import Ledger, add_up
from weft.journal.markdown import markdown
from weft.journal.records import (
    Block,
    Book,
    CommandRun,
    Entry,
    GoOn,
    Kind,
    MachineRun,
    Plan,
    Rate,
    ShapeResult,
    Texts,
    Use,
)

START = datetime(2026, 11, 15, 9, tzinfo=UTC)
VOID = {"meta", "br"}


class Balance(HTMLParser):
    """Whether every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def minutes(count: int) -> datetime:
    return START + timedelta(minutes=count)


def ledger(goal: str = "tables in shared memory") -> Ledger:
    run = CommandRun(("weft", "check", "my kernel.cu"), 1, 12.3, "8 of 9 workloads passed", "small\t3 of 3\n<done>")
    texts = Texts(goal, "a table read is cheaper", "DEQUANT=lut", "8 of 9", "row 31 is wrong", "debug: diagnose")
    shapes = (ShapeResult("mission", "2 of 3"), ShapeResult("small", "3 of 3"))
    entries = (
        Entry(1, minutes(20), "check", texts, block=1, shapes=shapes, run=run, uses=(Use(Kind.TOKENS, "", 120_000),)),
        Entry(2, minutes(70), "note", Texts("read the log"), spent=300),
    )
    return add_up(
        Book(
            rates=(
                Rate(Kind.ENGINEER, "", Decimal(60), START),
                Rate(Kind.GPU, "l4", Decimal("0.20"), START),
                Rate(Kind.TOKENS, "", Decimal(3), START),
            ),
            blocks=(Block(1, "stage C", START, minutes(60), Plan(1800, Decimal(40))),),
            entries=entries,
            machines=(MachineRun("l4-vm", "l4", None, minutes(30), None),),
            go_ons=(GoOn(1, minutes(31), 1860, Decimal(31), "one more try"),),
        ),
        minutes(90),
    )


@pytest.mark.parametrize("render", [markdown, html])
def test_everything_is_in_it(render: object) -> None:
    assert callable(render)
    text = render(ledger())
    for piece in (
        "stage C",
        "2026-11-15 09:00 to 10:00 UTC",
        "60 min",
        "30 min (100 %) over",
        "$40.00",
        "$60.00",
        "$60.46",
        "a table read is cheaper",
        "DEQUANT=lut",
        "row 31 is wrong",
        "debug: diagnose",
        "exit code 1 after 12.3 s",
        "8 of 9 workloads passed",
        "result, mission",
        "2 of 3",
        "$0.36",
        "$20.36",
        "120,000",
        "$3/M",
        "20 min",
        "GPU machine l4-vm is running: 60 min, $0.20 so far",
        "weft journal machine stop l4-vm",
        "31 min and $31.00: go on, one more try",
        "read the log",
        "Outside any block",
        "none yet",
        "l4-vm, no block open",
    ):
        assert piece in text, piece


def test_the_page_loads_nothing() -> None:
    page = html(ledger())
    for mark in ("http:", "https:", "//", "url(", "@import"):
        assert mark not in page
    seen = Balance()
    seen.feed(page)
    assert seen.open == [] and not seen.seen & {"script", "link", "img", "iframe"}
    assert "width=device-width" in page and "prefers-color-scheme:dark" in page


def test_what_people_write_is_text() -> None:
    nasty = "a | b <script>alert(1)</script> & `c`\nnext"
    page, text = html(ledger(nasty)), markdown(ledger(nasty))
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "<script" not in text and "a \\| b" in text
    heading = next(line for line in text.splitlines() if "alert" in line)
    assert heading.startswith("### Entry 1 · check · a") and heading.endswith("next")


def test_tables_are_tables() -> None:
    """Every row has the cells of its header."""
    cells = 0
    for line in markdown(ledger("x | y")).splitlines():
        count = line.replace("\\|", "").count("|")
        if not line.startswith("|"):
            cells = 0
        else:
            assert cells in (0, count)
            cells = count


def test_an_empty_journal_has_a_report() -> None:
    empty = add_up(Book(), START)
    assert "0 blocks, 0 entries · 0 min, $0.00" in markdown(empty)
    assert "0 blocks, 0 entries · 0 min, $0.00" in html(empty)
