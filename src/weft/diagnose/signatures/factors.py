"""Uniform factors: which stage is multiplied by which factor, and the quantity of that size; and wrong forms of LSE."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.reference import default_scale, softmax
from weft.core.records import Place
from weft.diagnose.divergence import first_index
from weft.diagnose.origins import body, factor_line, is_at
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Divergence, Signature
from weft.diagnose.start_lines import definition_line
from weft.diagnose.tags import Kind

from .evidence import EXPLAINED, Output, best, may_be, output_of, rank_of, remaining
from .lines import acts, dead_mask, first_line, line_of

SAME = 0.005
"""Two factors are the same within this share."""
NOTHING = 0.003
"""A factor this close to 1 counts as 1."""
FEW = 4
"""Fewer elements than this may be multiples of the right ones by coincidence."""
STRAY = 0.02
"""Numbers are multiples of the right ones if no more than this share of them is left."""
SCORES = ("q", "k", "products", "scores", "masked")
MOST_ROWS = 32
"""Rows of a head that are used to fit a factor."""

SUM_ONCE = "sum the same P that is multiplied with V"
SCALED = "check the factors with which l is rescaled or parts of it are merged"
SCALE_ONCE = "scale the scores once: in Q, in K or in the exponent, not in two of them"


def score_factor(case: Case) -> Signature | None:
    """All scores are wrong by one factor: the softmax scale is applied twice, or missing; the base is another."""
    if (case.attention is None and case.recipe is None) or case.verdict.passed:
        return None
    d = case.problem.workload.shape.d
    seen = _seen_factor(case)
    if seen is not None:
        factor, count, left = seen
        stage = case.divergence.name if case.divergence else "scores"
        where = "everywhere" if count > 1 else "in its only element"
        words = f"{stage}: {factor:.4g} times the right value {where}"
        found = _named(words, factor, d, (0.97, left), few=count < FEW)
        return _at_the_scale(case, found, d)
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, *SCORES):
        return None
    fitted, left = fitted_factor(out)
    if fitted is None or left > EXPLAINED:
        return None
    words = f"O matches scores multiplied by {fitted:.4g}"
    return _at_the_scale(case, _named(words, fitted, d, (rank_of(left), left)), d)


def _at_the_scale(case: Case, found: Signature | None, d: int) -> Signature | None:
    """Add the first line that applies the scale, if it is applied twice; for other factors, the line that computes one
    with which no right kernel multiplies scores.
    """
    if found is None or found.name == "scale_missing":
        return found
    scale, log2_e = default_scale(d), math.log2(math.e)
    if found.name == "scale_twice":
        first = case.divergence
        decoded = (
            first.site.place if first is not None and first.stage in ("q", "k") and first.site is not None else None
        )
        if (where := definition_line(decoded, "scale")) is not None:
            return replace(found, place=where)
        return replace(found, place=times(case, Kind.S, scale, scale * log2_e))
    for act in acts(case, "multiply", Kind.CONST, Kind.S):
        if all(abs(act.factor / right - 1) > SAME for right in (scale, scale * log2_e, log2_e)):
            return replace(found, place=factor_line(case, act) or line_of(case, act))
    if found.name == "exponent_base":
        applied = times(case, Kind.S, scale, scale * log2_e)
        return replace(found, place=definition_line(applied, "scale") or applied)
    return found


def times(case: Case, kind: Kind, *factors: float) -> Place | None:
    """Return the first line that multiplies values of a kind by one of these constants."""
    for act in acts(case, "multiply", Kind.CONST, kind):
        if any(abs(act.factor / factor - 1) <= SAME for factor in factors):
            return line_of(case, act)
    return None


def _named(size: str, factor: float, d: int, evidence: tuple[float, float], *, few: bool = False) -> Signature | None:
    """Return the signature with the quantity of this size; without one, a factor in a few elements may be chance.

    `evidence` is the rank, and the share of the error that is left.
    """
    rank, left = evidence
    for name, value, what, cure in _score_quantities(d):
        if abs(factor / value - 1) <= (SAME / 5 if few else SAME):
            return Signature(name, f"{size}, which is {what}", cure, round(rank - 0.04 * few, 3), 1 - left)
    cure = "look for a constant that Q, K or the scores are multiplied with"
    message = f"{size}; no quantity of the problem has that size"
    return None if few else Signature("score_factor", message, cure, round(rank - 0.1, 3), 1 - left)


def _score_quantities(d: int) -> Iterator[tuple[str, float, str, str]]:
    scale = default_scale(d)
    yield "scale_twice", scale, f"1/√D = {scale:.4g}: the softmax scale is applied twice", SCALE_ONCE
    yield "scale_missing", 1 / scale, f"√D = {1 / scale:.4g}: the softmax scale is missing", "multiply Q·Kᵀ by 1/√D"
    yield (
        "exponent_base",
        math.log(2),
        "ln 2 = 0.6931: exp2 is applied to scores in natural units",
        "fold log2(e) into the scale, or use exp",
    )
    yield (
        "exponent_base",
        math.log2(math.e),
        "log2(e) = 1.443: exp is applied to scores in units of log2",
        "use exp2, or leave log2(e) out of the scale",
    )
    yield (
        "score_factor",
        448.0,
        "448, the largest E4M3 number: the range of the codes is applied once too often",
        "decode with the step",
    )
    yield (
        "score_factor",
        1 / 448,
        "1/448: the range of the codes is missing",
        "decode with (u - 128) / 127 · 448 · scale",
    )
    for other in (16, 32, 64, 80, 96, 128, 256):
        ratio = default_scale(other) / scale
        yield "score_factor", ratio, f"√({d}/{other}): the softmax scale is that of D = {other}", f"use 1/√{d}"


def _seen_factor(case: Case) -> tuple[float, int, float] | None:
    """Return the common factor of the first wrong scores, or of what they are computed from; in how many elements; and
    the share of their error that it leaves.
    """
    first = case.divergence
    # A step that is wrong by a factor changes codes by its inverse: of the FP8 recipe only the scores are looked at.
    if first is None or first.stage not in (SCORES if case.recipe is None else SCORES[2:]):
        return None
    both = first.observed & np.isfinite(first.actual) & np.isfinite(first.expected)
    actual, expected = first.actual[both].astype(np.float64), first.expected[both].astype(np.float64)
    factor = common_factor(actual, expected, least=1)
    return None if factor is None else (factor, int(both.sum()), remaining(actual, factor * expected, expected))


def common_factor(actual: Array, expected: Array, *, least: int = FEW) -> float | None:
    """Return c with actual = c · expected everywhere; None if there is none, or it is 1 or 0."""
    energy = float((expected * expected).sum())
    if actual.size < least or energy == 0 or not np.isfinite(actual).all():
        return None
    factor = float((actual * expected).sum()) / energy
    size = float(np.linalg.norm(actual))
    stray = float(np.linalg.norm(actual - factor * expected))
    if size == 0 or stray > STRAY * size or abs(factor - 1) <= NOTHING or (stray > EXPLAINED * abs(factor - 1) * size):
        return None
    return factor


def fitted_factor(out: Output) -> tuple[float | None, float]:
    """Return the factor on the scores that explains O best, and the share of the error it leaves (golden section)."""
    rows = np.unique(np.linspace(0, out.o.shape[2] - 1, MOST_ROWS).astype(int))
    s, o, right, mask = out.scores()[:, :, rows], out.o[:, :, rows], out.right[:, :, rows], out.mask[rows]

    def left(power: float) -> float:
        return remaining(o, out.attend(s * 2.0**power, mask=mask), right)

    middle = min(np.arange(-6.5, 6.6, 0.5), key=left)
    low, high = float(middle) - 0.5, float(middle) + 0.5
    for _ in range(22):
        a, b = high - 0.618 * (high - low), low + 0.618 * (high - low)
        low, high = (low, b) if left(a) < left(b) else (a, high)
    power = (low + high) / 2
    if abs(power) >= 6.5 or abs(2.0**power - 1) <= NOTHING or left(power) > EXPLAINED:
        return None, 1.0
    return 2.0**power, out.left_over(out.attend(out.scores() * 2.0**power))


def output_factor(case: Case) -> Signature | None:
    """O is the right O times one number, the same in every head."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "v", "l", "u"):
        return None
    heads = np.asarray(out.wrong.any(axis=(2, 3)))
    factor = common_factor(out.o[heads], out.right[heads])
    if factor is None:
        return None
    if case.divergence is not None and case.divergence.stage == "l":
        return None  # `l_too_large` reports it with l's own numbers
    left = out.left_over(np.where(heads[..., None, None], factor, 1.0) * out.right)
    d = out.o.shape[3]
    where = "everywhere" if heads.all() else f"in heads {ranges(map(int, np.flatnonzero(heads.ravel())))}"
    named = {
        1 / math.sqrt(d): "1/√D, the softmax scale, which belongs to the scores",
        math.sqrt(d): "√D: the inverse of the softmax scale",
        448.0: "448, the largest E4M3 number: V's range is applied once too often",
        1 / 448: "1/448: V's range is missing",
        127 / 128: "127/128: 128 steps where the codes have 127",
        240 / 448: "240/448: the range of another E4M3",
        float(d): "D",
        -1.0: "-1: the sign is inverted",
    }
    equal = next((words for value, words in named.items() if abs(factor / value - 1) <= SAME), "")
    by_l = _shift_of_lse(case, out)
    if by_l is not None and abs(by_l * factor - 1) <= 2 * SAME and not equal:
        message = f"O is {factor:.4g} times the right O {where}, and LSE shows that l is {by_l:.4g} times too large"
        return Signature("l_too_large", message, SUM_ONCE, rank_of(left), 1 - left, stage="l")
    message = f"O is {factor:.4g} times the right O {where}" + (f", which is {equal}" if equal else "")
    cure = "look for a factor of O, U, V or 1/l" if not equal else "remove the factor, or apply it where it belongs"
    if not equal and 0 < factor < 1 and by_l is None:
        message += f"; this would follow from an l that is {1 / factor:.4g} times too large"
        return Signature("l_too_large", message, SUM_ONCE, round(rank_of(left) - 0.15, 3), 1 - left)
    rank = rank_of(left) if equal else round(rank_of(left) - 0.1, 3)
    return Signature("output_factor", message, cure, rank, 1 - left)


