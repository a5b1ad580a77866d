"""Small complete searches on the virtual GPU: the seed decides the lineage, nothing is judged twice, the winner is
correct."""

from dataclasses import replace
from pathlib import Path

import pytest

from weft.core.errors import UsageError
from weft.evolve.history import read_history
from weft.evolve.lever_proposer import LeverProposer
from weft.evolve.levers.space import family, start_space
from weft.evolve.run_summary import member_record, summary_of
from weft.evolve.search import Ended, Search, settings_of, start_search
from weft.evolve.settings import Budget, Settings, settings_for
from weft.judge.select import Choice
from weft.store.records import RunState
from weft.store.store import Store, open_store
from weft.supervise.records import CandidateSource, ScoreOn

SMALL = Settings(
    seed=1,
    batch=3,
    score_on=ScoreOn(shape="small"),
    choice=Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), seeds=(0,)),
    final=Choice(shapes=("gqa_4_ragged",), regimes=("unit_normal", "sorted_keys"), seeds=(0,)),
    budget=Budget(evaluations=6),
)
"""Takes seconds instead of minutes: one ragged workload, a small score, and six more workloads for the winner."""


def proposer() -> LeverProposer:
    return LeverProposer(*start_space("wmma"))


def run_search(store: Store, settings: Settings) -> Ended:
    run = start_search(store, settings)
    return Search(store, run.id, settings, proposer(), workers=2).go()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    path = tmp_path_factory.mktemp("store") / "weft.db"
    with open_store(path) as store:
        return run_search(store, SMALL), path


def test_a_search_from_a_rung_of_another_task(tmp_path: Path) -> None:
    one = Choice(("b4-hq8-hkv2-sq5-skv77-d64",), ("unit_normal",), ("bottom_right",), seeds=(0,))
    settings = settings_for("paged_decode", shape="b2-hq4-hkv2-sq1-skv40-d64")
    settings = replace(settings, choice=one, final=one, batch=2, budget=Budget(evaluations=2))
    with open_store(tmp_path / "weft.db") as store:
        run = start_search(store, settings)
        ended = Search(store, run.id, settings, LeverProposer(*start_space("paged_decode")), workers=1).go()
    assert [member.status for member in ended.history] == ["PASSED"] * 2
    assert all(member.score for member in ended.history) and ended.winner is not None


def lineage(store: Store, run_id: int) -> list[tuple[object, ...]]:
    return [
        (m.digest, m.parents, m.generation, m.point, m.status, m.score) for m in read_history(store, run_id).members
    ]


def test_it_ends_with_a_better_kernel_that_passes_the_whole_check(ended: tuple[Ended, Path]) -> None:
    found, path = ended
    assert found.why == "6 evaluations are used up"
    assert found.winner is not None and found.winner.score is not None and found.history.start.score is not None
    assert found.winner.score < 0.97 * found.history.start.score
    with open_store(path) as store:
        summary = summary_of(store, found.run_id)
        assert summary.run.state == RunState.DONE and summary.winner == found.winner.id
        finals = [row for row in store.evaluations(found.run_id) if row.request["for"] == "final"]
        assert finals[-1].status == "PASSED" and finals[-1].result is not None
        assert finals[-1].result["judged"] == finals[-1].result["planned"] == 6 + 1  # the score's workload comes last


def test_every_child_changes_two_levers_of_a_parent_that_was_judged_before_it(ended: tuple[Ended, Path]) -> None:
    history = ended[0].history
    assert history.evaluations == 6
    for member in history.members[1:]:
        parent = history.parent(member)
        assert parent is not None and parent.generation < member.generation and parent.passed
        before = parent.point or start_space("wmma")[1]
        assert member.point is not None
        moved = [name for name, value in member.point.values if value != before[name]]
        assert len(moved) == 2 and sorted(moved) == sorted(change.lever for change in member.changes)


