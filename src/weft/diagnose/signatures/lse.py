"""LSE in another form, beside a right O."""

import math

import numpy as np

from weft.attention.reference import softmax
from weft.diagnose.records import Case, Signature

from .evidence import best, output_of, rank_of, remaining


def lse_form(case: Case) -> Signature | None:
    """LSE is the contract's but for a base, a scale or a term."""
    problem, lse = case.attention, case.arrays.get("lse")
    if problem is None or lse is None or case.verdict.passed or lse.shape != problem.gold.lse.shape:
        return None
    if case.divergence is not None and case.divergence.stage != "lse":
        return None  # a wrong LSE is what a stage before it leaves
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
        "in powers of two, not natural": right / math.log(2),
        "of scores without the softmax scale": softmax(np.where(problem.mask, s, -np.inf))[1],
        "without the maximum: log l alone": right - m,
        "the maximum alone, without log l": m,
        "multiplied by the softmax scale": right / math.sqrt(d),
        "negated": -right,
        "l itself, without log and maximum": np.exp(right - m),
    }
    explained = best((remaining(found[some], form[some], right[some]), words) for words, form in forms.items())
    if explained is None:
        return None
    cure = "LSE = m + log l in natural units, of the scaled scores; -inf where no key is in sight"
    left, form = explained
    return Signature("lse_form", f"LSE is {form}", cure, rank_of(left) - 0.05, 1 - left, stage="lse")
