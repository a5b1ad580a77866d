"""The rules for the kinds of values: small sums written out by hand."""

import numpy as np

from weft.attention.shapes import Shape
from weft.diagnose.algebra import Algebra
from weft.diagnose.capped_algebra import CappedAlgebra
from weft.diagnose.tags import MIXED, Flag, Kind, Sizes, Tags

SIZES = Sizes(Shape("two_heads", 1, 2, 2, 3, 5, 2))
"""Rows 0-2 are queries of head 0, 3-5 of head 1; keys 0-4 of head 0, 5-9 of head 1."""
ALGEBRA = Algebra(SIZES)


def _tag(kind: Kind, row: int = 0, col: int = 0) -> Tags:
    tag = np.zeros(1, SIZES.dtype())
    tag["kind"], tag["row"], tag["col"] = kind, row, col
    return tag


def _score(row: int, key: int) -> Tags:
    terms = [ALGEBRA.product(_tag(Kind.Q, row, d), _tag(Kind.K, key, d)) for d in (0, 1)]
    return ALGEBRA.total(terms[0], terms[1])


def _weight(row: int, key: int) -> Tags:
    maximum = ALGEBRA.largest(_tag(Kind.CONST), _score(row, key))
    return ALGEBRA.exponential(ALGEBRA.total(_score(row, key), maximum, minus=True))


def _is(tag: Tags, kind: Kind, row: int, col: int) -> bool:
    return (int(tag["kind"][0]), int(tag["row"][0]), int(tag["col"][0])) == (kind, row, col)


def test_q_times_k_is_a_score() -> None:
    score = _score(4, 7)
    assert _is(score, Kind.S, 4, 7)
    assert score["terms"][0].tolist() == [0b11] and score["flags"][0] == 0


def test_q_times_k_untransposed_is_flagged() -> None:
    a = ALGEBRA.product(_tag(Kind.Q, 0, 0), _tag(Kind.K, 0, 1))
    b = ALGEBRA.product(_tag(Kind.Q, 0, 1), _tag(Kind.K, 1, 1))
    total = ALGEBRA.total(a, b)
    assert _is(total, Kind.S, 0, MIXED)
    assert total["flags"][0] == Flag.INNER | Flag.KEYS


def test_a_query_of_one_head_and_a_key_of_another() -> None:
    assert _score(0, 7)["flags"][0] == Flag.HEAD


def test_a_weight_times_its_value_is_a_term_of_u() -> None:
    u = ALGEBRA.product(_weight(1, 3), _tag(Kind.V, 3, 1))
    assert _is(u, Kind.U, 1, 1)
    assert u["terms"][0].tolist() == [0b1000] and u["flags"][0] == 0
    assert ALGEBRA.product(_weight(1, 3), _tag(Kind.V, 2, 1))["flags"][0] == Flag.KEY


def test_a_key_summed_twice() -> None:
    once = ALGEBRA.total(_weight(1, 3), _weight(1, 4))
    assert int(once["kind"][0]) == Kind.L and once["terms"][0].tolist() == [0b11000]
    assert ALGEBRA.total(once, _weight(1, 4))["flags"][0] == Flag.REPEATED


def test_a_masked_score_stays_a_score() -> None:
    hidden = ALGEBRA.chosen(_score(1, 3), _tag(Kind.CONST), np.array([False]), np.array([1.0]))
    assert _is(hidden, Kind.S, 1, 3) and hidden["flags"][0] == Flag.MASKED


def test_the_tanh_of_a_score_stays_this_score() -> None:
    """tanh x = 1 - 2 / (exp(2 x) + 1), and 1 for large x; a score of another key is still a maximum."""
    capped, score, constant = CappedAlgebra(SIZES), _score(1, 3), _tag(Kind.CONST)
    power = capped.total(capped.exponential(capped.product(score, constant)), constant)
    tanh = capped.total(capped.product(capped.inverse(power), constant), constant)
    assert _is(tanh, Kind.S, 1, 3) and _is(capped.product(tanh, score), Kind.S, 1, 3)
    for large, flags in ((1.0, 0), (-np.inf, int(Flag.MASKED))):
        chosen = capped.chosen(tanh, constant, np.array([False]), np.array([large]))
        assert _is(chosen, Kind.S, 1, 3) and chosen["flags"][0] == flags
    assert _is(capped.largest(tanh, score), Kind.S, 1, 3)
    maximum = capped.largest(tanh, _score(1, 4))
    assert int(maximum["kind"][0]) == Kind.M
    assert int(capped.exponential(capped.total(tanh, maximum, minus=True))["kind"][0]) == Kind.P


def test_u_over_l_is_o_and_m_plus_log_l_is_lse() -> None:
    u = ALGEBRA.product(_weight(1, 3), _tag(Kind.V, 3, 1))
    l = ALGEBRA.total(_weight(1, 3), _weight(1, 4))
    assert _is(ALGEBRA.product(u, ALGEBRA.inverse(l)), Kind.O, 1, 1)
    maximum = ALGEBRA.largest(_score(1, 3), _score(1, 4))
    assert int(ALGEBRA.total(maximum, ALGEBRA.logarithm(l))["kind"][0]) == Kind.LSE


def test_a_pair_without_a_rule_is_not_guessed() -> None:
    assert int(ALGEBRA.product(_tag(Kind.Q), _tag(Kind.V))["kind"][0]) == Kind.MIX
