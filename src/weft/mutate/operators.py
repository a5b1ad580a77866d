"""The operators: every small mistake that a mutant can contain, by class.

A third of them is held out (`held_out`): no recogniser and no gate was written with them in view, and they are scored
separately. The marks are part of the seed: they do not change once a figure is published.
"""

from dataclasses import dataclass

from . import addresses, control, values
from .edits import Change, exchange, symbols

CLASSES = (
    "index", "stride", "pointer base", "constant", "bound", "operator", "cast", "barrier", "initialisation", "scale",
    "mask", "order",
)  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """One kind of small mistake in one line."""

    name: str
    klass: str
    change: Change
    example: tuple[str, str]
    """A line before and after. CUDA unless it uses `tl`."""
    held_out: bool = False


_CONSTANTS = {
    "LOG2_E": "LN_2", "LN_2": "LOG2_E", "LARGEST": "P_SCALE", "P_SCALE": "LARGEST", "MIDPOINT": "(MIDPOINT - 1)",
}  # fmt: skip
_EXPONENTIALS = {
    "expf": "exp2f", "__expf": "exp2f", "exp2_fast": "__expf", "exp2_approx": "__expf", "logf": "log2f",
    "log2f": "logf", "exp2": "exp", "log": "log2", "log2": "log",
}  # fmt: skip
_EXTREMES = {"fmaxf": "fminf", "fminf": "fmaxf", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}