def _shift_of_lse(case: Case, out: Output) -> float | None:
    """Return exp of the common shift of LSE; None without an LSE."""
    lse = case.arrays.get("lse")
    if lse is None or lse.shape != out.problem.gold.lse.shape:
        return None
    with np.errstate(invalid="ignore"):
        shift = lse.astype(np.float64) - out.problem.gold.lse
    shift = shift[np.isfinite(out.problem.gold.lse)]
    if not shift.size or not np.isfinite(shift).all() or np.ptp(shift) > 0.01:
        return 1.0
    return float(math.exp(shift.mean()))


def l_too_large(case: Case) -> Signature | None:
    """l was observed and differs while everything before it is right."""
    first = case.divergence
    if first is None or first.stage != "l":
        return None
    both = first.observed & np.isfinite(first.actual) & (first.expected > 0)
    if not (both & first.wrong).any():
        return None
    actual, expected = first.actual[both].astype(np.float64), first.expected[both].astype(np.float64)
    ratio = actual / expected
    factor = common_factor(actual, expected, least=1)
    if factor is not None:
        message = (
            f"{first.name} is {factor:.4g} times the right value everywhere, so O is {1 / factor:.4g} times the right O"
        )
        name = "l_too_large" if factor > 1 else "l_too_small"
        # After right tiles, the line that adds weights is right: the sum is wrong where it is scaled or merged.
        later = bool(first.tile)
        place = times(case, Kind.P, factor) or (None if later else first_line(case, "add", Kind.P))
        left = remaining(actual, factor * expected, expected)
        return Signature(name, message, SCALED if later else SUM_ONCE, 0.96, 1 - left, place=place)
    beyond = _keys_beyond_the_end(case)
    if beyond is not None:
        message = (
            f"{first.name} is {ratio.min():.4g} to {ratio.max():.4g} times the right value: {beyond} keys beyond the "
            "end, with score 0, are included in the sum"
        )
        cure, place, stage = _cure_of_keys_beyond(case, first, beyond)
        return Signature("l_too_large", message, cure, 0.96, place=place, stage=stage)
    wrong = ratio[first.wrong[both]]
    if (wrong > 1).mean() > 0.95:
        rows = ranges(int(i) for i in np.unique(np.nonzero(first.wrong)[2]))
        message = f"{first.name} is {wrong.min():.4g} to {wrong.max():.4g} times the right value in rows {rows}"
        return Signature("l_too_large", message, "sum each weight once, and rescale l by exp(m_old - m_new)", 0.6)
    return None


