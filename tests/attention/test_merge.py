"""The merge of partial results."""

import math
from itertools import pairwise

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array
from weft.attention.errors import ContractError
from weft.attention.merge import Partial, merge
from weft.attention.reference import attention
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")


def partial(q: Array, k: Array, v: Array) -> Partial:
    """Return the partial result of all given keys, by the definition."""
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    if not k.shape[2]:
        return Partial(np.zeros(q.shape), np.full(q.shape[:3], -np.inf), np.zeros(q.shape[:3]))
    m = scores.max(axis=-1)
    p = np.exp(scores - m[..., None])
    return Partial(p @ v, m, p.sum(axis=-1))


def test_by_hand() -> None:
    # Weights 1·2 and e^-ln2·4 = 2: o = (6 + 0.5·4)/(2 + 2) = 2, lse = ln 2 + ln 4 = ln 8.
    o, lse = merge(
        [
            Partial(np.array([6.0]), np.array(math.log(2)), np.array(2.0)),
            Partial(np.array([4.0]), np.array(0.0), np.array(4.0)),
        ]
    )
    assert o == pytest.approx([2.0])
    assert lse == pytest.approx(math.log(8))


@pytest.mark.parametrize("cuts", [(), (20,), (1, 64), (10, 10, 30, 60)])
def test_any_split_equals_none(cuts: tuple[int, ...]) -> None:
    q, k, v = (x.astype(np.float64) for x in regimes.make("logits_16", SHAPES["ragged"], "f32", 0))
    edges = (0, *cuts, 77)
    parts = [partial(q, k[:, :, a:b], v[:, :, a:b]) for a, b in pairwise(edges)]
    o, lse = merge(parts)
    expected = attention(q, k, v)
    assert np.allclose(o, expected.o, rtol=0, atol=1e-13)
    assert np.allclose(lse, expected.lse, rtol=0, atol=1e-13)


def test_only_empty_splits() -> None:
    empty = Partial(np.zeros((2, 4), np.float32), np.full(2, -np.inf, np.float32), np.zeros(2, np.float32))
    o, lse = merge([empty, empty])
    assert not o.any() and np.isneginf(lse).all()
    assert o.dtype == lse.dtype == np.float32


def test_base_two_gives_the_natural_lse() -> None:
    # m = 3 as an exponent of 2 is 8, l = 2: the sum is 16.
    o, lse = merge([Partial(np.array([4.0]), np.array(3.0), np.array(2.0))], base=2)
    assert o == pytest.approx([2.0])
    assert lse == pytest.approx(math.log(16))


def test_nan_is_not_hidden() -> None:
    good = Partial(np.ones(1), np.array(0.0), np.array(1.0))
    assert np.isnan(merge([good, Partial(np.full(1, np.nan), np.array(-np.inf), np.array(0.0))]).o).all()
    assert np.isnan(merge([good, Partial(np.ones(1), np.array(np.nan), np.array(1.0))]).lse)


def test_misuse() -> None:
    with pytest.raises(ContractError, match="nothing to merge"):
        merge([])
    with pytest.raises(ContractError, match="do not fit"):
        merge([Partial(np.zeros((3, 4)), np.zeros(2), np.zeros(2))])
