"""How kinds combine: Q · K is a term of a score, a score minus a maximum is an exponent, P · V is a term of U.

Every rule takes and returns tags of n lanes. A pair without a rule gives MIX: the kind of a value is never guessed.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from .nodes import Numbers
from .tags import MIXED, NONE, PASSING, Flag, Kind, Sizes, Tags, among, full

Rule = Callable[["Algebra", Tags, Tags], Tags]
_BASE = 32


class Algebra:
    """The rules, for one problem's sizes."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def product(self, a: Tags, b: Tags) -> Tags:
        """Return the tags of a · b."""
        return self.by_pair(a, b, PRODUCTS)

    def total(self, a: Tags, b: Tags, *, minus: bool = False) -> Tags:
        """Return the tags of a + b, or a - b."""
        return self.by_pair(a, b, DIFFERENCES if minus else SUMS)

    def largest(self, a: Tags, b: Tags) -> Tags:
        """Return the tags of max(a, b)."""
        return self.by_pair(a, b, MAXIMA)

    def clamped(self, a: Tags, b: Tags) -> Tags:
        """Return the tags of min(a, b)."""
        return self.by_pair(a, b, MINIMA)

    def chosen(self, a: Tags, b: Tags, first: npt.NDArray[np.bool_], values: Numbers) -> Tags:
        """Return the tags of `first ? a : b`; `values` are the result's. A score replaced by a constant stays a score:
        that is a mask.
        """
        out = np.where(first, a, b)
        for one, other, taken in ((a, b, ~first), (b, a, first)):
            replaced = taken & (one["kind"] == Kind.S) & (other["kind"] == Kind.CONST)
            out[replaced] = one[replaced]
            out["flags"][replaced & self.is_mask(values)] |= Flag.MASKED
        compared = among(a["kind"], Kind.S, Kind.M) & among(b["kind"], Kind.S, Kind.M)
        if compared.any():  # `s > m ? s : m`
            out[compared] = self.largest(a[compared], b[compared])
        return out

    def exponential(self, a: Tags) -> Tags:
        """Return the tags of 2 to the power of a."""
        out = as_kind(a, Kind.MIX)
        weight = ((a["kind"] == Kind.X) & (a["col"] != NONE)) | (a["kind"] == Kind.S)
        rescale = ((a["kind"] == Kind.X) & (a["col"] == NONE)) | (a["kind"] == Kind.M)
        out["kind"][weight], out["kind"][rescale] = Kind.P, Kind.R
        out["flags"] &= ~np.int64(PASSING)
        return out

    def inverse(self, a: Tags) -> Tags:
        """Return the tags of 1 / a; the source of an inverse l is that l."""
        swap = {Kind.L: Kind.INVERSE_L, Kind.INVERSE_L: Kind.L, Kind.R: Kind.R, Kind.CONST: Kind.CONST}
        out = _mapped(a, swap)
        inverse = out["kind"] == Kind.INVERSE_L
        out["source"][inverse] = a["node"][inverse]
        return out

    def logarithm(self, a: Tags) -> Tags:
        """Return the tags of log2 a."""
        return _mapped(a, {Kind.L: Kind.LOG_L, Kind.CONST: Kind.CONST})

    def function(self, a: Tags) -> Tags:
        """Return the tags of another function of a."""
        return as_kind(a, Kind.MIX)

    def is_mask(self, values: Numbers) -> npt.NDArray[np.bool_]:
        """Return which constants mask the score that they replace."""
        return np.ones(values.shape, bool)

    def by_pair(self, a: Tags, b: Tags, rules: Mapping[int, Rule]) -> Tags:
        """Return the result of each lane's rule."""
        pairs = a["kind"].astype(np.int64) * _BASE + b["kind"]
        first = int(pairs[0])
        if (pairs == first).all():
            return rules.get(first, _unknown)(self, a, b)
        out = np.zeros_like(a)
        for pair in np.unique(pairs):
            lanes = pairs == pair
            out[lanes] = rules.get(int(pair), _unknown)(self, a[lanes], b[lanes])
        return out


def as_kind(a: Tags, kind: Kind) -> Tags:
    """Return the tags with another kind."""
    out = a.copy()
    out["kind"] = kind
    return out


def _mapped(a: Tags, kinds: Mapping[Kind, Kind]) -> Tags:
    out = as_kind(a, Kind.MIX)
    for old, new in kinds.items():
        out["kind"][a["kind"] == old] = new
    return out


