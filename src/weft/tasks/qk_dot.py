"""`qk_dot`: the scores S = Q·Kᵀ of 8-bit codes, times 1/√D where the kernel defines SCALED = 1."""

import math

from weft.attention.dtypes import epsilon, ulp
from weft.attention.gates import element_gate
from weft.attention.shapes import SHAPES
from weft.kernels.ladder import ENCODINGS

from .attention_problem import AttentionProblem
from .fp8_sdpa import FP8_SDPA
from .mutants.scores import RIGHT_SCORES, SCORE_MUTANTS
from .numpy_attention import scores
from .task import Axes, Declared, Judgement, Output, Outputs, Task, Workload, judgement


def draw(workload: Workload) -> AttentionProblem:
    """Return codes and scales of q and k."""
    problem = FP8_SDPA.draw(workload)
    assert isinstance(problem, AttentionProblem)
    arrays = {name: problem.arrays[name] for name in QK_DOT.inputs}
    return AttentionProblem(workload, arrays, problem.q, problem.k, problem.v)


def reference(problem: AttentionProblem) -> Outputs:
    """Return scaled scores in float64."""
    return {"s": scores(problem)}


def judge(problem: AttentionProblem, outputs: Outputs, declared: Declared) -> Judgement:
    """Check that errors are within an ulp plus what float32 sums of |q|·|k| lose in any order."""
    d = problem.workload.shape.d
    unscaled = declared.macros.get("SCALED", "1") == "0"
    factor = 1.0 if unscaled else 1 / math.sqrt(d)
    expected = scores(problem, scale=factor)
    sizes = scores(problem, q=abs(problem.q), k=abs(problem.k).repeat(problem.workload.shape.group, 1), scale=factor)
    limit = ulp(expected, "f32") + math.sqrt(d) * epsilon("f32") * sizes
    return judgement([element_gate("sum", outputs["s"], expected, limit)], outputs["s"], expected)


_MOST_SCORES = 2**17
"""A kernel for this task uses a warp for each score; larger shapes test nothing new."""
_SMALL = tuple(name for name, shape in SHAPES.items() if shape.b * shape.hq * shape.sq * shape.skv <= _MOST_SCORES)

QK_DOT = Task(
    name="qk_dot",
    what="S = Q·Kᵀ of 8-bit codes (sim_fp8 or e4m3), with or without 1/√D, in f32",
    inputs=("q_code", "k_code", "q_scale", "k_scale"),
    outputs=(Output("s", lambda shape: (shape.b, shape.hq, shape.sq, shape.skv)),),
    stages=("q", "k", "scores"),
    draw=draw,
    reference=reference,
    judge=judge,
    workloads=Axes(_SMALL, dtypes=("f32",), masks=("none",), encodings=ENCODINGS),
    quick=Axes(
        ("split_4", "ragged", "gqa_4_ragged", "d80", "gqa_4"),
        ("unit_normal", "v_offset", "outlier_channels"),
        dtypes=("f32",),
        masks=("none",),
        encodings=ENCODINGS,
    ),
    mutants=SCORE_MUTANTS,
    right=RIGHT_SCORES,
    certified_on=tuple(
        Workload(SHAPES[shape], "f32", "none", "unit_normal", seed, encoding)
        for shape, seed in (("gqa_4_ragged", 1), ("d32", 0), ("ragged", 2), ("gqa_4", 1))
        for encoding in ENCODINGS
    ),
)
