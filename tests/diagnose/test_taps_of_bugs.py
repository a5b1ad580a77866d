"""Wrong kernels: stages before the bug are right, the bug's stage is wrong, and the dataflow shows why."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.recorded import KERNELS, Recorded, record
from tests.in_turn import one_in
from weft.attention.reference import Causal
from weft.attention.shapes import Shape

SHAPE = Shape("two_tiles", 1, 2, 2, 16, 40, 16)
FEW = Shape("few", 1, 2, 2, 2, 8, 16)
RIGHT, WRONG = 1e-3, 2e-2
"""What rounding P to f16 can do to a stage is below the one, what the bugs do far above the other."""


def _changed(
    tmp_path: Path, old: str, new: str, causal: Causal = None, *, rung: str = "fp8_wmma", shape: Shape = SHAPE
) -> Recorded:
    text = (KERNELS / f"{rung}.cu").read_text()
    assert text.count(old) == 1, f"{old!r} must be in {rung}.cu once"
    path = tmp_path / "changed.cu"
    path.write_text(text.replace(old, new))
    return record(rung, shape, causal, position=(0, 1), path=path)


def _codes(recorded: Recorded) -> list[str]:
    return [fact.code for fact in recorded.taps.facts]


def test_k_not_transposed(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "half, wmma::col_major> b;", "half, wmma::row_major> b;")
    assert recorded.worst("k", 0) <= RIGHT
    assert recorded.taps.at("products", 0) is None  # no sum is a product of one query and one key
    assert recorded.worst("scores", 0) > WRONG  # found by the row of V that its weight is multiplied with
    assert _codes(recorded) == ["inner_mismatch", "mixed_keys"]
    assert "q[0, 1, 0, 0] with k[0, 1, 0, 1]" in recorded.taps.facts[0].message


def test_u_rescaled_in_one_column_only(tmp_path: Path) -> None:
    old = "sU[row][column] *= rescale;"
    recorded = _changed(tmp_path, old, f"if (column == 0) {old}", shape=replace(SHAPE, skv=56))
    for stage in ("scores", "m", "p", "l"):
        assert recorded.worst(stage, 1) <= RIGHT
    assert recorded.worst("u", 0) <= RIGHT
    tap = recorded.taps.at("u", 1)
    assert tap is not None
    wrong = np.abs(tap.values - recorded.expected["u", 1])[0, 1] > WRONG
    assert not wrong[:, 0].any() and wrong[:, 1:].any()


def test_l_forgets_earlier_tiles(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "sL[row] = sL[row] * rescale + row_sum;", "sL[row] = row_sum;")
    assert recorded.worst("l", 0) <= RIGHT and recorded.worst("u", 1) <= RIGHT
    assert recorded.worst("l", 1) > WRONG
    tap = recorded.taps.at("l", 1)
    assert tap is not None and tap.keys is not None
    assert np.flatnonzero(tap.keys[0, 1, 0]).tolist() == list(range(32, 40))


def test_m_forgets_earlier_tiles(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "m_new = fmaxf(m_old, warp_max(row_max));", "m_new = warp_max(row_max);")
    assert recorded.worst("scores", 1) <= RIGHT and recorded.worst("m", 0) <= RIGHT
    assert recorded.worst("m", 1) > WRONG


def test_scaled_twice(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "sS[row][column] * scale :", "sS[row][column] * scale * scale :")
    assert recorded.worst("products", 0) <= RIGHT
    tap = recorded.taps.at("scores", 0)
    assert tap is not None
    ratio = tap.values[tap.observed] / recorded.expected["scores", 0][tap.observed]
    assert np.allclose(ratio, 1 / np.sqrt(SHAPE.d), rtol=1e-3)


@pytest.mark.parametrize(("shifted", "by"), one_in(2, [("diagonal", -1), ("diagonal + 2", 1)], several=True))
def test_diagonal_off_by_one(tmp_path: Path, shifted: str, by: int) -> None:
    recorded = _changed(tmp_path, "min(SKV, diagonal + 1)", f"min(SKV, {shifted})", "top_left")
    assert recorded.worst("scores", 0) <= RIGHT
    tap = recorded.taps.at("masked", 0)
    assert tap is not None
    sees = np.isfinite(tap.values[0, 1]) & tap.observed[0, 1]
    for query in range(1, 16):
        assert np.flatnonzero(sees[query]).max() == query + by


def test_weights_are_multiplied_with_other_rows_of_v(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "load_matrix_sync(b, &sKV[n][column]", "load_matrix_sync(b, &sKV[n ^ 16][column]")
    assert recorded.worst("p", 0) <= RIGHT and recorded.worst("u", 0) > WRONG
    assert _codes(recorded) == ["key_mismatch"]


def test_another_heads_keys(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "kv_head = size_t(b) * HKV + h / (HQ / HKV);", "kv_head = size_t(b) * HKV;")
    assert _codes(recorded) == ["head_mismatch"]


def test_the_scale_of_k_on_v(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "v_step = v_scale[kv_head] * STEP", "v_step = k_scale[kv_head] * STEP")
    assert recorded.worst("p", 0) <= RIGHT and recorded.worst("v", 0) > WRONG


def test_not_normalised(tmp_path: Path) -> None:
    recorded = _changed(tmp_path, "ELEMENT(sU[row][d] * inverse)", "ELEMENT(sU[row][d])")
    assert recorded.worst("u", 1) <= RIGHT and recorded.worst("l", 1) <= RIGHT
    assert recorded.worst("o") > WRONG


def test_a_mistake_of_one_lane_names_that_lane(tmp_path: Path) -> None:
    halved = "__float2half_rn(lane == 5 ? 0.5f * p : p)"
    recorded = _changed(tmp_path, "sP[row][j * 32 + lane] = __float2half_rn(p)", f"sP[row][j * 32 + lane] = {halved}")
    tap = recorded.taps.at("p", 0)
    assert tap is not None
    wrong = np.abs(tap.values - recorded.expected["p", 0])[0, 1] > 1e-3 * recorded.expected["p", 0][0, 1] + 1e-6
    assert set(np.argwhere(wrong)[:, 1].tolist()) == {5}
    row = int(np.argwhere(wrong)[0, 0])
    maker = recorded.taps.maker(tap, (0, 1, row, 5))
    assert maker is not None and maker.lane == 5 and maker.warp == row % 4


def test_a_split_counted_twice(tmp_path: Path) -> None:
    recorded = _changed(
        tmp_path,
        "u += expf(part_m[part] - m) * part_u[part * D + d];",
        "u += (split == 0 ? 2.0f : 1.0f) * expf(part_m[part] - m) * part_u[part * D + d];",
        rung="split_k",
        shape=FEW,
    )
    last = max(tile for stage, tile in recorded.taps.taps if stage == "u" and tile is not None)
    assert recorded.worst("u", last) <= RIGHT and recorded.worst("o") > WRONG


def test_the_last_split_is_left_out(tmp_path: Path) -> None:
    loop = (
        "for (int split = 0; split < {}; ++split) {{\n            const size_t part = part_row(b, h, split, query, SQ);"
    )
    recorded = _changed(tmp_path, loop.format("SPLITS"), loop.format("SPLITS - 1"), rung="split_k", shape=FEW)
    assert _codes(recorded) == ["missing_keys"]
    assert "2 keys (6, 7)" in recorded.taps.facts[0].message