def _cure_of_keys_beyond(case: Case, first: Divergence, beyond: int) -> tuple[str, Place | None, str]:
    """Return what to do, where, and the wrong stage: a mask is wide, is missing, or is not in what is summed."""
    mask = first_line(case, "mask", Kind.S)
    if mask is not None and beyond < _after_the_end(case):
        return "end the mask at the last key", mask, "masked"
    taps = case.taps
    scores = taps.at("scores", first.tile) if taps is not None else None
    if mask is None and taps is not None and scores is not None and first_line(case, "add", Kind.P) is not None:
        made = taps.maker(scores, first_index(scores.observed))
        mask = dead_mask(made.place) if made is not None else None
        if mask is not None and _chooses(case, mask) and beyond < _after_the_end(case):
            return "end the mask at the last key", mask, "masked"
        if mask is not None and not _chooses(case, mask):
            return "mask the scores of keys beyond the end with -inf", mask, "masked"
    return "sum the masked P: keys beyond the end have weight 0", first_line(case, "add", Kind.P), "l"


def _chooses(case: Case, place: Place) -> bool:
    """Whether the compiled kernel chooses between values on a line."""
    every = (ins for function in case.functions for ins in body(function) if is_at(ins, place))
    return any(
        ins.facts.computes == "select" or (ins.facts.control == "jump" and ins.guard is not None) for ins in every
    )


