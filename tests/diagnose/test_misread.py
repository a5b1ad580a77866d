"""Wrong indices: which input is misread, which keys are left out, which element is stored twice."""

from pathlib import Path

import pytest

from tests.diagnose.edited import explained, line_of, write
from weft.attention.shapes import Shape
from weft.diagnose.conclusion import cure_place_of, place_of, stage_of

WIDE = Shape("wide", 1, 1, 1, 2, 3, 40)
"""Two columns per lane for some lanes."""


def test_columns_of_q_that_no_product_uses(tmp_path: Path) -> None:
    """Lane 0 reads columns 0 and 33 of Q, where K's are 0 and 32: column 32 of Q is never used."""
    file = write(
        tmp_path,
        "scalar",
        "q_lane[i] = d < D ? float(q[q_row * D + d])",
        "q_lane[i] = d + i < D ? float(q[q_row * D + d + i])",
    )
    found = explained(file, shape=WIDE)
    assert found.signatures[0].name == "misread_input" and "columns 32 of Q" in found.signatures[0].message
    assert stage_of(found) == "q"
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "q_lane[i] =")


def test_keys_that_a_loop_leaves_out(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "for (int key = 0; key < end; ++key)", "for (int key = 0; key < end; key += 2)")
    found = explained(file, shape=Shape("few", 1, 1, 1, 2, 8, 8))
    assert found.signatures[0].name == "keys_skipped" and "every 2nd" in found.signatures[0].message
    assert stage_of(found) == "k"
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "key += 2")


def test_an_output_that_is_cut_to_integers_is_not_called_empty(tmp_path: Path) -> None:
    """All of O is below 1, so all of it becomes 0, though U is right."""
    file = write(tmp_path, "scalar", "ELEMENT(u[i] * inverse)", "ELEMENT(truncf(u[i] * inverse))")
    found = explained(file, shape=Shape("few", 1, 1, 1, 2, 24, 8))
    assert not found.case.arrays["o"].any()
    assert found.signatures[0].name == "cut_to_integer" and stage_of(found) == "o"
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "truncf(u[i] * inverse)")


def test_an_element_that_two_warps_store(tmp_path: Path) -> None:
    """Lane 0 of the second warp uses the first warp's index: it stores to that row, but has other sums."""
    file = write(tmp_path, "scalar", "* WARPS + threadIdx.x / 32;", "* WARPS + threadIdx.x / 33;")
    found = explained(file, shape=Shape("few", 1, 1, 1, 4, 8, 8))
    assert found.signatures[0].name == "stored_twice"
    assert stage_of(found) == "o"


@pytest.mark.parametrize(
    ("tensor", "index", "size"), [("q", "q_row * D + d", 16), ("k", "row + d", 64), ("v", "row + d", 64)]
)
def test_an_input_that_is_read_beyond_its_end(tensor: str, index: str, size: int, tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", f"float({tensor}[{index}])", f"float({tensor}[{index} + {size}])")
    found = explained(file, shape=Shape("few", 1, 1, 1, 2, 8, 8))
    assert found.causes[0].code == "M101"
    assert stage_of(found) == tensor


def test_a_stray_read_of_the_result_is_no_race(tmp_path: Path) -> None:
    """Heads of K that do not exist are in the buffers after it, the last one in O, which others write."""
    file = write(tmp_path, "fa1", "h / (HQ / HKV);", "h;")
    found = explained(file, shape=Shape("few", 1, 8, 2, 64, 64, 64))
    assert {finding.code for finding in found.case.findings} >= {"M101", "R102"}
    assert found.causes[0].code == "M101"
    assert not {signature.name for signature in found.signatures} & {"missing_barrier", "uninitialised"}
    place = place_of(found)
    assert place is not None and abs(place.line - line_of(file, "const size_t kv_head")) <= 1


def test_a_wrong_mask_names_the_line_that_chooses_it(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "diagonal + 1));", "diagonal + 2));")
    found = explained(file, shape=Shape("few", 1, 1, 1, 8, 8, 8), mask="top_left")
    assert found.signatures[0].name == "causal_shift" and stage_of(found) == "masked"
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "const int diagonal = CAUSAL == 1")


def test_a_missing_barrier_has_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "fa1", "        __syncthreads();  // every warp is done with K\n", "\n")
    found = explained(file)
    assert found.signatures[0].name == "missing_barrier"
    after = cure_place_of(found)
    # After the loop that reads K: its bracket, and the line where the barrier was.
    assert after is not None and after.line == line_of(file, "(sKV, v_head, first_key") - 2
    reads, writes = line_of(file, "const float k_value = sKV"), line_of(file, "(sKV, v_head, first_key")
    assert found.signatures[0].cure == f"add a barrier after line {after.line}, between line {reads} and line {writes}"
    races = [cause for cause in found.causes if cause.code in ("R102", "R103") and cause.warp != cause.other_warp]
    assert {cause.code for cause in races} == {"R102", "R103"}
    assert {cause.remedy for cause in races} == {f"add a barrier after line {after.line}"}, "one place decides the line"


def test_a_barrier_that_is_missing_at_the_end_of_a_loop_belongs_after_its_last_read(tmp_path: Path) -> None:
    file = write(tmp_path, "fa1", "        __syncthreads();  // every warp is done with V of the tile before\n", "\n")
    found = explained(file)
    reads, writes = line_of(file, "v_value[i] = d < D ? sKV"), line_of(file, "(sKV, k_head, first_key")
    after = cure_place_of(found)
    assert after is not None
    gap = f"between line {reads} and line {writes} of the next iteration"
    assert found.signatures[0].cure == f"add a barrier after line {after.line}, {gap}"
    races = [cause for cause in found.causes if cause.code in ("R102", "R103") and cause.warp != cause.other_warp]
    assert {cause.code for cause in races} == {"R102", "R103"}
    assert {cause.remedy for cause in races} == {f"add a barrier after line {after.line}"}, "not after the write"
