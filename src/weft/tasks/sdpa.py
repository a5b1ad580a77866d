"""`sdpa`: O = softmax(Q·Kᵀ·scale + mask)·V and LSE, on f16, bf16 or f32."""

from weft.attention.contract import DENSE
from weft.attention.shapes import SHAPES

from .family import attention_task
from .mutants.attention import SDPA_MUTANTS
from .mutants.online import ONLINE_MUTANTS
from .mutants.small import SMALL_MUTANTS
from .task import Axes, Workload

CERTIFIED_ON = tuple(
    Workload(SHAPES[shape], "f16", mask, regime, seed)
    for shape, mask, regime, seed in (
        ("ragged", "none", "unit_normal", 1),
        ("ragged", "top_left", "unit_normal", 0),
        ("gqa_4_ragged", "bottom_right", "unit_normal", 2),
        ("few_keys", "bottom_right", "v_offset", 1),
        ("few_keys", "top_left", "unit_normal", 1),
        ("ragged", "none", "logits_32", 2),
        ("ragged", "none", "v_offset", 1),
        ("ragged", "none", "sorted_keys", 0),
        ("gqa_4_ragged", "none", "sorted_keys", 1),
        ("gqa_4", "none", "unit_normal", 1),
        ("d32", "none", "unit_normal", 1),
        ("split_128", "none", "v_offset", 0),
        ("split_128", "top_left", "one_hot", 1),
        ("ragged", "none", "large_magnitude", 1),
        ("ragged", "none", "offsets", 1),
        ("ragged", "none", "zero_rows", 1),
        ("ragged", "none", "small_values", 1),
        ("ragged", "none", "long_tail", 1),
    )
)
"""Workloads that reject most mutants come first."""

QUICK_SHAPES = (
    "ragged",
    "gqa_4_ragged",
    "few_keys",
    "small",
    "gqa_4",
    "long_keys",
    "decode_gqa",
    "d48",
    "group_3",
    "d128_ragged",
    "odd_d",
    "decode_group",
)
QUICK_REGIMES = (
    "unit_normal",
    "logits_32",
    "offsets",
    "sorted_keys",
    "large_magnitude",
    "zero_rows",
    "small_values",
    "long_tail",
)

SDPA = attention_task(
    DENSE,
    name="sdpa",
    what="O = softmax(Q·Kᵀ·scale + mask)·V and LSE: f16, bf16, f32; both causal alignments; GQA; any D",
    workloads=Axes(tuple(SHAPES)),
    quick=Axes(QUICK_SHAPES, QUICK_REGIMES),
    mutants=(*SDPA_MUTANTS, *ONLINE_MUTANTS, *SMALL_MUTANTS),
    certified_on=CERTIFIED_ON,
    any_size=("B", "heads", "group", "SQ", "SKV", "S", "D"),
)
