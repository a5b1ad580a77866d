"""The operand that is wrong is named where it is computed: rescales, 1 / l, and the numbers that sums start at."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.diagnose.edited import explained, line_of, write
from weft.attention.shapes import Shape
from weft.core.records import Place, inlining_chain
from weft.diagnose.conclusion import place_of, stage_of
from weft.diagnose.diagnose import diagnose
from weft.diagnose.start_lines import start_line
from weft.judge.select import Choice, find_candidate
from weft.repair.repair import Repair

RAGGED = Shape("ragged", 1, 1, 1, 17, 65, 32)
"""Some blocks of queries, some tiles of keys, both with a short one."""
HEADS = Shape("heads", 2, 4, 2, 10, 20, 32)
CASES = (
    # In these kernels the rescale and the inverse are computed some lines above their use.
    ("wmma", "rescale = __expf(m_old - m_safe)", "rescale = exp2f(m_old - m_safe)", "l"),
    ("scalar", "l > 0.0f ? 1.0f / l", "l > 0.0f ? 2.0f / l", "o"),
    ("fa1", "m[r] = -CUDART_INF_F;", "m[r] = 0.0f;", "m"),
    ("wmma_qk", "float row_sum = 0.0f;", "float row_sum = 1.0f;", "l"),
    ("split_k", "float(q[q_row * D + d])", "int(q[q_row * D + d])", "q"),
    ("pipelined", "scale_log2 = scale * LOG2_E;", "scale_log2 = scale * LOG2_E * LOG2_E;", "scores"),
    # The mask is too wide by a key, and is missing.
    ("wmma", "score[j] = column < visible", "score[j] = column <= visible", "masked"),
    ("fa1", "key < end[r] ? p[r][n] * scale", "true ? p[r][n] * scale", "masked"),
    # The unit of the scores is lost where it is folded into the scale.
    ("pipelined", "scale_log2 = scale * LOG2_E;", "scale_log2 = scale;", "scores"),
    # Another input, and columns that no product uses.
    ("scalar", "p * float(v[row + d])", "p * float(k[row + d])", "v"),
    ("fa1", "(n * 32 + j) * STRIDE + d]", "(n * 32 + j) * STRIDE + d + 2]", "v"),
)


@pytest.mark.parametrize(("rung", "old", "new", "stage"), CASES, ids=[f"{row[0]}-{row[3]}" for row in CASES])
def test_its_line_is_named(rung: str, old: str, new: str, stage: str, tmp_path: Path) -> None:
    file = write(tmp_path, rung, old, new)
    regime = "unit_normal" if stage != "m" else "offsets"  # there some largest score is below 0
    found = explained(file, task="sdpa", shape=RAGGED, regime=regime)
    place = place_of(found)
    assert stage_of(found) == stage
    assert place is not None and place.line == line_of(file, new)


PARTS = (
    # With tiles of 32 keys no P is written: the line that reads it is right.
    (
        "wmma",
        "int j = 0; j < BLOCK_N / 32; ++j) {\n                const float p",
        "j = 0",
        "j = 1",
        "sP[row][j * 32 + lane] =",
    ),
    (
        "scalar",
        "for (int i = 0; i < PER_LANE; ++i) {\n        const int d = i * 32 + lane;\n        if (d < D) o",
        "++i",
        "i += 2",
        "i += 2",
    ),
)


@pytest.mark.parametrize(("rung", "where", "old", "new", "named"), PARTS, ids=[row[0] for row in PARTS])
def test_the_line_that_writes_only_a_part_is_named(
    rung: str, where: str, old: str, new: str, named: str, tmp_path: Path
) -> None:
    file = write(tmp_path, rung, where, where.replace(old, new))
    choice = Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
    candidate, supports = find_candidate(str(file), task="sdpa")
    place = place_of(diagnose(candidate, supports, choice, shrink=False))
    assert place is not None and place.line == line_of(file, named)


@pytest.mark.parametrize(
    ("rung", "old", "new", "name"),
    [
        # Two CTAs compute the same row of O.
        ("wmma_qk", "q_head = size_t(b) * HQ + h", "q_head = size_t(b) * HKV + h", "stored_twice"),
        # The keys of one head are read for another. Bounds of a loop are wrong above it.
        ("pipelined", "k + (kv_head * SKV + begin", "k + (kv_head * (SKV - 2) + begin", "wrong_base"),
        (
            "split_k",
            "= (SKV + SPLITS - 1) / SPLITS;",
            "= SKV / (SPLITS + 1);",
            "keys_skipped",
        ),
    ],
)
def test_the_line_of_the_index_is_named(rung: str, old: str, new: str, name: str, tmp_path: Path) -> None:
    file = write(tmp_path, rung, old, new)
    found = explained(file, task="sdpa", shape=HEADS if name != "keys_skipped" else Shape("keys", 1, 2, 1, 4, 33, 32))
    place = place_of(found)
    assert found.signatures[0].name == name
    assert place is not None and abs(place.line - line_of(file, new)) <= 3


def test_a_maximum_over_the_scores_of_several_rows_is_named_where_they_meet(tmp_path: Path) -> None:
    old, new = "fmaxf(s[j][2 * r], s[j][2 * r + 1])", "fmaxf(s[j][2 * r], s[2 * r + 1][j])"
    file = write(tmp_path, "fp8_pipelined", old, new)
    found = explained(file, task="quantised_sdpa", shape=Shape("one_tile", 1, 1, 1, 16, 16, 32))
    place = place_of(found)
    assert found.first is not None and found.first.stage == "m" and found.signatures[0].name == "mixed_rows"
    assert place is not None and place.line == line_of(file, new)


def test_keys_that_a_mask_hides_are_not_overwritten(tmp_path: Path) -> None:
    """Rows see a key too few: their last key is not multiplied, and the first row stores 0."""
    file = write(tmp_path, "split_k", "diagonal + 1));", "diagonal + 0));")
    found = explained(file, mask="top_left")
    assert found.signatures[0].name == "causal_shift" and stage_of(found) == "masked"
    assert "region_overlap" not in [each.name for each in found.signatures]
    # An edit of the line does not change what the signature has explained.
    place = place_of(found)
    assert place is not None and stage_of(replace(found, repairs=(Repair(place, "0 → 1"),))) == "masked"


def test_a_case_is_not_shrunk_to_sizes_that_show_nothing(tmp_path: Path) -> None:
    """With D = 32 the loop that loads Q has no iteration; with D = 64 it has one of two."""
    loop = "for (int i = 0; i < H::COLUMNS / 32; ++i)\n        load_pieces(a_q"
    file = write(tmp_path, "fp8_pipelined", loop, loop.replace("i = 0", "i = 1"))
    choice = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
    candidate, supports = find_candidate(str(file), task="quantised_sdpa")
    found = diagnose(candidate, supports, choice)
    assert found.verdict.workload.shape.d == 64 and stage_of(found) == "q"
    assert line_of(file, "load_pieces(a_q") in [at.line for at in inlining_chain(place_of(found))]


def test_a_store_to_the_wrong_workspace_is_named(tmp_path: Path) -> None:
    """The compiler removes the store that the other one overwrites: only the text has both."""
    file = write(tmp_path, "split_k", "part_l[part] = l;", "part_m[part] = l;")
    choice = Choice(shapes=("split_65",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
    candidate, supports = find_candidate(str(file), task="sdpa")
    found = diagnose(candidate, supports, choice, shrink=False)
    place = place_of(found)
    assert found.signatures[0].name == "wrong_workspace" and "part_l is never written" in found.signatures[0].message
    assert place is not None and abs(place.line - line_of(file, "part_m[part] = l;")) <= 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("float m = 0.0f, l = 1.0f;\nfor (;;) {\n    m = fmaxf(m, s);", 1),
        ("float m = 1.0f;\nint i = 0;\nm = fmaxf(m, i);", None),  # an integer is no start, 1 is another number
        ("float m = 0.0f;\n// m = 0.0f would be wrong\nm = fmaxf(m, s);", 1),
        ("float dot = 0.0f;\nsM[0] = 0.0f;\nm_old = sM[row], s = dot;\nm_new = fmaxf(m_old, s);", 2),
        ("m = tl.zeros((16,), tl.float32)\nm = tl.maximum(m, s)", 1),
        ("m = tl.full((16,), 0.0, tl.float32)\nnew = tl.maximum(m, s)\nsafe = tl.where(new == 1, 0, new)", 1),
    ],
)
def test_the_start_is_found_in_the_text(text: str, line: int | None, tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text(text)
    found = start_line(Place(str(file), text.count("\n") + 1), lambda number: number == 0)
    assert (found.line if found is not None else None) == line


def test_a_wrong_offset_in_shared_memory_is_no_wrong_pointer(tmp_path: Path) -> None:
    """K arrives in shared memory, but V is read in its place: the pointer of the load is right."""
    file = write(tmp_path, "scalar", "        float products = 0.0f;\n", """\
        __shared__ float tile[2][WARPS][D];
        float (*const own)[WARPS][D] = tile;
        for (int d = lane; d < D; d += 32) {
            own[0][threadIdx.x / 32][d] = float(k[row + d]);
            own[1][threadIdx.x / 32][d] = float(v[row + d]);
        }
        float products = 0.0f;
""")  # fmt: skip
    text = file.read_text()
    assert text.count("* float(k[row + d])") == text.count("* float(v[row + d])") == 1
    for name, place in (("k", 1), ("v", 1)):
        text = text.replace(f"* float({name}[row + d])", f"* own[{place}][threadIdx.x / 32][d]")
    file.write_text(text)
    found = explained(file)
    named = [signature for signature in found.signatures if signature.name == "wrong_operand"]
    assert len(named) == 1 and named[0].rank < 0.9 and named[0].place is None
    assert "shared memory" in named[0].cure
