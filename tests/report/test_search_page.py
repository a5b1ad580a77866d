"""A search's page: progress, lineage with diffs, levers, insights."""

from datetime import UTC, datetime
from math import sqrt
from typing import Any

import pytest

from tests.evolve.members import history, member
from tests.report.pages import HOSTILE, check_page
from weft.evolve.levers.space import Change
from weft.evolve.run_summary import RunSummary
from weft.evolve.settings import Settings
from weft.report.page import search_page
from weft.report.records import DiffLine, SearchReport
from weft.report.search_report import report_of
from weft.store.records import InsightRow, Proof, RunRow

NOW = datetime(2026, 11, 15, tzinfo=UTC)
STAGES, COPY, TAIL = Change("STAGES", "1", "2"), Change("COPY", "plain", "async"), Change("TAIL", "every", "edge")


@pytest.fixture(autouse=True)
def whole_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the bound, which the artificial profiles do not have."""
    from tests.evolve.members import Estimated

    monkeypatch.setattr(Estimated, "lb_warm", property(lambda self: self.est_low), raising=False)


def found(said: str = "", source: str = "a\nb\n") -> SearchReport:
    members = history(
        member(1, 1000.0),
        member(2, 500.0, parents=(1,), changes=(STAGES, COPY)),
        member(3, 2000.0, parents=(1,), changes=(STAGES, TAIL)),
        member(4, None, parents=(2,), changes=(COPY, TAIL), generation=2),
        member(5, None, parents=(2, 3), duplicate_of=2, generation=2, changes=(TAIL, COPY)),
        member(6, 400.0, parents=(2,), changes=(TAIL, COPY), generation=2),
    )
    progress: dict[str, Any] = {"winner": 6, "why": said}
    run = RunRow(7, "evolve", "sdpa", "l4", 1, Settings().record(), "done", progress, NOW, NOW)
    insights = (
        InsightRow(1, 7, 2, said, {}, {}, {"est_cycles": 1000.0}, {"est_cycles": 500.0}, Proof.CONFIRMED, "", NOW),
        InsightRow(2, 7, 3, said, {}, {}, {"est_cycles": 1000.0}, {"est_cycles": 2000.0}, Proof.REFUTED, said, NOW),
    )
    texts = {number: source + "".join(f"line {i}\n" for i in range(number)) for number in range(1, 7)}
    return report_of(RunSummary(run, Settings(), members, insights), texts, command=said)


def test_kinds_of_candidates() -> None:
    made = found()
    assert {each.id: each.kind for each in made.candidates} == {
        1: "elite",
        2: "elite",
        3: "passed",
        4: "failed",
        5: "duplicate",
        6: "winner",
    }
    assert made.winning_line == (1, 2, 6)
    assert made.sentence == "1,000 → 400 cycles by the model (×0.40); candidate 6 passes the whole check"
    assert [each.against_parent for each in made.candidates] == [None, 0.5, 2.0, None, None, 0.8]


def test_a_diff_has_what_the_child_changed() -> None:
    diff = found().candidates[1].diff
    assert diff[0].sign == "@" and [line for line in diff if line.sign == "+"] == [DiffLine("+", "line 1")]
    assert not any(line.sign == "-" for line in diff)


def test_a_change_has_the_mean_of_its_children() -> None:
    moves = {row.change: row for row in found().levers}
    assert moves[str(STAGES)].tried == 2 and moves[str(STAGES)].kept == 1
    assert moves[str(STAGES)].ratio == pytest.approx(1.0)  # halved once, doubled once
    copy = moves[str(COPY)]
    assert (copy.tried, copy.passed, copy.kept) == (4, 2, 2) and copy.ratio == pytest.approx(sqrt(0.5 * 0.8))


@pytest.mark.parametrize("said", ["plain", HOSTILE])
def test_the_page_is_complete_and_safe(said: str) -> None:
    page = check_page(search_page(found(said, f"{said}\n")))
    assert [f"c{number}" for number in range(1, 7)] == [
        id_ for id_ in page.ids() if id_[0] == "c" and id_[1:].isdigit()
    ]
    nodes = [a for a in page.of("a") if a.get("class") == "node"]
    assert len(nodes) == 6 and len({(a["data-x"], a["data-y"]) for a in nodes}) == 6
    assert nodes[4]["data-parents"] == "2 3"
    assert said in page.text and "confirmed 1" in page.text and "refuted 1" in page.text


def test_a_parent_is_in_the_middle_of_its_children() -> None:
    page = check_page(search_page(found()))
    y = {a["data-candidate"]: float(a["data-y"] or 0) for a in page.of("a") if a.get("class") == "node"}
    assert y["2"] == (y["4"] + y["6"]) / 2 and y["1"] == (y["2"] + y["3"]) / 2
