"""The zoo's numerical bugs in `hopper_tma`, where TMA brings the operands and wgmma multiplies them."""

from tests.zoo.bug import Bug, Edit
from tests.zoo.zoo import BUGS

__all__ = ["HOPPER", "OPEN"]

OPEN = ("Z03-hopper_tma", "Z15-hopper_tma")
"""Not named yet. Z03: groups of eight rows are at wrong distances, which no signature of layouts knows. Z15: V that has
not arrived has no origin, so the product with it is not recognised as P·V, and P is named in place of U."""

_SCORES = "            s[i] *= scale_log2;\n"

HOPPER = (
    Bug(
        id="Z03-hopper_tma",
        title="the descriptor of K has the distance of 4 rows for that of 8",
        seen=BUGS["Z03"].seen,
        stage="scores",
        cause="leading_dimension",
        cure="8 rows of a panel are 8 · ROW_BYTES",
        rung="hopper_tma",
        setup=(
            Edit("descriptor(unsigned address) {", "descriptor(unsigned address, int rows = 8) {"),
            Edit("(8 * ROW_BYTES >> 4)", "(rows * ROW_BYTES >> 4)"),
        ),
        edits=(Edit("n * 64 * ROW_BYTES + column));", "n * 64 * ROW_BYTES + column, 4));"),),
        faulty="n * 64 * ROW_BYTES + column, 4));",
    ),
    Bug(
        id="Z04-hopper_tma",
        title="the K ring starts inside the Q tile: its offset counts one consumer",
        seen="rows of the second warpgroup are wrong",
        stage="q",
        also=("scores",),
        cause="region_overlap",
        cure="the K ring starts after the tiles of all consumers",
        rung="hopper_tma",
        edits=(Edit("sK = sQ + CONSUMERS * PANELS * Q_PANEL;", "sK = sQ + PANELS * Q_PANEL;"),),
        faulty="sK = sQ + PANELS * Q_PANEL;",
        findings=("R104",),
    ),
    Bug(
        id="Z06-hopper_tma",
        title="a row without a visible key: exp2(-inf - -inf)",
        seen="NaN",
        stage="p",
        cause="nan_from_empty_tile",
        cure="subtract 0 instead of m where m is -inf",
        rung="hopper_tma",
        edits=(Edit("const float safe = row_max == -CUDART_INF_F ? 0.0f : row_max;", "const float safe = row_max;"),),
        faulty="s[e] = exp2_fast(s[e] - safe);",
        shape="few_keys",
        mask="bottom_right",
    ),
    Bug(
        id="Z08-hopper_tma",
        title="an accumulator has complete scores, and the quad sums over its keys",
        seen=BUGS["Z08"].seen,
        stage="scores",
        cause="lane_owns_row",
        cure="remove the sum over the quad",
        rung="hopper_tma",
        edits=(Edit(_SCORES, "            s[i] = quad_sum(s[i]) * scale_log2;\n"),),
        faulty="s[i] = quad_sum(s[i]) * scale_log2;",
    ),
    Bug(
        id="Z09-hopper_tma",
        title="Q·K instead of Q·Kᵀ: the product takes K as stored by columns",
        seen=BUGS["Z09"].seen,
        stage="scores",
        cause="k_not_transposed",
        cure="imm-trans-b is 0 for K, whose rows are along k",
        rung="hopper_tma",
        edits=(Edit('", %32, %33, 1, 1, 1, 0, 0;\\n"', '", %32, %33, 1, 1, 1, 0, 1;\\n"'),),
        faulty='", %32, %33, 1, 1, 1, 0, 1;\\n"',
    ),
    Bug(
        id="Z10-hopper_tma",
        title="softmax scale applied to the scores and again in the constant of base 2",
        seen=BUGS["Z10"].seen,
        stage="scores",
        cause="scale_twice",
        cure="multiply by scale_log2 only",
        rung="hopper_tma",
        edits=(Edit(_SCORES, "            s[i] *= scale * scale_log2;\n"),),
        faulty="s[i] *= scale * scale_log2;",
    ),
    Bug(
        id="Z12-hopper_tma",
        title="U is never rescaled",
        seen=BUGS["Z12"].seen,
        stage="u",
        cause="missing_rescale",
        cure="multiply U by exp2(m_old - m_new) before the tile's P·V is added",
        rung="hopper_tma",
        edits=(
            Edit(
                "                u[i] *= rescale;\n                u[i + 1] *= rescale;\n",
                "                settle(u);\n",
            ),
        ),
    ),
    Bug(
        id="Z12-hopper_tma-half",
        title="the rescale of U reaches the first half of each panel",
        seen=BUGS["Z12"].seen,
        stage="u",
        cause="partial_rescale",
        cure="rescale all registers of U",
        rung="hopper_tma",
        edits=(Edit("i < PANELS * 32; i += 4) {", "i < PANELS * 16; i += 4) {"),),
        faulty="i < PANELS * 16; i += 4) {",
    ),
    Bug(
        id="Z14-hopper_tma",
        title="l is 1.48 times too large: it sums P with a gain that P·V no longer has",
        seen=BUGS["Z14"].seen,
        stage="l",
        cause="l_too_large",
        cure="add P to l as it is",
        rung="hopper_tma",
        edits=(Edit("l[r] += s[e];", "l[r] += 1.48f * s[e];"),),
        faulty="l[r] += 1.48f * s[e];",
    ),
    Bug(
        id="Z14-hopper_tma-mask",
        title="l sums the scores before the mask: keys beyond the sequence count",
        seen="outputs too small where the last tile is partial",
        stage="l",
        cause="l_too_large",
        cure="add P after the mask",
        rung="hopper_tma",
        edits=(
            Edit(_SCORES, "            s[i] *= scale_log2;\n            unmasked[i] = s[i];\n"),
            Edit("l[r] += s[e];", "l[r] += exp2_fast(unmasked[e] - safe);"),
        ),
        setup=(
            Edit(
                "        const bool partial =",
                "        float unmasked[BLOCK_N / 2] = {};\n        const bool partial =",
            ),
        ),
        faulty="l[r] += exp2_fast(unmasked[e] - safe);",
    ),
    Bug(
        id="Z15-hopper_tma",
        title="the product reads V without waiting for its bytes",
        seen=BUGS["Z15"].seen,
        stage="u",
        also=("v",),
        cause="missing_barrier",
        cure="wait for v_full of the stage",
        rung="hopper_tma",
        edits=(Edit("        v_full[stage].wait(round % 2);\n", ""),),
        findings=("R104",),
    ),
)
