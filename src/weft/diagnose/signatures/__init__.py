"""Recognisers: each explains one form of error; each file contains one family.

A recogniser receives a `Case` and returns a `Signature`, or None unless the numbers show it. `docs/signatures.md`
has a section for every name.
"""

from collections.abc import Callable

from weft.diagnose.records import Case, Signature

from .bases import wrong_base
from .checkers import missing_barrier, region_overlap, stored_twice, uninitialised
from .compiler import compiler_warning
from .constants import wrong_constant
from .degenerate import all_zeros, nan_from_empty_tile, no_maximum, uniform_weights
from .factors import l_lacks_keys, l_too_large, lse_form, output_factor, score_factor
from .known_wrong import wrong_implementation
from .lanes import inner_columns, lane_owns_row, lanes_differ, lanes_lack_keys
from .launch import define_not_compiled, launch_never_happened, never_written, wrong_workspace
from .layout import columns_moved, k_not_transposed, mixed_rows, rows_moved, v_transposed, wrong_kv_head
from .masks import mask_of_scores, masked_with_zero, wrong_mask
from .misread import cut_to_integer, keys_skipped, misread_codes, misread_input
from .online import rescale_of_u, slipped
from .operands import left_out, never_read, wrong_operand
from .quantiser import half_lsb, wrong_scale, zero_scale
from .shear import leading_dimension
from .splits import partial_offsets, wrong_merge
from .start_values import wrong_start
from .unset import unset_variable
from .where import part_of_output

Recogniser = Callable[[Case], Signature | None]
"""Returns None if the case does not show its pattern."""

SIGNATURES: tuple[Recogniser, ...] = (
    launch_never_happened,
    define_not_compiled,
    compiler_warning,
    never_written,
    wrong_workspace,
    all_zeros,
    uniform_weights,
    zero_scale,
    half_lsb,
    wrong_scale,
    misread_codes,
    missing_barrier,
    stored_twice,
    uninitialised,
    unset_variable,
    wrong_constant,
    region_overlap,
    misread_input,
    cut_to_integer,
    keys_skipped,
    nan_from_empty_tile,
    no_maximum,
    score_factor,
    k_not_transposed,
    leading_dimension,
    lane_owns_row,
    lanes_differ,
    lanes_lack_keys,
    inner_columns,
    wrong_operand,
    left_out,
    never_read,
    wrong_base,
    wrong_kv_head,
    wrong_mask,
    mask_of_scores,
    masked_with_zero,
    wrong_start,
    l_too_large,
    l_lacks_keys,
    output_factor,
    rescale_of_u,
    slipped,
    wrong_merge,
    partial_offsets,
    v_transposed,
    mixed_rows,
    rows_moved,
    columns_moved,
    lse_form,
    wrong_implementation,
    part_of_output,
)
"""In the order they are called; the signature of the highest rank is shown first."""

NAMES: tuple[str, ...] = (
    "launch_never_happened",
    "define_not_compiled",
    "compiler_warning",
    "never_written",
    "wrong_workspace",
    "all_zeros",
    "uniform_weights",
    "zero_scale",
    "half_lsb",
    "scale_forgotten",
    "tensor_scale_twice",
    "other_tensors_scale",
    "other_heads_scale",
    "wrong_range",
    "misread_codes",
    "missing_barrier",
    "stored_twice",
    "uninitialised",
    "unset_variable",
    "wrong_constant",
    "region_overlap",
    "misread_input",
    "cut_to_integer",
    "keys_skipped",
    "nan_from_empty_tile",
    "no_maximum",
    "scale_twice",
    "scale_missing",
    "exponent_base",
    "score_factor",
    "k_not_transposed",
    "v_transposed",
    "leading_dimension",
    "lane_owns_row",
    "lanes_differ",
    "inner_columns",
    "wrong_operand",
    "left_out",
    "never_read",
    "wrong_base",
    "wrong_kv_head",
    "causal_shift",
    "causal_alignment",
    "mask_ignored",
    "mask_unasked",
    "masked_with_zero",
    "tile_dropped",
    "tile_twice",
    "wrong_start",
    "l_too_large",
    "l_too_small",
    "output_factor",
    "missing_rescale",
    "partial_rescale",
    "l_not_rescaled",
    "stale_m",
    "stale_l",
    "not_normalised",
    "double_counted_split",
    "unweighted_merge",
    "partial_offsets",
    "mixed_rows",
    "rows_moved",
    "columns_moved",
    "heads_swapped",
    "lse_form",
    "wrong_implementation",
    "last_columns",
    "some_columns",
    "tail_rows",
    "some_rows",
    "some_heads",
)
"""Every name a signature can have."""
