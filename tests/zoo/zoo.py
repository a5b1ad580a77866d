"""The bug zoo: sixteen bugs of a real laboratory, each in a realistic kernel, with its right twin.

    path = build(BUGS["Z12"], folder)               # the wrong kernel
    path = build(BUGS["Z12"], folder, fixed=True)   # the right one

`tests/zoo/transplants.py` has the same bugs in other rungs. `CORRECT` are right kernels that were once reported wrong.
"""

from collections.abc import Mapping

from tests.zoo.bug import FOLDER, Bug, Edit, build
from tests.zoo.quantisers import HalfStep, ZeroScale

__all__ = ["BUGS", "CORRECT", "ZOO", "Bug", "Edit", "build"]

SPLIT_ROW_OF_READER = Edit(
    "__device__ __forceinline__ float warp_sum(",
    """// The same, as the reduce kernel reads it.
__device__ __forceinline__ size_t read_row(int b, int h, int split, int query, int SQ) {
    return ((static_cast<size_t>(b) * gridDim.y + h) * SQ + query) * SPLITS + split;
}

__device__ __forceinline__ float warp_sum(""",
)

ZOO = (
    Bug(
        id="Z01",
        title="quantiser: scale 0 for a head of zeros",
        seen="NaN or garbage on zero tensors",
        stage="quantiser",
        cause="zero_scale",
        cure="give a head whose absmax is below 1e-6 the scale 1 and code 128 everywhere",
        rung="fp8_scalar",
        task="fp8_sdpa",
        shape="small",
        regime="zeros",
        quantiser=ZeroScale(),
    ),
    Bug(
        id="Z02",
        title="each lane loads only its own scores, the rest of its row array is undefined",
        seen="99.5 % of the elements wrong",
        stage="masked",
        also=("m", "p", "l"),
        cause="uninitialised",
        cure="let every lane fill its complete row: for (int n = 0; n < BLOCK_N; ++n)",
        source="z02.cu",
        faulty="row[n] = sS[warp][n];  // the other lanes'",
        findings=("I203",),
    ),
    Bug(
        id="Z03",
        title="leading dimension of the K fragment is the tile's width, not the padded head dimension",
        seen="wrong scores, some outputs close",
        stage="scores",
        cause="leading_dimension",
        cure="load K with the stride of its shared rows, H::STRIDE",
        rung="wmma",
        edits=(
            Edit(
                "wmma::load_matrix_sync(b, &sKV[column][d], H::STRIDE);",
                "wmma::load_matrix_sync(b, &sKV[column][d], BLOCK_N);",
            ),
        ),
        faulty="&sKV[column][d], BLOCK_N",
        findings=("I201",),
    ),
    Bug(
        id="Z04",
        title="decoding tables are in the score tile: wrong offset in a carved block",
        seen="the table reads 1.0, outputs share one sign",
        stage="k",
        cause="region_overlap",
        cure="the tables start after BLOCK_M · S_STRIDE floats, not halves",
        source="z04.cu",
        task="fp8_sdpa",
        faulty="S_OFFSET + BLOCK_M * S_STRIDE * sizeof(half)",
        shape="split_128",
    ),
    Bug(
        id="Z05",
        title="split-K merge weights the unnormalised partial outputs with l · exp(m - M)",
        seen="wrong for more than one split",
        stage="o",
        cause="double_counted_split",
        cure="weight U and l of each split with exp(m - M) only",
        rung="split_k",
        edits=(
            Edit(
                "l += expf(part_m[part] - m) * part_l[part];",
                "l += part_l[part] * expf(part_m[part] - m) * part_l[part];",
            ),
            Edit("u += expf(part_m[part] - m) * part_u", "u += part_l[part] * expf(part_m[part] - m) * part_u"),
        ),
        faulty="u += part_l[part] * expf",
        launch="split_k_reduce",
        shape="few_queries",
    ),
    Bug(
        id="Z06",
        title="a row without a visible key: exp(-inf - -inf)",
        seen="NaN",
        stage="p",
        cause="nan_from_empty_tile",
        cure="subtract 0 instead of m where m is -inf",
        rung="wmma",
        edits=(Edit("const float m_safe = m_new == -CUDART_INF_F ? 0.0f : m_new;", "const float m_safe = m_new;"),),
        faulty="const float p = __expf(score[j] - m_safe);",
        shape="few_keys",
        mask="bottom_right",
    ),
    Bug(
        id="Z07",
        title="the reduce kernel reads the partial buffers as [query, split], they are [split, query]",
        seen="constant error of about 0.2",
        stage="o",
        cause="partial_offsets",
        cure="use one function for the row of the partial buffers in both kernels",
        rung="split_k",
        edits=(
            SPLIT_ROW_OF_READER,
            Edit("part_m[part_row(b, h, split, query, SQ)]", "part_m[read_row(b, h, split, query, SQ)]"),
            Edit(
                "part = part_row(b, h, split, query, SQ);\n        l +=",
                "part = read_row(b, h, split, query, SQ);\n        l +=",
            ),
            Edit(
                "part = part_row(b, h, split, query, SQ);\n            u +=",
                "part = read_row(b, h, split, query, SQ);\n            u +=",
            ),
        ),
        faulty="* SQ + query) * SPLITS + split;",
        launch="split_k_reduce",
        shape="few_queries",
    ),
    Bug(
        id="Z08",
        title="a lane computes its own row, and the warp sums over 32 rows",
        seen="10 to 40 times wrong, random signs",
        stage="scores",
        cause="lane_owns_row",
        cure="remove the warp reduction: the lane already has the complete dot product",
        source="z08.cu",
        faulty="s = warp_sum(s) * scale;",
        shape="gqa_4_ragged",
    ),
    Bug(
        id="Z09",
        title="Q·K instead of Q·Kᵀ: K is loaded as a row-major fragment",
        seen="large error",
        stage="scores",
        cause="k_not_transposed",
        cure="wmma::col_major for the fragment of K",
        rung="wmma_qk",
        edits=(Edit("half, wmma::col_major> b;  // K[n][d] seen as Kᵀ", "half, wmma::row_major> b;  // K[n][d]"),),
        faulty="half, wmma::row_major> b;  // K[n][d]",
    ),
    Bug(
        id="Z10",
        title="softmax scale applied to the fragment and again in the softmax",
        seen="attention too flat",
        stage="scores",
        also=("masked",),
        cause="scale_twice",
        cure="scale the scores once",
        rung="fp8_wmma",
        task="fp8_sdpa",
        edits=(
            Edit(
                "            wmma::store_matrix_sync(&sS[row][column], scores,",
                "            for (int i = 0; i < scores.num_elements; ++i) scores.x[i] *= scale;\n"
                "            wmma::store_matrix_sync(&sS[row][column], scores,",
            ),
        ),
        faulty="scores.x[i] *= scale;",
    ),
    Bug(
        id="Z11",
        title="too much shared memory: the launch fails and old output is read",
        seen="garbage that may even pass",
        stage="launch",
        cause="launch_never_happened",
        cure="opt in to more than 48 KB of shared memory, and check the launch's error",
        rung="fa1",
        edits=(Edit("(D + 1 - D % 2) * 4) opt_in_shared", "(D + 1 - D % 2) * 4)"),),
        defines={"BLOCK_N": "96", "WARPS": "8"},
        faulty="shared((BLOCK_M + BLOCK_N) * (D + 1 - D % 2) * 4)",
        shape="d128",
    ),
    Bug(
        id="Z12",
        title="rescale of U by exp(m_old - m_new) reaches column 0 only",
        seen="systematic bias",
        stage="u",
        cause="partial_rescale",
        cure="let every lane rescale its columns: for (column = lane; column < COLUMNS; column += 32)",
        rung="wmma",
        edits=(
            Edit(
                "for (int column = lane; column < H::COLUMNS; column += 32) sU[row][column] *= rescale;",
                "if (lane == 0) sU[row][0] *= rescale;",
            ),
        ),
        faulty="if (lane == 0) sU[row][0] *= rescale;",
    ),
    Bug(
        id="Z13",
        title="quantiser: encoder and decoder differ by half a step",
        seen="constant bias of -0.0166",
        stage="quantiser",
        cause="half_lsb",
        cure="encode with round(x / (448 · scale) · 127 + 128), as it is decoded",
        rung="fp8_scalar",
        task="fp8_sdpa",
        shape="validation_128",
        quantiser=HalfStep(),
    ),
    Bug(
        id="Z14",
        title="l is 1.48 times too large: it sums P with a gain that P·V no longer has",
        seen="output scaled by 0.675 everywhere",
        stage="l",
        cause="l_too_large",
        cure="sum the same P that is multiplied with V",
        rung="fp8_wmma",
        task="fp8_sdpa",
        edits=(
            Edit(
                "constexpr unsigned ALL_LANES",
                "constexpr float P_GAIN = 1.48f;              // stretches P over the range of its type\n"
                "constexpr unsigned ALL_LANES",
            ),
            Edit("row_sum += p;", "row_sum += P_GAIN * p;"),
        ),
        faulty="row_sum += P_GAIN * p;",
    ),
    Bug(
        id="Z15",
        title="no barrier between writing the K tile and reading it",
        seen="intermittent",
        stage="scores",
        cause="missing_barrier",
        cure="__syncthreads() after load_tile of K",
        rung="wmma",
        edits=(
            Edit(
                "load_tile<D, BLOCK_N>(sKV, k_head, first_key, SKV);\n        __syncthreads();\n",
                "load_tile<D, BLOCK_N>(sKV, k_head, first_key, SKV);\n",
            ),
        ),
        faulty="wmma::load_matrix_sync(b, &sKV[column][d], H::STRIDE);",
        findings=("R102",),
    ),
    Bug(
        id="Z16",
        title="build switch misspelt: it has no effect",
        seen="the optimisation measures as no change",
        stage="build",
        cause="define_not_compiled",
        cure="-D USE_FAST_EXP=1; the defines read back mark the one that no file mentions",
        rung="scalar",
        setup=(
            Edit(
                "constexpr unsigned ALL_LANES",
                "#ifdef USE_FAST_EXP\n#define EXP __expf\n#else\n#define EXP expf\n#endif\n\n"
                "constexpr unsigned ALL_LANES",
            ),
            Edit("rescale = expf(m - m_new), p = expf(s - m_new);", "rescale = EXP(m - m_new), p = EXP(s - m_new);"),
        ),
        flags={"USE_FASTEXP": "1"},
        twin_flags={"USE_FAST_EXP": "1"},
        shape="small",
    ),
)

BUGS: Mapping[str, Bug] = {bug.id: bug for bug in ZOO}
"""The sixteen by id."""

CORRECT = (FOLDER / "zero_initialiser.cu",)
"""`float acc[128] = {0.0f};` is no bug: it must give no finding and the right output."""
