"""Points of the family of attention: windows, soft caps with sinks, packed sequences, pages of numbers and of codes."""

from dataclasses import replace

from weft.attention.contract import Contract
from weft.attention.shapes import shape as shape_of

from .family import attention_task
from .mutants.cached_codes import CACHED_CODE_MUTANTS
from .mutants.lengths import PAGED_MUTANTS, VARLEN_MUTANTS
from .mutants.variants import LOGIT_MUTANTS, WINDOW_MUTANTS
from .sdpa import CERTIFIED_ON, QUICK_REGIMES, SDPA
from .sdpa_decode import SDPA_DECODE
from .task import Axes, Mutant, Workload

_SHAPES = ("ragged", "gqa_4_ragged", "few_keys", "small", "gqa_4", "d48", "group_3", "d128_ragged")
_SIZES = ("B", "heads", "group", "SQ", "SKV", "S", "D")
_LENGTHS = (
    "b4-hq4-hkv2-sq33-skv70-d64", "b5-hq2-hkv2-sq77-skv77-d64", "b2-hq3-hkv1-sq20-skv96-d32", "gqa_4_ragged",
    "b3-hq2-hkv1-sq41-skv48-d64",
)  # fmt: skip
_TYPICAL = "b4-hq8-hkv8-sq512-skv512-d64"
"""`mission` with four sequences: of one sequence nothing is packed."""
_CACHES = ("b5-hq4-hkv2-sq1-skv130-d64", "b4-hq8-hkv2-sq5-skv77-d64", "b3-hq2-hkv2-sq1-skv333-d128", "decode_gqa")


NO_EMPTY_ROWS = ("empty_row_nan", "empty_row_mean", "lse_empty_zero")
"""With a sink, the sum of a row without a visible key is not zero."""


def _without(*names: str) -> tuple[Mutant, ...]:
    """Return the mutants of `sdpa` apart from some."""
    return tuple(mutant for mutant in SDPA.mutants if mutant.name not in names)


def _where_tanh_hides(mutant: Mutant) -> Mutant:
    """Return the mutant, excluded from 16-bit types: its error is smaller than that of tanh.approx in a soft cap."""
    why = "tanh.approx, which 16-bit kernels may use in the cap, moves weights as much"
    return replace(mutant, excluded={**mutant.excluded, "f16": why, "bf16": mutant.excluded.get("bf16", why)})


def _few_keys_hide(mutant: Mutant) -> Mutant:
    """Return the mutant, excluded from bf16: a window has too few keys for its error."""
    why = "a sum of at most 49 weights in f16 is off by less than bf16 rounds O"
    return replace(mutant, excluded={**mutant.excluded, "bf16": why})


def _on(*rows: tuple[str, str, str, int]) -> tuple[Workload, ...]:
    return tuple(Workload(shape_of(shape), "f16", mask, regime, seed) for shape, mask, regime, seed in rows)


SLIDING_WINDOW = attention_task(
    Contract(left=37, right=11),
    name="sliding_window",
    what="attention in a window: 37 keys before the diagonal and, without a causal mask, 11 after it; O and LSE",
    workloads=Axes(tuple(name for name in SDPA.workloads.shapes if name != "split_4")),
    quick=Axes((*_SHAPES, "long_keys"), QUICK_REGIMES),
    mutants=(
        *(_few_keys_hide(each) if each.name == "l_in_f16" else each for each in SDPA.mutants),
        *WINDOW_MUTANTS,
    ),
    certified_on=(
        *CERTIFIED_ON,
        *_on(
            ("long_keys", "none", "unit_normal", 1),
            ("d48", "top_left", "v_offset", 1),
            ("ragged", "none", "denormals", 1),
        ),
    ),
    any_size=_SIZES,
)

SOFTCAP_SINKS = attention_task(
    Contract(soft_cap=20.0, sinks=True),
    name="softcap_sinks",
    what="attention with scores 20·tanh(s / 20) and a sink per query head, a logit without a value; O and LSE",
    workloads=Axes(SDPA.workloads.shapes),
    quick=Axes(_SHAPES, QUICK_REGIMES),
    mutants=(
        *(_where_tanh_hides(each) if each.name == "p_in_bf16" else each for each in _without(*NO_EMPTY_ROWS)),
        *LOGIT_MUTANTS,
    ),
    certified_on=(
        *CERTIFIED_ON,
        *_on(
            ("gqa_4", "top_left", "logits_8", 1),
            ("ragged", "none", "logits_16", 1),
            ("ragged", "top_left", "offsets", 1),
        ),
    ),
    any_size=_SIZES,
)

SDPA_VARLEN = attention_task(
    Contract(layout="varlen"),
    name="sdpa_varlen",
    what="attention of sequences of different lengths packed behind each other (cu_seqlens_q, cu_seqlens_k); O and LSE",
    workloads=Axes(_LENGTHS),
    quick=Axes(_LENGTHS, QUICK_REGIMES),
    typical=_TYPICAL,
    mutants=(*SDPA.mutants, *VARLEN_MUTANTS),
    certified_on=_on(
        (_LENGTHS[0], "none", "unit_normal", 1),
        (_LENGTHS[0], "bottom_right", "unit_normal", 0),
        (_LENGTHS[1], "top_left", "unit_normal", 2),
        *((_LENGTHS[1], "none", regime, 1) for regime in (*QUICK_REGIMES[1:], "v_offset")),
        (_LENGTHS[2], "none", "unit_normal", 1),
        ("b2-hq1-hkv1-sq64-skv128-d64", "top_left", "one_hot", 1),
        ("b1-hq1-hkv1-sq128-skv128-d64", "none", "v_offset", 0),
        ("b1-hq2-hkv2-sq100-skv20-d64", "bottom_right", "v_offset", 1),
    ),
)

PAGED_DECODE = attention_task(
    Contract(layout="paged"),
    name="paged_decode",
    what="attention of one to a few queries over K and V in pages of 16 keys (block_table, seq_lens); O and LSE",
    stages=SDPA_DECODE.stages,
    workloads=Axes(_CACHES, masks=("none", "bottom_right")),
    quick=Axes(_CACHES, QUICK_REGIMES, masks=("none", "bottom_right")),
    typical=SDPA_DECODE.typical,
    mutants=(*SDPA_DECODE.mutants, *PAGED_MUTANTS),
    certified_on=_on(
        (_CACHES[1], "bottom_right", "unit_normal", 1),
        (_CACHES[0], "none", "unit_normal", 1),
        *((_CACHES[1], "none", regime, 1) for regime in (*QUICK_REGIMES[1:], "v_offset", "uneven_channels")),
        (_CACHES[2], "none", "sorted_keys", 0),
        ("b2-hq2-hkv2-sq20-skv100-d64", "bottom_right", "unit_normal", 1),
    ),
)

PAGED_DECODE_FP8 = attention_task(
    Contract(layout="paged", coded=("k", "v")),
    name="paged_decode_fp8",
    what="attention of one to a few queries over pages of 16 keys in e4m3, with a scale per head of K and V; O and LSE",
    stages=SDPA_DECODE.stages,
    workloads=replace(PAGED_DECODE.workloads, encodings=("e4m3",)),
    quick=replace(PAGED_DECODE.quick, encodings=("e4m3",)),
    typical=SDPA_DECODE.typical,
    mutants=(*PAGED_DECODE.mutants, *CACHED_CODE_MUTANTS),
    certified_on=tuple(replace(work, encoding="e4m3") for work in PAGED_DECODE.certified_on),
)
