"""Which members are kept, what is learnt and when a search stops: functions of the history only."""

import json
from dataclasses import replace
from math import isclose

import pytest

from weft.core.errors import UsageError
from weft.evolve.elites import elites, kept, outsider, parents
from weft.evolve.ledger import lessons
from weft.evolve.lever_proposer import experience, relevance
from weft.evolve.levers.space import Change
from weft.evolve.records import Proposal, Spent
from weft.evolve.search import spent
from weft.evolve.settings import Budget, Prices, Settings
from weft.store.records import Proof
from weft.supervise.records import CandidateSource

from .members import history, member

SETTINGS = Settings()
WIDER = Change("BLOCK_N", "32", "64")
SWIZZLED = Change("LAYOUT", "plain", "swizzled")


def test_a_child_is_kept_at_three_percent_and_not_below() -> None:
    run = history(
        member(1, 1000), member(2, 970, parents=(1,)), member(3, 971, parents=(1,)), member(4, None, parents=(1,))
    )
    assert [each.id for each in kept(run, 0.03)] == [2, 1]


def test_a_kernel_that_spills_is_not_an_elite() -> None:
    run = history(member(1, 1000), member(2, 500, parents=(1,), spills=16))
    assert [each.id for each in elites(run, SETTINGS)] == [1]
    assert run.by_id[2].status == "SPILLS"
    assert member(1, 1000, spills=8).passed, "a search may begin with one that spills"


def test_three_elites_the_best_first_and_the_earlier_of_two_alike() -> None:
    run = history(
        member(1, 1000),
        member(2, 500, parents=(1,)),
        member(3, 500, parents=(1,)),
        member(4, 400, parents=(2,)),
        member(5, 900, parents=(1,)),
    )
    assert [each.id for each in elites(run, SETTINGS)] == [4, 2, 3]


def test_the_outsider_is_far_from_the_elites_and_no_worse_than_the_start() -> None:
    run = history(
        member(1, 1000, point="A=1 B=1 C=1"),
        member(2, 500, parents=(1,), point="A=2 B=2 C=1"),
        member(3, 450, parents=(1,), point="A=2 B=2 C=2"),
        member(4, 420, parents=(2,), point="A=2 B=1 C=2"),
        member(5, 990, parents=(1,), point="A=3 B=3 C=3"),
        member(6, 1001, parents=(1,), point="A=4 B=4 C=4"),
    )
    assert [each.id for each in elites(run, SETTINGS)] == [4, 3, 2]
    chosen = outsider(run, SETTINGS)
    assert chosen is not None and chosen.id == 5, "6 is farther, but worse than the start"
    assert [(each.id, weight) for each, weight in parents(run, SETTINGS)] == [(4, 3), (3, 2), (2, 1), (5, 1)]


def test_another_limiter_distinguishes_candidates_without_levers() -> None:
    run = history(
        member(1, 1000, limiter="smem and issue"),
        member(2, 800, parents=(1,)),
        member(3, 700, parents=(1,)),
        member(4, 600, parents=(1,)),
        member(5, 900, parents=(1,), limiter="tensor and issue"),
    )
    chosen = outsider(run, SETTINGS)
    assert chosen is not None and chosen.id == 5


def test_a_proposal_moves_one_or_two_levers() -> None:
    Proposal(CandidateSource("x"), (1,), (WIDER, SWIZZLED), "faster")
    Proposal(CandidateSource("x"), (1,), (WIDER,), "faster")
    for changes in ((), (WIDER, SWIZZLED, Change("STAGES", "1", "2")), (WIDER, Change("BLOCK_N", "64", "128"))):
        with pytest.raises(UsageError, match="one or two levers"):
            Proposal(CandidateSource("x"), (1,), changes, "faster")


