"""Measures for recognisers: the output next to the right one, and how well a named mistake explains it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array, epsilon
from weft.attention.reference import default_scale, softmax
from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.diagnose.records import Case
from weft.diagnose.taps import TAPPED
from weft.tasks.attention_problem import AttentionProblem

RACES = ("R101", "R102", "R103", "R104", "R105", "R107", "R108", "R109")
Bools = npt.NDArray[np.bool_]

EXPLAINED = 0.1
"""A mistake explains an error if it leaves no more than this share of it."""
BEYOND_ROUNDING = 4
"""Roundings of a weight's type, summed as random errors over the keys, by which an element may be off."""


def errors(case: Case, *codes: str) -> list[Finding]:
    """Return the findings of these codes that reject the kernel."""
    return [finding for finding in case.findings if finding.code in codes and finding.level is Severity.ERROR]


def keys_in_sight(problem: AttentionProblem) -> Bools:
    """Return the keys (skv,) that any query of any sequence sees."""
    return np.asarray(problem.mask.reshape(-1, problem.mask.shape[-1]).any(axis=0))


@dataclass(frozen=True)
class Output:
    """The wrong O of a kernel with its inputs, in float64. K and V have one head per query head."""

    problem: AttentionProblem
    o: Array
    right: Array
    wrong: Bools
    q: Array
    k: Array
    v: Array
    mask: Bools
    scale: float

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.o).all())

    def scores(self, *, q: Array | None = None, k: Array | None = None) -> Array:
        """Return Q·Kᵀ·scale, not masked."""
        return np.asarray((self.q if q is None else q) @ (self.k if k is None else k).swapaxes(2, 3) * self.scale)

    def attend(self, s: Array, *, v: Array | None = None, mask: Bools | None = None) -> Array:
        """Return softmax(s)·V."""
        weights, _ = softmax(np.where(self.mask if mask is None else mask, s, -np.inf))
        return np.asarray(weights @ (self.v if v is None else v))

    def left_over(self, explained: Array) -> float:
        """Return the share of the error that remains if a mistake gives `explained`; infinite with NaN."""
        return remaining(self.o, explained, self.right)


def output_of(case: Case) -> Output | None:
    """Return the wrong O; None unless an attention kernel ran and O has the right shape and is wrong somewhere."""
    problem, o = case.attention, case.o
    if problem is None or o is None or o.shape != problem.q.shape or case.verdict.passed:
        return None
    found = o.astype(np.float64)
    right = problem.gold.o if case.algorithm is None else problem.emulated(case.algorithm).o.astype(np.float64)
    q, k, v = (x.astype(np.float64) for x in (problem.q, problem.k, problem.v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    weights, _ = softmax(np.where(problem.mask, q @ k.swapaxes(2, 3) * default_scale(q.shape[3]), -np.inf))
    step = epsilon(problem.workload.dtype)
    # O is rounded once; roundings of P, and of decoded inputs, add up as random errors.
    limit = step * (np.abs(right) + BEYOND_ROUNDING * np.sqrt(weights**2 @ v**2))
    limit += 2e-5 * np.maximum(np.abs(v).max(axis=2, keepdims=True), 1)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(found - right) <= limit)
    if not wrong.any():
        return None
    return Output(problem, found, right, wrong, q, k, v, problem.mask, default_scale(q.shape[3]))


def remaining(actual: Array, explained: Array, right: Array) -> float:
    """Return ‖actual - explained‖ / ‖actual - right‖; infinite if `explained` is mostly something else."""
    with np.errstate(invalid="ignore", over="ignore"):
        error, rest, size = (float(np.linalg.norm(x)) for x in (actual - right, actual - explained, explained))
    # Zeros are close to anything small: what explains them must be of their size.
    near = np.isfinite(rest) and np.isfinite(error) and error > 0 and rest <= size / 2
    return rest / error if near else float("inf")


def may_be(case: Case, *stages: str) -> bool:
    """Whether one of the stages may be the first wrong one: it diverges first, or was not seen to be right before."""
    first = case.divergence
    if first is None or first.stage in ("o", "lse", *stages):
        return True
    seen = case.taps.observed if case.taps is not None else ()
    return any(s not in seen and TAPPED.index(s) < TAPPED.index(first.stage) for s in stages)


def has_splits(case: Case) -> bool:
    """Whether keys are divided into splits that are merged afterwards, as far as the kernel declares it."""
    macros = case.candidate.declared.macros
    declared = case.algorithm is not None and case.algorithm.splits > 1
    return declared or macros.get("SPLITS", "1") != "1" or len(case.launches) > 1


def has_fact(case: Case, *codes: str) -> bool:
    """Whether the dataflow shows one of these facts."""
    return case.taps is not None and any(fact.code in codes for fact in case.taps.facts)


def best(candidates: Iterable[tuple[float, str]]) -> tuple[float, str] | None:
    """Return the (left over, words) that explains most, if it explains enough."""
    found = min(candidates, default=None)
    return found if found is not None and found[0] <= EXPLAINED else None


def rank_of(left: float, *, seen: bool = False) -> float:
    """Returns the rank of a mistake that leaves this share of the error unexplained: higher where the stage itself was
    seen. It orders signatures, and is no probability.
    """
    return round((0.97 if seen else 0.92) - min(left, EXPLAINED), 3)


def score_unit(case: Case) -> float:
    """Return the factor from Q·Kᵀ to scores in the divergence's unit."""
    d = case.attention.q.shape[3] if case.attention else 1
    base = case.algorithm.exp_base if case.algorithm else np.e
    return float(1 / np.sqrt(d) / np.log(base))
