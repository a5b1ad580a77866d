"""How far each stage of a right kernel may be from the emulated one, due to rounding in another order."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import numpy as np

from weft.attention.dtypes import Array, epsilon, ulp
from weft.attention.emulate import Algorithm, emulate
from weft.attention.gates import ORDER_SHARE
from weft.attention.reference import default_scale
from weft.tasks.attention_problem import AttentionProblem

from .taps import Key

EPS = epsilon("f32")
SCORE_ROUNDINGS = 2.0
"""Tensor cores truncate where fp32 would round: up to twice its error."""
EXP_SHARE = 8 * EPS
"""The error of ex2.approx and of the product with log2(e) before it."""


class StageTolerance(Protocol):
    """The tolerances of the stages."""

    def of(self, stage: str, tile: int | None) -> Array:
        """Return the tolerance, an array that fits the stage."""


class Tolerance:
    """Per stage and tile, an array that fits the stage. A score is off by about sqrt(d) roundings of a term no larger
    than |q|·|k|; P by the same share, and by a step of its type; l and U by P's share and a rounding per key.
    """

    def __init__(self, problem: AttentionProblem, algorithm: Algorithm, expected: Mapping[Key, Array]) -> None:
        self.problem, self.algorithm, self.expected = problem, algorithm, expected

    def of(self, stage: str, tile: int | None) -> Array:
        """Return the tolerance of one stage; 0 where the expected value is infinite."""
        wanted = self.expected[stage, tile].astype(np.float64)
        magnitude = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
        if stage in ("q", "k", "v"):
            # Codes may be decoded in another order: one rounding, of the operands' type where it is a short one.
            return magnitude * max(self._step(self.algorithm.operand_dtype), 4 * EPS)
        if stage == "products":
            return magnitude * 4 * EPS + self.score[..., None] / self.factor
        if stage in ("scores", "masked"):
            return magnitude * 4 * EPS + self.score[..., None]
        if stage == "m":
            return magnitude * 4 * EPS + self.score
        if stage == "p":
            return magnitude * self.share[..., None] + 1e-30 + self._least_p()
        if stage == "l":
            return magnitude * (self.share + self._keys(tile) * EPS) + 1e-30
        if stage == "u":
            total = self.expected["l", tile].astype(np.float64) * (self.share + self._keys(tile) * EPS)
            return np.asarray(total[..., None] * self.v_max[:, :, None, :] + 1e-30)
        slack = ORDER_SHARE + self.allowance
        if stage == "lse":
            return np.asarray(slack + ORDER_SHARE * magnitude)
        return np.asarray(ulp(wanted, self.algorithm.out_dtype) + slack[..., None] * self.v_max[:, :, None, :])

    @cached_property
    def factor(self) -> float:
        """The factor from products to scores."""
        base = 1.0 if self.algorithm.exp_base == math.e else math.log2(math.e)
        return default_scale(self.problem.workload.shape.d) * base

    @cached_property
    def score(self) -> Array:
        """(b, hq, sq): how far a score may be off."""
        norm_q, norm_k = (np.linalg.norm(x.astype(np.float64), axis=-1) for x in (self.problem.q, self.problem.k))
        longest = np.repeat(norm_k.max(axis=-1), self.problem.workload.shape.group, axis=1)[..., None]
        size = norm_q * longest * self.factor
        rounded = size * math.sqrt(self.problem.workload.shape.d) * EPS * SCORE_ROUNDINGS + 1e-30
        logits = self.problem.logits
        if logits.plain:
            return np.asarray(rounded)
        # The largest logit of a row bounds what tanh and the bias add in errors.
        short = self.problem.workload.dtype != "f32"
        return np.asarray(
            rounded + logits.spread(self.problem.gold.lse, short=short) / math.log(self.algorithm.exp_base)
        )

    @cached_property
    def share(self) -> Array:
        """(b, hq, sq): how far P may be off, as a share of itself; it depends on a score and on the maximum."""
        steps = self._step(self.algorithm.p_dtype)
        return np.asarray(2 * self.score * math.log(self.algorithm.exp_base) + EXP_SHARE + steps)

    @cached_property
    def v_max(self) -> Array:
        """(b, hq, d): the largest |V| of each column."""
        largest = np.abs(self.problem.v.astype(np.float64)).max(axis=2)
        return np.repeat(largest, self.problem.workload.shape.group, axis=1)

    @cached_property
    def allowance(self) -> Array:
        """(b, hq, sq): the judge's allowance."""
        problem = self.problem
        with np.errstate(over="ignore", invalid="ignore"):
            return emulate(
                self.algorithm, problem.q, problem.k, problem.v, mask=problem.mask, logits=problem.logits
            ).allowance

    def _step(self, dtype: str) -> float:
        return 0.0 if dtype == "f32" else epsilon(dtype)

    def _least_p(self) -> float:
        """The spacing of a short type's smallest values."""
        return float(ulp(np.zeros(1), self.algorithm.p_dtype)[0])

    def _keys(self, tile: int | None) -> int:
        return ((tile or 0) + 1) * self.algorithm.block_n
