"""Kernel files as people write them, and one-line mistakes that people make in them.

A mistake is a substitution in a right file. `named` is what the diagnosis must say of it; its line must lie within
three of the mistake, unless the mistake is seen elsewhere (`at` is then the text of that line).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """`right` stands once in the file; `wrong` takes its place."""

    right: str
    wrong: str
    named: str
    """A regular expression that the text of the diagnosis matches."""
    at: str = ""
    """A part of the line that is named, where it is not the mistake's own."""
    shape: str = "small"
    regime: str = "unit_normal"


@dataclass(frozen=True)
class Style:
    """One file, what it is judged on, and mistakes in it."""

    file: str
    mistakes: tuple[Mistake, ...]
    options: tuple[str, ...] = ()
    shape: str = "small"
    """On which the right file passes."""


STYLES = (
    Style(
        "torch_online_f32.cu",
        (
            Mistake("acc[d] = acc[d] * correction + p", "acc[d] = acc[d] + p", "missing_rescale"),
            Mistake("s *= scale;", "s *= scale * scale;", "score_factor"),
        ),
    ),
    Style(
        "main_check.cu",
        (
            Mistake("o_row[x] = alpha * o_row[x] + p", "o_row[x] = o_row[x] + p", "missing_rescale"),
            Mistake("min(TILE, N - start)", "TILE", "l_too_large|tail|past", shape="ragged"),
        ),
    ),
    Style(
        "three_kernels.cu",
        (
            Mistake("row[j] /= sum;", "row[j] /= N;", "l_|output_factor|normal"),
            Mistake("= sum * scale;", "= sum;", "score_factor"),
        ),
    ),
    Style(
        "at_dispatch.cu",
        (
            Mistake("head / (heads / kv_heads)", "head % kv_heads", "wrong_kv_head", shape="gqa_4"),
            Mistake("    const float sum = reduced[0] + reduced[1] +", "    const float sum = reduced[0] +", "l"),
        ),
    ),
    Style(
        "one_head.cu",
        (
            Mistake("sqrtf((float)HEAD_DIM)", "(float)HEAD_DIM", "score_factor"),
            Mistake("l = l * correction + p;", "l = l + p;", "rescale|l_"),
        ),
    ),
    Style(
        "causal_only.cu",
        (
            Mistake("s <= t;", "s < t;", "mask|diagonal|keys"),
            Mistake("s <= t;", "s <= t + 1 && s < T;", "mask|diagonal|keys"),
        ),
        ("--masks", "top_left"),
    ),
    Style(
        "causal_flag.cu",
        (
            Mistake("causal && col > row", "causal && col >= row", "mask|diagonal|keys|nan"),
            Mistake("acc[x] = acc[x] * a + p", "acc[x] = acc[x] + p", "missing_rescale"),
        ),
    ),
    Style(
        "c_launcher.cu",
        (
            Mistake("out[i] = a * out[i] + p", "out[i] = out[i] + p", "missing_rescale"),
            Mistake("head / group) * len_kv * head_dim;\n    float out", "0) * len_kv * head_dim;\n    float out", "kv_head|head", shape="ragged"),
        ),
    ),
    Style(
        "namespaced.cu",
        (
            Mistake("for (int mask = 16;", "for (int mask = 8;", "product|score|lane|sum"),
            Mistake("exp2f((m - m_next) * 1.44269504f)", "exp2f(m - m_next)", "rescale|l|U"),
        ),
    ),
    Style(
        "wmma_half.cu",
        (
            Mistake("sO[x] *= sA[x / HEAD_DIM];", "sO[x] *= 1.f;", "missing_rescale"),
            Mistake("wmma::half, wmma::row_major> v_frag".replace("wmma::half", "half"), "half, wmma::col_major> v_frag", "v_transposed|V"),
        ),
    ),
    Style(
        "float4_main.cu",
        (
            Mistake("acc[x].z = acc[x].z * f + p * b.z;", "acc[x].z = acc[x].z + p * b.z;", "rescale"),
            Mistake("a.z * b.z + a.w * b.w", "a.z * b.z + a.w * b.z", "score|product"),
        ),
    ),
    Style(
        "half2_loads.cu",
        (
            Mistake("acc[i].y = acc[i].y * f + p * b.y;", "acc[i].y = acc[i].y + p * b.y;", "rescale"),
            Mistake("const float next = fmaxf(m, s);", "const float next = s;", "m|max"),
        ),
    ),
    Style(
        "cp_async.cu",
        (
            Mistake("__pipeline_wait_prior(1);", "__pipeline_wait_prior(2);", "R10|race|cp.async|wait", shape="ragged"),
            Mistake("        __syncthreads();\n        const int stage", "        const int stage", "R10|barrier", shape="ragged"),
        ),
    ),
    Style(
        "split_keys.cu",
        (
            Mistake("sum += w * stats[2 * at + 1];", "sum += stats[2 * at + 1];", "split|merge|l"),
            Mistake("begin + each);", "begin + each - 1);", "keys_skipped|skip"),
        ),
    ),
    Style(
        "with_lse.cu",
        (
            Mistake("m + logf(l)", "m + log2f(l)", "lse_form|lse"),
            Mistake("float m = -INFINITY, l = 0.f;", "float m = 0.f, l = 0.f;", "m|max", regime="offsets"),
        ),
    ),
    Style(
        "bare_lines.cu",
        (
            Mistake("acc[x] = acc[x] * f + p", "acc[x] = acc[x] + p", "rescale", shape="ragged"),
            Mistake("float sum = l * weight;", "float sum = l;", "l_|l |split"),
        ),
    ),
    Style(
        "triton_flash.py",
        (
            Mistake("acc * alpha[:, None] + tl.dot", "acc + tl.dot", "missing_rescale", shape="split_64"),
            Mistake("s = tl.where(keys[None, :] < N, s, float(\"-inf\"))\n", "\n", "l_too_large|mask|keys", shape="ragged"),
        ),
    ),
    Style(
        "triton_row.py",
        (
            Mistake("end = row + 1 if", "end = row + 2 if", "mask|M101|out of bounds|diagonal"),
            Mistake("acc = acc * alpha + p * v", "acc = acc + p * v", "missing_rescale"),
        ),
    ),
    Style(
        "template_switch.cu",
        (
            Mistake("acc[i] = acc[i] * rescale + weight", "acc[i] = acc[i] + weight", "missing_rescale"),
            Mistake("row_max = new_max;", "", "m|max"),
        ),
    ),
    Style(
        "own_macro.cu",
        (
            Mistake("acc[d] *= alpha;", "acc[d] *= 1.f;", "missing_rescale", shape="split_64"),
            Mistake("s[j] = start + j < n ? dot : -INFINITY;", "s[j] = dot;", "l_too_large|mask", shape="ragged"),
        ),
    ),
    Style(
        "params_struct.cu",
        (
            Mistake("expf(s * params.scale - top)", "expf(s - top)", "score|p"),
            Mistake("acc[d] / sum;", "acc[d];", "output_factor|l|O"),
        ),
    ),
)
