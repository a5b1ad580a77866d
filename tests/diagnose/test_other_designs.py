"""In kernels that share keys and sums in other ways than the ladder, the named line is the mistake's."""

from pathlib import Path

import pytest

from tests.diagnose.edited import explained, line_of
from weft.attention.shapes import Shape
from weft.diagnose.conclusion import place_of, sentence, stage_of
from weft.diagnose.diagnose import diagnose
from weft.diagnose.records import Diagnosis
from weft.diagnose.signatures import SIGNATURES
from weft.judge.select import Choice, find_candidate

DESIGNS = (Path(__file__).parent / "designs", Path(__file__).parents[2] / "benchmarks" / "gate_kernels" / "right")
SMALL = Shape("small", 1, 1, 1, 1, 16, 32)
MERGED_L = "l = l * a + __shfl_xor_sync(0xffffffffu, l, offset) * c;"
MERGED_U = "u[d] = u[d] * a + __shfl_xor_sync(0xffffffffu, u[d], offset) * c;"


def edited(folder: Path, name: str, old: str, new: str) -> Path:
    path = next(at / name for at in DESIGNS if (at / name).is_file())
    text = path.read_text()
    assert text.count(old) == 1
    file = folder / name
    file.write_text(text.replace(old, new))
    return file


def line_and_stage(found: Diagnosis) -> tuple[int, str]:
    place = place_of(found)
    return (place.line if place is not None else 0), stage_of(found)


@pytest.mark.parametrize(
    ("name", "old", "new", "stage"),
    [
        ("butterfly.cu", MERGED_L, "l = l * c + __shfl_xor_sync(0xffffffffu, l, offset) * a;", "l"),
        ("butterfly.cu", MERGED_U, "u[d] = u[d] * c + __shfl_xor_sync(0xffffffffu, u[d], offset) * a;", "u"),
        ("key_parallel.cu", "sL[warp] * a + sL[warp + half] * c;", "sL[warp] * c + sL[warp + half] * a;", "l"),
        (
            "key_parallel.cu",
            "sU[warp][d] * a + sU[warp + half][d] * c;",
            "sU[warp][d] * c + sU[warp + half][d] * a;",
            "u",
        ),
    ],
)
def test_exchanged_weights_of_a_merge(tmp_path: Path, name: str, old: str, new: str, stage: str) -> None:
    """The parts of warps and lanes are right, though none of them is the running sum of the reference."""
    file = edited(tmp_path, name, old, new)
    found = explained(file, shape=SMALL)
    assert line_and_stage(found) == (line_of(file, new), stage)
    assert "nothing was accumulated" not in sentence(found)


def test_lanes_that_are_left_out_of_l(tmp_path: Path) -> None:
    file = edited(tmp_path, "mma_registers.cu", "        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);\n", "")
    found = explained(file, shape=Shape("small", 1, 1, 1, 16, 16, 32))
    line, stage = line_and_stage(found)
    assert (abs(line - line_of(file, "l[r], 1);")) <= 1, stage) == (True, "l")
    assert "lacks visible keys: 8 keys (4, 5, 6, 7, 12, 13, 14, 15)" in sentence(found)


def test_p_in_the_registers_of_other_rows(tmp_path: Path) -> None:
    """What follows belongs to no row, so no stage shows it: the matrix product is named, not the store of O."""
    pairs = "pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])"
    file = edited(tmp_path, "mma_registers.cu", pairs, "pack(s[1][2], s[1][3]), pack(s[1][0], s[1][1])")
    found = explained(file, shape=Shape("small", 1, 1, 1, 16, 16, 32))
    place = place_of(found)
    assert place is not None and place.inlined_at is not None and stage_of(found) == "u"
    assert place.inlined_at.line == line_of(file, "mma(u[d], p, b_v[0], b_v[1]);")
    assert sentence(found).startswith("values of different query rows are combined: u[0, 0, 0, 0] with u[0, 0, 8, 0]")


@pytest.mark.parametrize("name", ["butterfly.cu", "key_parallel.cu"])
def test_parts_of_the_keys_are_no_mistake(tmp_path: Path, name: str) -> None:
    """With a wrong LSE alone, every stage before it is right."""
    file = edited(tmp_path, name, "logf(", "log2f(")
    found = explained(file, shape=SMALL)
    assert stage_of(found) == "lse"
    assert line_and_stage(found)[0] == line_of(file, "log2f(")


@pytest.mark.parametrize(
    ("start", "said"),
    [("start, l = start;", "the compiler warns at "), ("start, *at = &start, l = *at;", "I203: read of ")],
    ids=["warned of", "not warned of"],
)
def test_a_mistake_that_only_the_debug_build_shows(start: str, said: str, tmp_path: Path) -> None:
    """The optimiser takes a variable without a value as the value that suits it."""
    file = edited(tmp_path, "lane_per_key.cu", "m = -CUDART_INF_F, l = 0.0f;", f"m = -CUDART_INF_F, {start}")
    found = diagnose(*find_candidate(str(file), task=None), Choice(shapes=("small",), masks=("none",), seeds=(0,)))
    place = place_of(found)
    assert not found.healthy and sentence(found).startswith(said)
    assert place is not None and place.line == line_of(file, start)


def test_a_scale_in_q_is_no_second_scale(tmp_path: Path) -> None:
    """Q is scaled when it is loaded: whatever else is wrong, the scale is not applied twice."""
    file = edited(tmp_path, "lane_per_key.cu", "l = l * rescale + warp_sum(p);", "l = l + warp_sum(p);")
    found = explained(file, shape=Shape("small", 1, 1, 1, 4, 48, 32))
    assert line_and_stage(found) == (line_of(file, "l = l + warp_sum(p);"), "l")
    assert "scale_twice" not in [each.name for recognise in SIGNATURES if (each := recognise(found.case))]
