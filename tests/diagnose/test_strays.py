"""Accesses outside their buffers are traced to the line of the wrong index."""

from pathlib import Path

from weft.attention.shapes import Shape
from weft.core.records import inlining_chain
from weft.diagnose.conclusion import place_of, sentence

from .edited import explained, line_of, write

TWO_BATCHES = Shape("two_batches", 2, 2, 1, 5, 9, 32)


def test_a_line_that_all_stray_accesses_share_is_faulty(tmp_path: Path) -> None:
    """The row of Q, O and LSE is computed once: every use strays, K and V do not."""
    kernel = write(tmp_path, "scalar", "+ h) * SQ + query", "+ h) * (SQ + 1) + query")
    found = explained(kernel, shape=TWO_BATCHES)
    place = place_of(found)
    assert found.causes[0].code == "M101" and found.causes[0].place is not None
    wrong = line_of(kernel, "* (SQ + 1) + query")
    assert place is not None and place.line == wrong != found.causes[0].place.line


def test_a_line_that_other_accesses_use_is_not_faulty(tmp_path: Path) -> None:
    """The head of K and V is wrong: their lines are faulty, not the row of the queries, which Q and O use correctly."""
    kernel = write(tmp_path, "scalar", "(b) * HKV + h / (HQ / HKV)", "(b) * HQ + h / (HQ / HKV)")
    found = explained(kernel, shape=TWO_BATCHES)
    blamed = [at.line for at in found.strayed]
    access = line_of(kernel, "float(k[row + d])")
    assert f"accessed at line {access} with an index that is computed here" in sentence(found)
    assert line_of(kernel, "(b) * HQ + h / (HQ / HKV)") in blamed
    uses = ("float(k[row + d])", "float(v[row + d])", "o[q_row * D + d] =", "const int query =", ") * SQ + query")
    assert not {line_of(kernel, use) for use in uses} & set(blamed)


def test_an_index_that_is_wrong_in_its_own_line(tmp_path: Path) -> None:
    kernel = write(tmp_path, "scalar", "? float(q[q_row * D + d])", "? float(q[q_row * D + d + 1])")
    place = place_of(explained(kernel, shape=TWO_BATCHES))
    assert place is not None and place.line == line_of(kernel, "float(q[q_row * D + d + 1])")


def test_the_head_is_faulty_where_a_whole_cta_strays(tmp_path: Path) -> None:
    """Every access of the second head to K and V is outside: its head is wrong, not the row, which changes by key."""
    kernel = write(tmp_path, "scalar", "HKV + h / (HQ / HKV)", "HKV + h")
    place = place_of(explained(kernel, shape=Shape("two_heads", 1, 2, 1, 5, 9, 32)))
    assert place is not None and place.line == line_of(kernel, "HKV + h;")


def test_an_index_is_right_where_every_result_is(tmp_path: Path) -> None:
    """The copy of a tile behind the last one reads outside of K and V. Nothing uses it: its condition is lost."""
    kernel = write(tmp_path, "fp8_pipelined", "if (first_key + BLOCK_N < end) bring();", "if (true) bring();")
    found = explained(kernel, task="quantised_sdpa", shape=Shape("one_tile", 1, 1, 1, 8, 16, 32))
    assert found.causes[0].code == "M101" and found.strayed == ()
    assert "every result is right, so its condition is wrong or missing" in sentence(found)
    assert line_of(kernel, "if (true) bring();") in [at.line for at in inlining_chain(place_of(found))]
