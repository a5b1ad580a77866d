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
    first: Mistake
    second: Mistake | None = None
    options: tuple[str, ...] = ()
    """Of `weft check`."""

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return (self.first,) if self.second is None else (self.first, self.second)


RAGGED = "ragged"
"""77 rows and keys: no multiple of a tile."""

STYLES = (
    Style(
        "torch_online_f32.cu",
        Mistake("acc[d] = acc[d] * correction + p", "acc[d] = acc[d] + p", "missing_rescale"),
        Mistake("s *= scale;", "s *= scale * scale;", "scale_twice"),
    ),
    Style(
        "main_check.cu",
        Mistake("o_row[x] = alpha * o_row[x] + p", "o_row[x] = o_row[x] + p", "missing_rescale"),
        Mistake("min(TILE, N - start)", "TILE", "masked_with_zero", at="O[base + row * d", shape=RAGGED),
    ),
    Style(
        "three_kernels.cu",
        Mistake("= sum * scale;", "= sum;", "scale_missing"),
        Mistake("row[j] /= sum;", "row[j] /= N;", "p of KV tile 0 is wrong"),
    ),
    Style(
        "at_dispatch.cu",
        Mistake("head / (heads / kv_heads)", "head % kv_heads", "wrong_kv_head", at="", shape="gqa_4"),
        Mistake("sum = reduced[0] + reduced[1] +", "sum = reduced[0] +", "l_too_small|l of KV tile|l_", shape=RAGGED),
    ),
    Style(
        "one_head.cu",
        Mistake("l = l * correction + p;", "l = l + p;", "l_not_rescaled"),
    ),
    Style(
        "causal_only.cu",
        Mistake("acc[c] = acc[c] * fix + e", "acc[c] = acc[c] + e", "missing_rescale"),
        Mistake("logit *= scale;", "", "scale_missing"),
        options=("--masks", "top_left"),
    ),
    Style(
        "causal_flag.cu",
        Mistake("acc[x] = acc[x] * a + p", "acc[x] = acc[x] + p", "missing_rescale"),
        Mistake("s *= sm_scale;", "", "scale_missing"),
    ),
    Style(
        "c_launcher.cu",
        Mistake("out[i] = a * out[i] + p", "out[i] = out[i] + p", "missing_rescale"),
        Mistake(
            "vh = v + ((long long)batch * heads_kv + head / group)",
            "vh = v + ((long long)batch * heads_kv + 0)",
            "wrong_kv_head",
            at="out[i] = a * out[i] + p",
            shape=RAGGED,
        ),
    ),
    Style(
        "namespaced.cu",
        Mistake("acc[i] = acc[i] * decay + p", "acc[i] = acc[i] + p", "missing_rescale"),
        Mistake("warp_sum(part) * scale;", "warp_sum(part);", "scale_missing"),
    ),
    Style(
        "wmma_half.cu",
        Mistake("sO[x] *= sA[x / HEAD_DIM];", "sO[x] *= 1.f;", "missing_rescale", at="wmma::mma_sync(o_frag"),
        Mistake("half, wmma::row_major> v_frag", "half, wmma::col_major> v_frag", "v_transposed", at="sO[x] / sL"),
    ),
    Style(
        "float4_main.cu",
        Mistake("acc[x].z = acc[x].z * f + p * b.z;", "acc[x].z = acc[x].z + p * b.z;", "partial_rescale"),
        Mistake("a.z * b.z + a.w * b.w", "a.z * b.z + a.w * b.z", "columns 3, 7 .* of K are never multiplied"),
    ),
    Style(
        "half2_loads.cu",
        Mistake("acc[i].y = acc[i].y * f + p * b.y;", "acc[i].y = acc[i].y + p * b.y;", "partial_rescale"),
        Mistake("s *= scale;", "", "scale_missing"),
    ),
    Style(
        "cp_async.cu",
        Mistake("acc[d] = acc[d] * f + p", "acc[d] = acc[d] + p", "missing_rescale"),
        Mistake("__pipeline_wait_prior(1);", "__pipeline_wait_prior(2);", "R104", at="q_reg[d] * k_buf", shape=RAGGED),
    ),
    Style(
        "split_keys.cu",
        Mistake("if (d == 0) score = s * scale;", "if (d == 0) score = s;", "scale_missing"),
    ),
    Style(
        "with_lse.cu",
        Mistake("m + logf(l)", "m + log2f(l)", "lse is the first wrong stage|lse_form"),
        Mistake("acc[x] = acc[x] * f + p", "acc[x] = acc[x] + p", "missing_rescale"),
    ),
    Style(
        "bare_lines.cu",
        Mistake("s *= scale;", "", "scale_missing"),
        Mistake("const int row = blockIdx.x, lane", "const int row = blockIdx.x + 1, lane", "M101"),
    ),
    Style(
        "triton_flash.py",
        Mistake("acc * alpha[:, None] + tl.dot", "acc + tl.dot", "missing_rescale", shape="split_64"),
        Mistake(
            's = tl.where(keys[None, :] < N, s, float("-inf"))\n', "\n", "masked_with_zero", at="acc *", shape=RAGGED
        ),
    ),
    Style(
        "triton_row.py",
        Mistake("end = row + 1 if", "end = row + 2 if", "causal_shift"),
        Mistake("acc = acc * alpha + p * v", "acc = acc + p * v", "missing_rescale"),
    ),
    Style(
        "template_switch.cu",
        Mistake("acc[i] = acc[i] * rescale + weight", "acc[i] = acc[i] + weight", "missing_rescale"),
    ),
    Style(
        "own_macro.cu",
        Mistake("acc[d] *= alpha;", "acc[d] *= 1.f;", "missing_rescale", shape="split_64"),
    ),
    Style(
        "params_struct.cu",
        Mistake("acc[d] / sum;", "acc[d];", "output_factor|l|O"),
    ),
)

LATER: tuple[str, ...] = ()
"""What the importer cannot read yet: refused with what is missing, never judged by half."""