OPERATORS = (
    Operator("index_plus_one", "index", addresses.index_plus_one, ("o[r * D + d] = x;", "o[r * D + d + 1] = x;")),
    Operator("index_exchanged", "index", addresses.index_exchanged, ("s[i][j] = x;", "s[j][i] = x;")),
    Operator("divide_for_modulo", "index", addresses.divide_for_modulo, ("i = t / 32;", "i = t % 32;")),
    Operator("index_term_lost", "index", addresses.index_term_lost, ("o[r * D + d] = x;", "o[r * D] = x;"), True),
    Operator("stride_off_by_one", "stride", addresses.stride_off_by_one, ("at = r * D + d;", "at = r * (D + 1) + d;")),
    Operator("stride_exchanged", "stride", addresses.stride_exchanged, ("at = h * SKV;", "at = h * SQ;")),
    Operator("stride_lost", "stride", addresses.stride_lost, ("at = r * D + d;", "at = r + d;"), True),
    Operator("base_exchanged", "pointer base", addresses.base_exchanged, ("x = k[at];", "x = v[at];")),
    Operator("base_of_query_head", "pointer base", addresses.base_of_query_head, ("g = h / (HQ / HKV);", "g = h;")),
    Operator(
        "base_of_first_head",
        "pointer base",
        addresses.base_of_first_head,
        ("p = k + kv_head * n;", "p = k + 0 * n;"),
        True,
    ),
    Operator("integer_plus_one", "constant", values.integer_plus_one, ("d = i * 32 + lane;", "d = i * 33 + lane;")),
    Operator("float_changed", "constant", values.float_changed, ("y = 1.0f / l;", "y = 2.0f / l;")),
    Operator("integer_halved", "constant", values.integer_halved, ("d = i * 32 + lane;", "d = i * 16 + lane;"), True),
    Operator("constant_exchanged", "constant", exchange(_CONSTANTS), ("y = m * LN_2;", "y = m * LOG2_E;"), True),
    # Masks before bounds: an edit that both make counts as a mask's.
    Operator("mask_widened", "mask", control.mask_widened, ("on = key < visible;", "on = key <= visible;")),
    Operator("diagonal_shifted", "mask", control.diagonal_shifted, ("n = diagonal + 1;", "n = diagonal + 2;")),
    Operator("alignment_exchanged", "mask", control.alignment_exchanged, ("on = CAUSAL == 1;", "on = CAUSAL == 2;")),
    Operator(
        "mask_lost", "mask", control.mask_lost, ("s = a < b ? x : -CUDART_INF_F;", "s = true ? x : -CUDART_INF_F;")
    ),
    Operator("guard_lost", "mask", control.guard_lost, ("if (d < D) o[d] = x;", "if (true) o[d] = x;")),
    Operator(
        "visible_of_next", "mask", control.visible_of_next, ("n = visible_keys(i);", "n = visible_keys(1 + i);"), True
    ),
    Operator(
        "masked_score_zero",
        "mask",
        values.masked_score_zero,
        ("s = a < b ? x : -CUDART_INF_F;", "s = a < b ? x : 0.0f;"),
        True,
    ),
    Operator("bound_closed", "bound", control.bound_closed, ("if (i < n) x = 1;", "if (i <= n) x = 1;")),
    Operator(
        "loop_from_one", "bound", control.loop_from_one, ("for (int i = 0; i < n; ++i)", "for (int i = 1; i < n; ++i)")
    ),
    Operator(
        "loop_step_doubled",
        "bound",
        control.loop_step_doubled,
        ("for (int i = 0; i < n; ++i)", "for (int i = 0; i < n; i += 2)"),
    ),
    Operator(
        "loop_ends_early",
        "bound",
        control.loop_ends_early,
        ("for (int i = 0; i < n; ++i)", "for (int i = 0; i < n - 1; ++i)"),
        True,
    ),
    Operator("extreme_exchanged", "operator", exchange(_EXTREMES, call=True), ("m = fmaxf(m, s);", "m = fminf(m, s);")),
    Operator("plus_for_minus", "operator", values.plus_for_minus, ("y = m + l;", "y = m - l;")),
    Operator("sum_overwritten", "operator", symbols({"+=": "=", "*=": "="}), ("sum += x;", "sum = x;")),
    Operator(
        "equal_for_unequal", "operator", symbols({"==": "!="}), ("if (lane == 0) x = y;", "if (lane != 0) x = y;")
    ),
    Operator(
        "shuffle_down",
        "operator",
        exchange({"__shfl_xor_sync": "__shfl_down_sync"}),
        ("x += __shfl_xor_sync(A, x, i);", "x += __shfl_down_sync(A, x, i);"),
    ),
    Operator("times_for_divide", "operator", values.times_for_divide, ("o = u * inverse;", "o = u / inverse;"), True),
    Operator("branches_exchanged", "operator", values.branches_exchanged, ("x = c ? a : b;", "x = c ? b : a;"), True),
    Operator("read_as_integer", "cast", values.read_as_integer, ("x = float(k[i]);", "x = int(k[i]);")),
    Operator("cast_truncates", "cast", values.cast_truncates, ("o[i] = half(x);", "o[i] = half(truncf(x));")),
    Operator(
        "declared_as_integer", "cast", values.declared_as_integer, ("const float s = x;", "const int s = x;"), True
    ),
    Operator("barrier_lost", "barrier", control.barrier_lost, ("__syncthreads();", ";")),
    Operator("warp_barrier_lost", "barrier", control.warp_barrier_lost, ("__syncwarp();", ";")),
    Operator("copy_not_committed", "barrier", control.copy_not_committed, ("commit_copies();", ";")),
    Operator(
        "barrier_of_warp",
        "barrier",
        exchange({"__syncthreads": "__syncwarp"}),
        ("__syncthreads();", "__syncwarp();"),
        True,
    ),
    Operator(
        "wait_for_one_less", "barrier", control.wait_for_one_less, ("wait_copies<1>();", "wait_copies<1 + 1>();"), True
    ),
    Operator("starts_at_one", "initialisation", values.starts_at_one, ("float l = 0.0f;", "float l = 1.0f;")),
    Operator(
        "starts_at_zero", "initialisation", values.starts_at_zero, ("float m = -CUDART_INF_F;", "float m = 0.0f;")
    ),
    Operator("not_initialised", "initialisation", values.not_initialised, ("float l = 0.0f;", "float l;"), True),
    Operator("scale_lost", "scale", values.scale_lost, ("s = dot * scale;", "s = dot;")),
    Operator("scale_twice", "scale", values.scale_twice, ("s = dot * scale;", "s = dot * scale * scale;")),
    Operator("exponential_exchanged", "scale", exchange(_EXPONENTIALS, call=True), ("p = expf(s);", "p = exp2f(s);")),
    Operator(
        "scale_two_percent", "scale", values.scale_two_percent, ("s = dot * scale;", "s = dot * (scale * 0.98f);"), True
    ),
    Operator("order_of_statements", "order", control.order_of_statements, ("l += p;\np = q;", "p = q;\nl += p;")),
    Operator(
        "order_of_barrier",
        "order",
        control.order_of_barrier,
        ("s[i] = x;\n__syncthreads();", "__syncthreads();\ns[i] = x;"),
        True,
    ),
)
"""Ordered: where two operators make the same edit, it counts for the first."""
