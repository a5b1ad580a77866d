"""`sdpa_decode`: a few new queries against many keys, where kernels split the keys and merge."""

from dataclasses import replace

from weft.attention.shapes import SHAPES
from weft.attention.stages import STAGES

from .sdpa import SDPA
from .task import Axes, Task, Workload

_SHAPES = ("decode", "decode_gqa", "decode_draft", "one_token", "few_queries")
_MASKS = ("none", "bottom_right")

NO_EMPTY_ROW = "every query of a decode step sees a key"
_NOT_FOR_DECODE = {
    "empty_row_nan": NO_EMPTY_ROW,
    "empty_row_mean": NO_EMPTY_ROW,
    "lse_empty_zero": NO_EMPTY_ROW,
}

SDPA_DECODE = replace(
    SDPA,
    name="sdpa_decode",
    what="attention of one to a few queries over a long cache of keys, split and merged: O and LSE",
    stages=(*STAGES[:-2], "partial", "merge", *STAGES[-2:]),
    workloads=Axes(_SHAPES, masks=_MASKS),
    quick=Axes(("decode_draft", "decode", "decode_gqa"), SDPA.quick.regimes, masks=_MASKS),
    mutants=tuple(mutant for mutant in SDPA.mutants if mutant.name not in _NOT_FOR_DECODE),
    certified_on=tuple(
        Workload(SHAPES[shape], "f16", mask, regime, seed)
        for shape, mask, regime, seed in (
            ("decode_draft", "bottom_right", "unit_normal", 1),
            ("decode_gqa", "none", "unit_normal", 1),
            ("decode", "none", "sorted_keys", 0),
            ("decode_draft", "none", "v_offset", 2),
            ("decode", "none", "logits_32", 1),
            ("few_queries", "bottom_right", "unit_normal", 1),
            ("decode_draft", "bottom_right", "large_magnitude", 0),
            ("decode_draft", "none", "uneven_channels", 1),
            ("decode_draft", "none", "zero_rows", 1),
            ("decode_draft", "none", "small_values", 1),
            ("decode_draft", "none", "long_tail", 1),
        )
    ),
    any_size=("B", "heads", "group", "SKV"),
    typical="b4-hq32-hkv8-sq1-skv1024-d128",
)
__all__ = ["SDPA_DECODE", "Task"]
