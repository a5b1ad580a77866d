"""Judging a part of a large grid: some CTAs of a rung, and the rows of O that they must have written."""

import random
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.core.records import Dim3
from weft.engines.sample import Sample
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Outputs


@dataclass(frozen=True)
class Part:
    """CTAs that run, and the queries and heads that are theirs."""

    sample: Sample
    rows: Array
    heads: Array

    def outputs(self, outputs: Outputs) -> Outputs:
        """O (b, h, s, d) and LSE (b, h, s) of these rows."""
        return {name: np.ascontiguousarray(array[:, self.heads][:, :, self.rows]) for name, array in outputs.items()}


def choose_part(rows_per_cta: int, grid: Dim3, problem: AttentionProblem) -> Part:
    """At least eight CTAs: first, last, middle (a causal mask's diagonal) and random blocks of queries, in two heads.

    A rung's grid is (blocks of queries, query heads, …), which tests/ladder holds.
    """
    shape, seed = problem.workload.shape, problem.workload.seed
    width, height = grid[:2]
    others = random.Random(f"{problem.workload.regime} {seed}")
    xs = {0, width - 1, width // 2, max(width // 2 - 1, 0), others.randrange(width)}
    ys = {0, height - 1, others.randrange(height)}
    rows = np.concatenate([np.arange(x * rows_per_cta, min((x + 1) * rows_per_cta, shape.sq)) for x in sorted(xs)])
    positions = tuple((x, y) for y in sorted(ys) for x in sorted(xs))
    return Part(Sample(positions), rows, np.array(sorted(ys)))
