"""The rung `backward` with dQ added by atomics, as in FlashAttention-2: one pass over the keys."""

from weft.kernels import RUNGS

DECLARED = "// weft: nondeterministic dq : atomicAdd in the order of the CTAs\n"


def edited(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def by_atomics(*pairs: tuple[str, str], declared: str = DECLARED) -> str:
    """Return `backward` with one pass over the keys, in which each key adds its part of dQ."""
    text = RUNGS["backward"].path.read_text()
    head = "template <int D>\n__global__ void __launch_bounds__(32 * WARPS)\n"
    start, end = text.index(f"{head}backward_dq("), text.index(f"{head}backward_dkv(")
    launch_dq = "// weft: launch    backward_dq<{D}>(q, k, v, lse, do, delta, dq, HKV, SQ, SKV, scale)\n"
    grid = "// weft:           grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)\n"
    finish = """template <int D>
__global__ void finish(const float* __restrict__ sum, ELEMENT* __restrict__ dq, float scale) {
    const size_t at = size_t(blockIdx.x) * D + threadIdx.x;
    dq[at] = ELEMENT(sum[at] * scale);
}

"""
    text = edited(
        text[:start] + finish + text[end:],
        (launch_dq, ""),
        (grid + grid, grid),
        ("// weft: workspace delta : f32[B, HQ, SQ]\n",
         f"// weft: workspace delta : f32[B, HQ, SQ]\n// weft: workspace sum : f32[B, HQ, SQ, D]\n{declared}"),
        ("backward_delta<{D}>(o, do, delta, SQ)", "backward_delta<{D}>(o, do, delta, sum, SQ)"),
        ("float* __restrict__ delta, int SQ) {", "float* __restrict__ delta, float* __restrict__ dq_sum, int SQ) {"),
        ("    if (threadIdx.x % 32 == 0) delta[row] = sum;",
         "    if (threadIdx.x % 32 == 0) delta[row] = sum;\n"
         "    for (int d = threadIdx.x % 32; d < D; d += 32) dq_sum[row * D + d] = 0.0f;"),
        ("lse, do, delta, dk, dv, HQ", "lse, do, delta, sum, dk, dv, HQ"),
        ("// weft:           grid(cdiv(SKV, WARPS), HKV, B) block(32 * WARPS)\n",
         "// weft:           grid(cdiv(SKV, WARPS), HKV, B) block(32 * WARPS)\n"
         "// weft: launch    finish<{D}>(sum, dq, scale) grid(B * HQ * SQ) block(D)\n"),
        ("ELEMENT* __restrict__ dk, ELEMENT* __restrict__ dv, int HQ",
         "float* __restrict__ dq_sum, ELEMENT* __restrict__ dk, ELEMENT* __restrict__ dv, int HQ"),
        ("            dk_sum.add(ds, q_row);\n",
         "            dk_sum.add(ds, q_row);\n            for (int i = 0; i < Row<D>::PER_LANE; ++i) {\n"
         "                const int d = i * 32 + threadIdx.x % 32;\n"
         "                if (d < D) atomicAdd(dq_sum + row * D + d, ds * k_row.at[i]);\n            }\n"),
    )  # fmt: skip
    return edited(text, *pairs)
