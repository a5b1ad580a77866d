"""A user's own task: P = softmax of the rows of a score matrix, in float32."""

from collections.abc import Callable

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.gates import element_gate
from weft.attention.reference import softmax
from weft.attention.regimes import make
from weft.attention.shapes import SHAPES
from weft.tasks.task import Axes, Declared, Judgement, Mutant, Output, Outputs, Problem, Task, Workload, judgement

EPS = 2.0**-23


def draw(workload: Workload) -> Problem:
    """Return a problem with the scores of the regime's q and k."""
    shape = workload.shape
    q, k, _ = make(workload.regime, shape, "f32", workload.seed)
    s = q.astype(np.float64) @ np.repeat(k, shape.group, axis=1).swapaxes(2, 3) / np.sqrt(shape.d)
    return Problem(workload, {"s": s.astype(np.float32)})


def reference(problem: Problem) -> Outputs:
    """Return the softmax in float64."""
    return {"p": softmax(problem.arrays["s"].astype(np.float64))[0]}


def judge(problem: Problem, outputs: Outputs, declared: Declared) -> Judgement:
    """Check each p within its roundings: s - m, 2 ulp of exp, a sum in any order, a division; denormals may flush."""
    s = problem.arrays["s"].astype(np.float64)
    expected = reference(problem)["p"]
    below_max = s.max(axis=-1, keepdims=True) - s
    limit = expected * EPS * (16 + below_max) + 2.0**-126
    return judgement([element_gate("softmax", outputs["p"], expected, limit)], outputs["p"], expected)


def rows(problem: Problem) -> Array:
    """Return the right answer, which mutants change."""
    return reference(problem)["p"]


def no_max(problem: Problem) -> Outputs:
    """exp overflows float32 where the maximum is not subtracted."""
    e = np.exp(problem.arrays["s"])
    return {"p": e / e.sum(axis=-1, keepdims=True)}


def in_halves(problem: Problem) -> Outputs:
    """Right: the sum of a row as two halves in float32."""
    s = problem.arrays["s"]
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    half = s.shape[-1] // 2
    total = e[..., :half].sum(axis=-1, keepdims=True) + e[..., half:].sum(axis=-1, keepdims=True)
    return {"p": e / total}


def spoiled(name: str, what: str, spoil: Callable[[Array], Array]) -> Mutant:
    """Return a mutant that changes the right answer."""
    return Mutant(name, what, lambda problem: {"p": spoil(rows(problem)).astype(np.float32)})


TASK = Task(
    name="softmax",
    what="P = softmax of each row of S (b, h, sq, skv), f32",
    inputs=("s",),
    outputs=(Output("p", lambda shape: (shape.b, shape.hq, shape.sq, shape.skv)),),
    stages=("m", "p", "l"),
    draw=draw,
    reference=reference,
    judge=judge,
    workloads=Axes(("small", "ragged", "few_keys", "few_queries", "one_token"), dtypes=("f32",), masks=("none",)),
    quick=Axes(("ragged", "few_queries"), ("unit_normal", "logits_32", "sorted_keys"), ("f32",), ("none",)),
    mutants=(
        Mutant("no_max", "the maximum is not subtracted", no_max),
        spoiled("zeros", "P is all zeros", lambda p: 0 * p),
        spoiled("nan", "P is all NaN", lambda p: np.nan * p),
        spoiled("uniform", "every key weighs the same", lambda p: np.full_like(p, 1 / p.shape[-1])),
        spoiled("not_normalised", "rows are not divided by their sum", lambda p: p / p.max(axis=-1, keepdims=True)),
        spoiled("columns", "the sum runs over columns", lambda p: p / p.sum(axis=-2, keepdims=True)),
        spoiled("last_column", "the last column is zero", lambda p: p * (np.arange(p.shape[-1]) < p.shape[-1] - 1)),
        spoiled("rows_shifted", "each row has the result of its neighbour", lambda p: np.roll(p, 1, axis=2)),
        spoiled("smaller", "P × 0.999", lambda p: 0.999 * p),
    ),
    right={"float64": lambda problem: {"p": rows(problem).astype(np.float32)}, "in_halves": in_halves},
    certified_on=tuple(
        Workload(SHAPES[shape], "f32", "none", regime, 0)
        for shape, regime in (("ragged", "unit_normal"), ("few_queries", "logits_32"), ("small", "sorted_keys"))
    ),
)
