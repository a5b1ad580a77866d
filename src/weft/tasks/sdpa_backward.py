"""`sdpa_backward`: dQ, dK and dV of attention, from Q, K, V, O, LSE and dO."""

from functools import partial

from weft.attention.backward import STAGES
from weft.attention.contract import DENSE
from weft.attention.shapes import SHAPES

from .backward_problem import GRADIENTS, backward_reference, draw_backward, judge_backward
from .mutants.backward import BACKWARD_MUTANTS, RIGHT_BACKWARD
from .task import Axes, Task, Workload

_MOST_SCORES = 2**20
"""The reference holds all scores at once, several times."""
_SMALL = tuple(name for name, shape in SHAPES.items() if shape.b * shape.hq * shape.sq * shape.skv <= _MOST_SCORES)
_REGIMES = ("unit_normal", "logits_32", "offsets", "sorted_keys", "large_magnitude", "zero_rows", "long_tail")

SDPA_BACKWARD = Task(
    name="sdpa_backward",
    what="dQ, dK and dV of attention from Q, K, V, O, LSE and dO: f16, bf16, f32; both causal alignments; GQA; any D",
    inputs=(*DENSE.inputs, "o", "lse", "do"),
    outputs=GRADIENTS,
    stages=STAGES,
    draw=partial(draw_backward, DENSE),
    reference=backward_reference,
    judge=judge_backward,
    workloads=Axes(_SMALL),
    quick=Axes(("ragged", "gqa_4_ragged", "few_keys", "small", "gqa_4", "d48", "group_3", "d128_ragged"), _REGIMES),
    mutants=BACKWARD_MUTANTS,
    right=RIGHT_BACKWARD,
    certified_on=tuple(
        Workload(SHAPES[shape], "f16", mask, regime, seed)
        for shape, mask, regime, seed in (
            ("ragged", "none", "unit_normal", 1),
            ("ragged", "top_left", "unit_normal", 0),
            ("gqa_4_ragged", "bottom_right", "unit_normal", 2),
            ("few_keys", "bottom_right", "v_offset", 1),
            ("few_keys", "top_left", "unit_normal", 1),
            ("gqa_4", "none", "unit_normal", 1),
            ("ragged", "none", "logits_32", 2),
            ("ragged", "none", "sorted_keys", 0),
            ("d32", "none", "unit_normal", 1),
            ("ragged", "none", "large_magnitude", 1),
            ("ragged", "none", "offsets", 1),
            ("ragged", "none", "zero_rows", 1),
            ("ragged", "none", "long_tail", 1),
            ("d80", "none", "denormals", 0),
        )
    ),
    any_size=("B", "heads", "group", "SQ", "SKV", "S", "D"),
)