def test_experience_shares_a_gain_between_both_levers_and_damps_single_trials() -> None:
    run = history(member(1, 1000), member(2, 500, parents=(1,), changes=(WIDER, SWIZZLED)))
    known = experience(run)
    # ln 2, half for each lever, over one trial and one of no effect.
    assert isclose(known.gains["BLOCK_N", "64"], 0.6931471805599453 / 4)
    assert known.tried == {("BLOCK_N", "64"): 1, ("LAYOUT", "swizzled"): 1}


def test_a_value_that_helped_is_preferred_and_one_that_failed_is_not() -> None:
    other = Change("STAGES", "1", "2")
    run = history(
        member(1, 1000),
        member(2, 500, parents=(1,), changes=(WIDER, SWIZZLED)),
        member(3, None, parents=(1,), changes=(other, Change("WARPS", "4", "8"))),
    )
    known, parent = experience(run), run.start
    assert known.worth((WIDER,), parent) > known.worth((other,), parent)
    assert known.worth((Change("BLOCK_N", "64", "32"),), parent) < 0, "the opposite change costs what the change gave"


def test_what_relieves_the_limiter_is_relevant() -> None:
    assert relevance(SWIZZLED, "smem and issue") == 0, "fewer wavefronts, more address arithmetic"
    assert relevance(Change("LAYOUT", "plain", "padded"), "smem and issue") == 1
    assert relevance(Change("LAYOUT", "padded", "plain"), "smem and issue") == -1
    assert relevance(Change("LAYOUT", "plain", "padded"), "dram") == 0


def test_a_failed_child_and_a_duplicate_give_lessons() -> None:
    failed = member(2, None, parents=(1,), changes=(WIDER, SWIZZLED))
    same = member(3, None, parents=(1,), changes=(WIDER, SWIZZLED), duplicate_of=2)
    run = history(member(1, 1000), failed, same)
    (wrong,) = lessons(run, failed, 0.03)
    assert (wrong.proof, wrong.before, wrong.after) == (Proof.REFUTED, {"est_cycles": 1000}, {})
    assert wrong.note == "INCORRECT_NUMERICAL: gate tight: 3 of 64 elements"
    (known,) = lessons(run, same, 0.03)
    assert known.proof is Proof.REFUTED and known.note.endswith("as that of candidate 2")
    assert lessons(run, run.start, 0.03) == (), "the start is compared with nothing"


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        (Budget(evaluations=2), "2 evaluations are used up"),
        (Budget(evaluations=9, seconds=30), "30 seconds are used up"),
        (Budget(evaluations=9, tokens=1500), "1500 tokens are used up"),
        (Budget(evaluations=9, money=0.01), "the budget of 0.01 in money is used up"),
        (Budget(evaluations=3, seconds=99, tokens=9999, money=1.0), ""),
    ],
)
def test_every_budget_stops_the_search(budget: Budget, why: str) -> None:
    run = history(
        member(1, 1000, seconds=10),
        member(2, 900, parents=(1,), seconds=20, spent=Spent(1000, 500, 5.0)),
        member(3, None, parents=(1,), duplicate_of=1),
    )
    settings = replace(SETTINGS, budget=budget, prices=Prices(3.0, 15.0, 0.0))
    assert spent(run, settings) == why
    # 1000 tokens at 3 and 500 at 15 per million.
    assert isclose(run.money(settings.prices), 0.0105)


def test_a_budget_of_nothing_is_refused() -> None:
    for wrong in ({"evaluations": 0}, {"seconds": -1.0}, {"money": 0.0}):
        with pytest.raises(UsageError, match="allows nothing"):
            Budget(**wrong)  # type: ignore[arg-type]


def test_settings_come_back_from_their_record() -> None:
    settings = Settings(seed=7, budget=Budget(5, 60.0, 1000, 2.5), prices=Prices(1.0, 2.0, 3.0), model="m")
    assert Settings.from_record(json.loads(json.dumps(settings.record()))) == settings
    older = {name: value for name, value in settings.record().items() if name != "final"}
    assert Settings.from_record(older) == settings
