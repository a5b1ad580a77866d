"""A point as a plain file: readable, and the same program as the template with the point's macros."""

from pathlib import Path

import pytest

import weft
from weft.core.errors import UsageError
from weft.engines.launch_lines import parse_lines
from weft.evolve.levers import Point, family, render, space_of, start_of
from weft.supervise.canonical import canonical_text

TEMPLATE = """\
// Fills.
// weft: sizes   N=8
// weft: lever   TILE = 2 in 1, 2, 4
// weft: lever   COPY = plain in plain, async, odd
// weft: require TILE > 1 when COPY_async : why not
// weft: out     x : f32[N]
// weft: scalar  bytes : i32 = COPY_async * (4 * TILE) + COPY_odd * 16
// weft: launch  fill(x, N) grid(cdiv(N, TILE)) block(TILE) shared(bytes)
#if COPY_async && TILE == 4
four
#elif COPY_async || !COPY_plain
others
#ifdef NDEBUG
#if TILE > 1
release
#endif
#else
debug
#endif
#else
plain
#endif
int kind = COPY_odd;
"""


def rendered(tmp_path: Path, point: str) -> str:
    path = tmp_path / "fill.cu"
    path.write_text(TEMPLATE)
    return render(space_of(path), Point.parse(point))


def test_branches_are_decided_and_others_stay(tmp_path: Path) -> None:
    assert (
        rendered(tmp_path, "TILE=2 COPY=async")
        == """\
// Made from fill.cu at TILE=2 COPY=async
//
// Fills.
// weft: sizes   N=8
// weft: define  TILE = 2
// weft: out     x : f32[N]
// weft: scalar  bytes : i32 = 4 * TILE
// weft: launch  fill(x, N) grid(cdiv(N, TILE)) block(TILE) shared(bytes)
others
#ifdef NDEBUG
release
#else
debug
#endif
int kind = 0;
"""
    )
    body = rendered(tmp_path, "TILE=1 COPY=odd").partition("shared(bytes)\n")[2]
    assert body == "others\n#ifdef NDEBUG\n#else\ndebug\n#endif\nint kind = 1;\n"
    assert "bytes : i32 = 16\n" in rendered(tmp_path, "TILE=1 COPY=odd")
    assert rendered(tmp_path, "TILE=4 COPY=async").endswith("shared(bytes)\nfour\nint kind = 0;\n")
    assert rendered(tmp_path, "TILE=4 COPY=plain").endswith("shared(bytes)\nplain\nint kind = 0;\n")


def test_an_impossible_point_is_not_rendered(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"TILE=1 COPY=async is not possible: .*why not"):
        rendered(tmp_path, "TILE=1 COPY=async")


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ("#if COPY_odd\n#elif NDEBUG\n#endif\n", "fill.cu:25: one #if chain is decided by levers, or by other macros"),
        ("#if COPY_odd\n", "fill.cu:24: this #if is not closed"),
        ("#endif\n", "fill.cu:24: #endif without an #if"),
    ],
)
def test_branches_that_cannot_be_decided(tmp_path: Path, branches: str, message: str) -> None:
    path = tmp_path / "fill.cu"
    path.write_text(TEMPLATE + branches)
    with pytest.raises(UsageError, match=message):
        render(space_of(path), Point.parse("TILE=2 COPY=plain"))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"COPY": "async", "STAGES": "3", "LAYOUT": "plain", "EXP": "fused", "RESCALE": "lazy", "TAIL": "edge"},
        {"PRODUCT": "mma", "WARPS": "2", "LAYOUT": "swizzled", "Q_AT": "registers", "EXP": "exp2", "RESCALE": "moved"},
    ],
)
def test_the_rendered_file_is_the_same_program(tmp_path: Path, values: dict[str, str]) -> None:
    space = family("sdpa")
    point = start_of("wmma").moved(values)
    path = tmp_path / "point.cu"
    path.write_text(render(space, point))
    sizes = {"D": 32}
    plain = weft.load(path).compile(sizes=sizes)
    template = weft.load(space.path, defines=point.defines).compile(sizes=sizes)
    assert canonical_text(plain.ptx) == canonical_text(template.ptx)
    lines = parse_lines(path.read_text(), str(path))
    assert not lines.levers
    assert [require.formula.text for require in lines.requires] == [
        "HQ % HKV == 0",
        "D <= 128",
        "scale > 0",
    ]
    assert "#if" not in path.read_text()
    assert weft.load(path).grids(sizes=sizes) == weft.load(space.path, defines=point.defines).grids(sizes=sizes)