def _unknown(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    out = as_kind(a, Kind.MIX)
    out["flags"] |= b["flags"]
    out["row"], out["col"], out["terms"] = MIXED, MIXED, 0
    return out


def _first(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    return a.copy()


def _second(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    return b.copy()


def into(kind: Kind, *, flag: int = 0) -> Rule:
    """Return a rule: a with b's flags, as `kind`; rows must agree."""

    def rule(algebra: Algebra, a: Tags, b: Tags) -> Tags:
        out = as_kind(a, kind)
        out["flags"] |= b["flags"] | np.int64(flag)
        require_same(out, a, b, "row", Flag.ROWS)
        return out

    return rule


def require_same(out: Tags, a: Tags, b: Tags, field: str, flag: Flag) -> None:
    """Clear `field` and set `flag` in the result where a and b differ in `field`."""
    differ = (a[field] != b[field]) & (a[field] != NONE) & (b[field] != NONE)
    if differ.any():
        out[field][differ] = MIXED
        out["flags"][differ] |= flag


def _element(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    """Combine two values of the same input: the same element stays it, other sums have no meaning here."""
    out = into(Kind(int(a["kind"][0])))(algebra, a, b)
    out["flags"] = a["flags"] | b["flags"]
    out["col"][a["col"] != b["col"]] = MIXED
    return out


def _term_of_score(algebra: Algebra, q: Tags, k: Tags) -> Tags:
    out = as_kind(q, Kind.S)
    out["flags"] |= k["flags"]
    out["col"] = k["row"]
    out["flags"][(q["col"] != k["col"]) | (q["col"] < 0)] |= Flag.INNER
    out["flags"][algebra.sizes.other_head(q["row"], k["row"])] |= Flag.HEAD
    out["terms"] = algebra.sizes.bit(q["col"])
    return out


def _term_of_u(algebra: Algebra, v: Tags, p: Tags) -> Tags:
    out = as_kind(p, Kind.U)
    out["flags"] |= v["flags"]
    out["flags"] &= ~np.int64(PASSING)
    out["flags"][(p["col"] >= 0) & (p["col"] != v["row"])] |= Flag.KEY
    out["flags"][algebra.sizes.other_head(p["row"], v["row"])] |= Flag.HEAD
    out["flags"][p["kind"] == Kind.S] |= Flag.UNWEIGHTED
    out["col"], out["source"] = v["col"], 0
    out["terms"] = algebra.sizes.key_bit(v["row"])
    return out


def _scores(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    out = into(Kind.S)(algebra, a, b)
    require_same(out, a, b, "col", Flag.KEYS)
    out["terms"] |= b["terms"]
    whole = full(a["terms"], algebra.sizes.shape.d) & full(b["terms"], algebra.sizes.shape.d)
    negated = whole & (a["col"] != b["col"])  # a score plus the negative of another: the other is a maximum
    if negated.any():
        out[negated] = exponent_of(algebra, a[negated], b[negated])
    return out


def exponent_of(algebra: Algebra, s: Tags, m: Tags) -> Tags:
    """Return the tags of a score minus what is subtracted from all scores of its row."""
    out = into(Kind.X)(algebra, s, m)
    out["flags"] &= ~np.int64(Flag.MASKED)
    out["terms"], out["factor"] = m["terms"], 1.0
    return out


def _rescale_exponent(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    out = into(Kind.X)(algebra, a, b)
    out["col"], out["source"] = NONE, 0
    return out


def _minus_maximum(algebra: Algebra, a: Tags, m: Tags) -> Tags:
    out = as_kind(m, Kind.X)
    out["col"], out["source"] = NONE, 0
    return out


def _exponents(algebra: Algebra, a: Tags, b: Tags) -> Tags:
    out = into(Kind.X)(algebra, a, b)
    without = a["col"] == NONE
    out["col"][without], out["source"][without] = b["col"][without], b["source"][without]
    # An accurate exponential splits x · log2(e) into parts and adds what their rounding lost.
    out["factor"] = np.maximum(np.abs(a["factor"]), np.abs(b["factor"]))
    return out


def _keyed(algebra: Algebra, a: Tags) -> npt.NDArray[np.uint64]:
    """Return the keys of a weight (one key) or of a sum."""
    return algebra.sizes.key_bit(a["col"]) if a["kind"][0] in (Kind.P, Kind.S) else np.asarray(a["terms"])


def _gather(kind: Kind) -> Rule:
    """Return a rule for sums and maxima over keys."""

    def rule(algebra: Algebra, a: Tags, b: Tags) -> Tags:
        out = into(kind)(algebra, a, b)
        out["flags"] &= ~np.int64(PASSING)
        one, other = _keyed(algebra, a), _keyed(algebra, b)
        if kind in (Kind.U, Kind.O):
            require_same(out, a, b, "col", Flag.COLUMNS)
        else:
            out["col"], out["source"] = NONE, 0
        if kind != Kind.M:
            out["flags"][(one & other).any(axis=-1)] |= Flag.REPEATED
        out["terms"] = one | other
        return out

    return rule


def _start_of_l(algebra: Algebra, p: Tags, r: Tags) -> Tags:
    out = into(Kind.L)(algebra, p, r)
    out["terms"] = algebra.sizes.key_bit(p["col"])
    out["col"], out["source"] = NONE, 0
    return out


def _start_of_m(algebra: Algebra, a: Tags, s: Tags) -> Tags:
    out = as_kind(s, Kind.M)
    out["flags"] &= ~np.int64(PASSING)
    out["terms"] = algebra.sizes.key_bit(s["col"])
    out["col"], out["source"] = NONE, 0
    return out


def table_of(rules: Mapping[tuple[Kind, Kind], Rule]) -> dict[int, Rule]:
    """Return the table with both orders of every pair; a constant does not change the other; MIX stays MIX."""
    table: dict[int, Rule] = {}
    for kind in Kind:
        table[_BASE * kind] = _first
        table[kind] = _second
    for (a, b), rule in rules.items():
        table[_BASE * b + a] = _swapped(rule)
        table[_BASE * a + b] = rule
    return table


def _swapped(rule: Rule) -> Rule:
    return lambda algebra, a, b: rule(algebra, b, a)


K = Kind
PRODUCTS = table_of(
    {
        (K.Q, K.K): _term_of_score,
        **{(kind, kind): _element for kind in (K.Q, K.K, K.V)},
        **{(K.V, kind): _term_of_u for kind in (K.P, K.R, K.S)},
        (K.S, K.S): into(K.S),
        **{(K.P, kind): into(K.P) for kind in (K.S, K.M, K.X, K.P, K.R, K.INVERSE_L)},
        (K.X, K.X): into(K.X),
        **{(K.R, kind): into(K.R) for kind in (K.M, K.X, K.R)},
        **{(K.L, kind): into(K.L) for kind in (K.R, K.P, K.L)},
        (K.INVERSE_L, K.R): into(K.INVERSE_L),
        **{(K.U, kind): into(K.U) for kind in (K.R, K.P)},
        (K.U, K.L): into(K.U, flag=Flag.TIMES_L),
        (K.L, K.INVERSE_L): into(K.R),
        (K.U, K.INVERSE_L): into(K.O),
        **{(K.O, kind): into(K.U) for kind in (K.R, K.L)},
        **{(K.LOG_L, kind): into(K.LOG_L) for kind in (K.L, K.LOG_L)},
    }
)
SUMS = table_of(
    {
        **{(kind, kind): _element for kind in (K.Q, K.K, K.V)},
        # A constant times K, V or a rescale in a sum is a zero of padding or the starting value.
        **{(K.S, kind): _first for kind in (K.Q, K.K)},
        **{(K.U, kind): _first for kind in (K.V, K.R)},
        (K.S, K.S): _scores,
        (K.S, K.M): exponent_of,
        (K.M, K.M): _rescale_exponent,
        **{(K.X, kind): into(K.X) for kind in (K.S, K.M)},
        (K.X, K.X): _exponents,
        (K.P, K.P): _gather(K.L),
        (K.P, K.R): _start_of_l,
        (K.L, K.P): _gather(K.L),
        (K.L, K.L): _gather(K.L),
        (K.L, K.R): _first,
        (K.R, K.R): into(K.R),
        (K.U, K.U): _gather(K.U),
        (K.O, K.O): _gather(K.O),
        **{(K.LOG_L, kind): into(K.LOG_L) for kind in (K.L, K.LOG_L)},
        **{(K.M, kind): into(K.LSE) for kind in (K.L, K.LOG_L)},
        (K.LSE, K.LSE): into(K.LSE),
    }
)
DIFFERENCES = {
    **SUMS,
    _BASE * K.S + K.S: exponent_of,
    _BASE * K.CONST + K.M: _minus_maximum,
}
MAXIMA = table_of(
    {
        (K.CONST, K.S): _start_of_m,
        **{(K.S, kind): _gather(K.M) for kind in (K.S, K.M)},
        (K.M, K.M): _gather(K.M),
        **{(kind, kind): into(kind) for kind in (K.X, K.P, K.R, K.L, K.U)},
    }
)
MINIMA = table_of({(a, b): _gather(K.M) for a, b in ((K.S, K.S), (K.S, K.M), (K.M, K.M))})
"""A kernel that takes the least of the scores has a wrong maximum, which is compared as such."""