def test_the_ledger_has_measured_effects_of_every_child(ended: tuple[Ended, Path]) -> None:
    found, path = ended
    with open_store(path) as store:
        rows = store.insights(found.run_id)
    assert {row.candidate_id for row in rows} == {member.id for member in found.history.members[1:]}
    scored = [row for row in rows if row.predicted["counter"] == "est_cycles" and row.after]
    for row in scored:
        better = row.after["est_cycles"] <= 0.97 * row.before["est_cycles"]
        assert row.outcome == ("confirmed" if better else "refuted")


def test_one_seed_one_lineage_and_another_seed_another(ended: tuple[Ended, Path], tmp_path: Path) -> None:
    found, path = ended
    with open_store(path) as store, open_store(tmp_path / "again.db") as again:
        same = run_search(again, SMALL)
        assert lineage(again, same.run_id) == lineage(store, found.run_id)
        # In the first store all verdicts are known: nothing is judged again.
        other = run_search(store, SMALL)
        history = read_history(store, other.run_id)
        assert [m.digest for m in history] == [m.digest for m in found.history]
        assert all(member.cached for member in history if member.duplicate_of is None)
        assert proposer().propose(found.history, SMALL, "9/0/0", ()) != proposer().propose(
            found.history, replace(SMALL, seed=2), "9/0/0", ()
        )


@pytest.mark.sweep  # a minute
def test_a_finished_run_continues_with_a_larger_budget(ended: tuple[Ended, Path], tmp_path: Path) -> None:
    with open_store(tmp_path / "more.db") as store:
        short = replace(SMALL, budget=Budget(evaluations=4))
        first = run_search(store, short)
        assert first.history.evaluations == 4
        more = settings_of(store.run(first.run_id), Budget(evaluations=6))
        assert replace(more, budget=SMALL.budget) == SMALL
        Search(store, first.run_id, more, proposer(), workers=2).go()
        with open_store(ended[1]) as whole:
            assert lineage(store, first.run_id) == lineage(whole, ended[0].run_id)


def test_a_record_of_a_candidate_is_plain(ended: tuple[Ended, Path]) -> None:
    found, path = ended
    with open_store(path) as store:
        summary = summary_of(store, found.run_id)
        records = [member_record(summary, member) for member in summary.history]
    assert records[0]["parents"] == [] and records[0]["changes"] == []
    assert all(record["score_cycles"] >= record["lb_warm_cycles"] for record in records if record["score_cycles"])


def test_a_start_that_is_wrong_ends_the_search_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.cu"
    path.write_text(family("sdpa").source + "\nint broken = ;\n")
    with open_store(tmp_path / "weft.db") as store:
        settings = replace(SMALL, start=str(path))
        found = run_search(store, settings)
    assert found.winner is None and found.why.startswith("the start does not pass: COMPILE_ERROR")


def test_an_invalid_start_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "weft.db") as store:
        for start in ("nowhere.cu", "fa_triton"):
            with pytest.raises(UsageError):
                start_search(store, replace(SMALL, start=start))
        assert store.runs() == ()


def test_a_kill_between_two_writes_makes_no_second_evaluation(tmp_path: Path) -> None:
    """The hash of a duplicate is stored, but not yet that it is a duplicate: the next driver records that and queues
    nothing."""
    with open_store(tmp_path / "weft.db") as store:
        run = start_search(store, SMALL)
        search = Search(store, run.id, SMALL, proposer(), workers=1)
        texts = ("// first\n", "// second\n")
        first, second = (search._add(CandidateSource(text), {}, {"hypothesis": ""}, (), 0, "test") for text in texts)
        for row in (first, second):
            store.set_canonical(row.id, "the same code")
        assert search._queue(store.candidate(first.id)) is True
        assert search._queue(store.candidate(second.id)) is False
        assert store.candidate(second.id).notes["duplicate_of"] == first.id
        assert [row.candidate_id for row in store.evaluations(run.id)] == [first.id]