def l_lacks_keys(case: Case) -> Signature | None:
    """O is divided by an l that holds only some of the keys in U: the sums of lanes or warps were not all added."""
    facts = case.taps.facts if case.taps is not None else ()
    fact = next((fact for fact in facts if fact.code == "few_keys_in_l"), None)
    first = case.divergence
    if fact is None or case.verdict.passed or (first is not None and first.stage not in ("l", "o", "lse")):
        return None
    cure = "add the sums of all lanes and warps that share a row before O is divided by l"
    return Signature("l_too_small", fact.message, cure, 0.97, place=fact.place, stage="l")


def _keys_beyond_the_end(case: Case) -> int | None:
    """Return how many keys of score 0 explain the excess of l, if they fit into the last tile."""
    first, algorithm = case.divergence, case.algorithm
    if first is None or algorithm is None or case.attention is None:
        return None
    m = case.expected.get(("m", first.tile))
    short = _after_the_end(case)
    if m is None or not short:
        return None
    use = first.observed & np.isfinite(m)
    if not use.any():
        return None
    excess = first.actual[use].astype(np.float64) - first.expected[use]
    counts = excess * algorithm.exp_base ** m[use].astype(np.float64)
    count = round(float(np.median(counts)))
    return count if 0 < count <= short and np.abs(counts / count - 1).max() < 0.02 else None


def _after_the_end(case: Case) -> int:
    """Return the keys of the last tile that do not exist."""
    if case.attention is None or case.algorithm is None:
        return 0
    return int(-case.attention.k.shape[2] % case.algorithm.block_n)


def lse_form(case: Case) -> Signature | None:
    """LSE differs from the contract's by a base, a scale or a term."""
    problem, lse = case.attention, case.arrays.get("lse")
    if problem is None or lse is None or case.verdict.passed or lse.shape != problem.gold.lse.shape:
        return None
    if case.divergence is not None and case.divergence.stage != "lse":
        return None  # a wrong LSE follows from a stage before it
    right, found = problem.gold.lse, lse.astype(np.float64)
    some = np.isfinite(right)
    if not some.any() or not np.isfinite(found[some]).all():
        return None
    if output_of(case) is not None or (np.abs(found[some] - right[some]) <= 1e-3 * (1 + np.abs(right[some]))).all():
        return None
    group, d = problem.workload.shape.group, problem.q.shape[3]
    k = np.repeat(problem.k.astype(np.float64), group, axis=1)
    s = problem.q.astype(np.float64) @ k.swapaxes(2, 3)
    masked = np.where(problem.mask, s / math.sqrt(d), -np.inf)
    m = masked.max(axis=3)
    forms = {
        "in base 2, not in natural units": right / math.log(2),
        "computed from scores without the softmax scale": softmax(np.where(problem.mask, s, -np.inf))[1],
        "without the maximum: log l alone": right - m,
        "the maximum alone, without log l": m,
        "multiplied by the softmax scale": right / math.sqrt(d),
        "negated": -right,
        "l itself, without log and maximum": np.exp(right - m),
    }
    explained = best((remaining(found[some], form[some], right[some]), words) for words, form in forms.items())
    if explained is None:
        return None
    cure = "LSE = m + log l in natural units, of the scaled scores; -inf where no key is visible"
    left, form = explained
    return Signature("lse_form", f"LSE is {form}", cure, rank_of(left) - 0.05, 1 - left, stage="lse")
