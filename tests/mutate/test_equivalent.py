"""When a mutant does not count: refused by the compiler, the same PTX, or the same runs."""

from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.judge.candidate import Candidate
from weft.judge.select import Choice, find_candidate, workloads
from weft.mutate.equivalent import LARGER, Build, Original, builds, canonical, larger_workloads
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SMALL = (Workload(SHAPES["one_token"], "f16", "none", "unit_normal", 1009),)


@pytest.fixture(scope="module")
def original() -> Original:
    return Original(*find_candidate("scalar", task=None))


def edited(folder: Path, original: Original, old: str, new: str) -> Candidate:
    text = original.candidate.path.read_text()
    assert text.count(old) == 1
    file = folder / "edited.cu"
    file.write_text(text.replace(old, new))
    return Candidate(file, "scalar")


def test_a_copy_elsewhere_has_the_same_ptx_and_the_same_runs(tmp_path: Path, original: Original) -> None:
    copy = edited(tmp_path, original, "l = l * rescale + p;", "l = l * rescale + p; ;")
    assert original.compare(copy) is Build.SAME
    assert original.same_runs(copy, SMALL)


def test_a_mistake_differs_in_both(tmp_path: Path, original: Original) -> None:
    wrong = edited(tmp_path, original, "l = l * rescale + p;", "l = l * rescale - p;")
    assert original.compare(wrong) is Build.DIFFERENT
    assert not original.same_runs(wrong, SMALL)


def test_one_that_only_a_mask_shows_differs(tmp_path: Path, original: Original) -> None:
    wrong = edited(tmp_path, original, "diagonal + 1)", "diagonal + 2)")
    assert original.compare(wrong) is Build.DIFFERENT
    assert original.same_runs(wrong, SMALL)  # without a mask


def test_what_does_not_compile_is_no_mutant(tmp_path: Path, original: Original) -> None:
    assert original.compare(edited(tmp_path, original, "m = m_new;", "m = m_newer;")) is Build.REFUSED


def test_lines_files_and_unused_constants_do_not_count() -> None:
    one = (
        ".global .align 4 .u32 N = 1;\n.global .align 1 .b8 $str$1[3] = {47, 97, 0};\n.loc 1 2 3\n"
        "$L__tmp1:\nadd.s32 %r1, %r2, 1; // here\n\t.section\t.debug_str\n"
    )
    two = ".global .align 4 .u32 N = 2;\n.loc 1 9 9\nadd.s32 %r1, %r2, 1;\n"
    assert canonical(one) == canonical(two)
    assert canonical(one) != canonical(two.replace("%r2, 1", "%r2, 2"))
    used = "ld.global.u32 %r1, [N];\n"
    assert canonical(one + used) != canonical(two + used)


def test_builds_cover_masks_types_and_head_sizes(original: Original) -> None:
    found = list(builds(original.supports))
    assert {each.mask for each in found} == {"none", "top_left", "bottom_right"}
    assert {each.dtype for each in found} == {"f16", "bf16", "f32"}
    assert {each.shape.d for each in found} == {32, 64, 80, 96, 128}


@pytest.mark.parametrize("task", ["sdpa", "fp8_sdpa", "quantised_sdpa"])
def test_larger_shapes_are_in_no_quick_selection(task: str) -> None:
    assert not set(LARGER) & set(TASKS[task].quick.shapes)


def test_larger_workloads_are_not_the_judges(original: Original) -> None:
    supports = original.supports
    judged = {(each.shape, each.seed) for each in workloads(supports, Choice())}
    found = larger_workloads(supports)
    assert len(found) >= 20
    assert not judged & {(each.shape, each.seed) for each in found}
    assert {each.mask for each in found} == set(supports.masks)
    assert {each.dtype for each in found} == set(supports.dtypes)
    assert max(each.shape.products for each in found) > max(shape.products for shape, _ in judged)
