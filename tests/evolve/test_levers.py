"""The space of levers: its lines, the possible points, and children that differ in exactly two levers."""

import re
from pathlib import Path
from random import Random

import pytest

import weft
from weft.core.errors import LaunchError, UsageError
from weft.engines.bind import bind_numbers
from weft.engines.launch_lines import parse_lines
from weft.evolve.levers import (
    Change,
    Exhausted,
    Point,
    Space,
    crossover,
    family,
    predicted,
    predicted_together,
    render,
    rung_source,
    space_of,
    start_space,
    two_levers,
)
from weft.kernels import RUNGS
from weft.kernels.ladder import Rung

LINES = """\
// weft: sizes   N=8
// weft: lever   TILE = 2 in 1, 2, 4 : elements of a CTA
// weft: lever   WARPS = 1 in 1, 2
// weft: lever   COPY = plain in plain, async : how
// weft: require TILE >= WARPS when COPY_async : a warp needs an element
// weft: out     x : f32[N]
// weft: scalar  bytes : i32 = COPY_async * 4 * TILE
// weft: launch  fill(x, N) grid(cdiv(N, TILE)) block(32 * WARPS) shared(bytes)
"""
KERNEL = LINES + "#if COPY_async\n#endif\n"


@pytest.fixture
def small(tmp_path: Path) -> Space:
    path = tmp_path / "fill.cu"
    path.write_text(KERNEL)
    return space_of(path)


def test_a_lever_is_a_define_with_its_values() -> None:
    lines = parse_lines(LINES, "fill.cu")
    assert [(lever.name, lever.default, lever.values, lever.about) for lever in lines.levers] == [
        ("TILE", "2", ("1", "2", "4"), "elements of a CTA"),
        ("WARPS", "1", ("1", "2"), ""),
        ("COPY", "plain", ("plain", "async"), "how"),
    ]
    assert [line.name for line in lines.defines] == ["TILE", "WARPS", "COPY"]
    bound = bind_numbers(lines, "fill.cu", sizes={}, defines={"TILE": "4", "COPY": "async"})
    assert bound.defines == {
        "TILE": "4",
        "WARPS": "1",
        "COPY": "async",
        "COPY_plain": "0",
        "COPY_async": "1",
    }
    assert bound.scalars["bytes"] == 16


def test_values_and_combinations_that_are_not_there_are_refused() -> None:
    lines = parse_lines(LINES, "fill.cu")
    with pytest.raises(UsageError, match=r"fill.cu:2: TILE is 3; its lever line has 1, 2, 4"):
        bind_numbers(lines, "fill.cu", sizes={}, defines={"TILE": "3"})
    broken = {"TILE": "1", "WARPS": "2", "COPY": "async"}
    message = r"fill.cu:5: `TILE >= WARPS` does not hold: .*TILE is 1, WARPS is 2 \(a warp needs an element\)"
    with pytest.raises(LaunchError, match=message):
        bind_numbers(lines, "fill.cu", sizes={}, defines=broken)
    bind_numbers(lines, "fill.cu", sizes={}, defines={**broken, "COPY": "plain"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lever TILE = 2", "must have the form"),
        ("lever TILE = 3 in 1, 2", "3 must be one of them"),
        ("lever TILE = 1 in 1, 1", "the values must be different"),
        ("lever TILE = 1 in 1, two", "all integers or all words"),
        ("lever COPY = plain in plain, a-b", "all integers or all words"),
        ("require TILE >= 1", "'TILE' is not known here"),
        ("require", "a formula is missing"),
    ],
)
def test_lines_that_are_wrong(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"k.cu:1: .*{message}"):
        parse_lines(f"// weft: {line}\n", "k.cu")


def test_a_macro_of_a_word_is_not_another_name() -> None:
    text = "// weft: define COPY_async = 1\n// weft: lever COPY = plain in plain, async\n"
    with pytest.raises(UsageError, match="COPY_async is declared"):
        parse_lines(text, "k.cu")


def test_the_example_of_the_reference_page_runs_at_every_point(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "launch_lines.md").read_text()
    (example,) = re.findall(r"^`copy\.cu`:\n```cuda\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "copy.cu"
    path.write_text(example)
    points = list(space_of(path).points())
    assert len(points) == 5  # 3 × 2, and vectors need two elements per lane
    for point in points:
        run, arrays = weft.load(path, defines=point.defines).run(weft.VirtualGPU(), sizes={"N": 77})
        assert run.clean
        assert (arrays["x"] == arrays["y"]).all()
        assert "unused" not in " ".join(run.defines.values())


def test_the_points_of_a_small_space(small: Space) -> None:
    # 3 × 2 × 2 combinations, and TILE 1 with two warps is refused for one of the two copies.
    points = list(small.points())
    assert len(points) == len(set(points)) == small.count() == 11
    assert small.default == Point.parse("TILE=2 WARPS=1 COPY=plain") == points[points.index(small.default)]
    assert all(Point.parse(point.text) == point for point in points)
    refused = small.refusal(Point.parse("TILE=1 WARPS=2 COPY=async"))
    assert refused is not None
    assert "a warp needs an element" in refused
    assert "has 1, 2, 4" in str(small.refusal(Point.parse("TILE=8 WARPS=1 COPY=plain")))
    assert "has the levers TILE, WARPS, COPY" in str(small.refusal(Point.parse("TILE=1")))


def test_the_space_of_attention() -> None:
    space = family("sdpa")
    assert len(space.levers) >= 8
    assert start_space("wmma") == (space, space.default)
    rung = {name: values[0] for name, values in RUNGS["wmma"].levers.items()}
    assert rung.items() <= space.default.defines.items()
    start = space.default
    refused = [
        ({"LAYOUT": "swizzled"}, "one stride"),
        ({"Q_AT": "registers"}, "fragments of a warp"),
        ({"PRODUCT": "mma", "BLOCK_M": "48", "WARPS": "2"}, "as many pieces of 16"),
        ({"PRODUCT": "mma", "WARPS": "1", "BLOCK_M": "64"}, "two pieces of 16 queries"),
        ({"BLOCK_M": "128", "BLOCK_N": "128"}, "shared memory of a CTA"),
    ]
    for values, reason in refused:
        assert reason in str(space.refusal(start.moved(values))), values
    assert space.refusal(start.moved({"PRODUCT": "mma"})) is None


CUDA_RUNGS = [rung for rung in RUNGS.values() if rung.language == "CUDA" and rung.name != "wmma"]


@pytest.mark.parametrize("rung", CUDA_RUNGS, ids=lambda rung: rung.name)
def test_a_rung_that_is_in_no_family_has_the_levers_of_the_table(rung: Rung) -> None:
    space, start = start_space(rung.name)
    assert {lever.name: (lever.default, lever.values) for lever in space.levers} == {
        name: (values[0], values) for name, values in rung.levers.items()
    }
    assert start == space.default
    # The start is the rung itself: the same lines, apart from the head of a rendered file.
    assert render(space, start).endswith(rung_source(rung.name))


def test_the_text_of_a_rung_states_its_head_dimensions() -> None:
    assert rung_source("scalar") == RUNGS["scalar"].path.read_text()
    own, stated = RUNGS["pipelined"].path.read_text().splitlines(), rung_source("pipelined").splitlines()
    (line,) = (each for each in stated if each not in own)
    assert line == "// weft: require D <= 128 : the rung takes D up to 128"
    # Launch lines may have continuations, which the line must not cut.
    lines = parse_lines(rung_source("pipelined"), "pipelined.cu")
    assert (len(lines.requires), len(lines.launches)) == (1, 2) and lines.launches[1].arguments


def test_children_differ_in_exactly_two_levers() -> None:
    space = family("sdpa")
    point, random, seen = space.default, Random(7), set()
    for _ in range(40):
        child = two_levers(space, point, random)
        assert len(space.changes(point, child)) == 2
        assert space.refusal(child) is None
        seen |= {change.lever for change in space.changes(point, child)}
        point = child
    assert seen == {lever.name for lever in space.levers}


def test_a_seed_decides_every_child() -> None:
    space = family("sdpa")
    lineages = []
    for _ in range(2):
        random, point, lineage = Random(3), space.default, []
        for _ in range(8):
            point = two_levers(space, point, random)
            lineage.append(point)
        lineages.append(lineage)
    assert lineages[0] == lineages[1]
    assert two_levers(space, space.default, Random(3)) != two_levers(space, space.default, Random(4))


def test_children_that_are_taken_are_not_made_again(small: Space) -> None:
    parent, taken = small.default, []
    with pytest.raises(Exhausted, match="one or two levers from TILE=2 WARPS=1 COPY=plain"):
        while True:
            taken.append(two_levers(small, parent, Random(0), avoid=set(taken)))
    # TILE and WARPS: 2 × 1; TILE and COPY: 2 × 1; WARPS and COPY: 1. Then one lever: TILE 2, WARPS 1, COPY 1.
    assert [len(small.changes(parent, child)) for child in taken] == [2] * 5 + [1] * 4


def test_a_space_of_one_lever_has_children() -> None:
    space, start = start_space("backward")
    assert {two_levers(space, start, Random(seed)).text for seed in range(9)} == {"WARPS=1", "WARPS=8"}


def test_crossover_takes_two_values_of_the_other(small: Space) -> None:
    parent, other = Point.parse("TILE=1 WARPS=1 COPY=plain"), Point.parse("TILE=4 WARPS=2 COPY=async")
    made = {crossover(small, parent, other, Random(seed)) for seed in range(30)}
    # Of the three pairs, WARPS and COPY would leave TILE 1 with two warps.
    assert made == {Point.parse("TILE=4 WARPS=2 COPY=plain"), Point.parse("TILE=4 WARPS=1 COPY=async")}
    assert crossover(small, parent, other, Random(0), avoid=made) is None
    assert crossover(small, parent, parent.moved({"TILE": "4"}), Random(0)) is None


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("#if COPY_asynch", "COPY_asynch is not a macro of lever COPY; test one of COPY_plain, COPY_async"),
        ("#if COPY == async", "COPY is not a macro of lever COPY"),
        ("#ifdef COPY_async", "always defined"),
        ("#if (TILE == 1 || TILE == 2) && WARPS == 1", "has !, &&, || and formulas only"),
    ],
)
def test_conditions_that_would_mislead(tmp_path: Path, condition: str, message: str) -> None:
    path = tmp_path / "fill.cu"
    path.write_text(f"{LINES}{condition}\n#endif\n")
    with pytest.raises(UsageError) as caught:
        space_of(path)
    assert f"fill.cu:{LINES.count(chr(10)) + 1}: " in str(caught.value)
    assert message in str(caught.value)


def test_a_file_without_levers_is_refused() -> None:
    with pytest.raises(UsageError, match="has no `// weft: lever` line"):
        space_of(RUNGS["wmma"].path)


def test_predictions_turn_around_with_the_change() -> None:
    there = {effect.counter: effect.direction for effect in predicted(Change("COPY", "plain", "async"))}
    back = {effect.counter: effect.direction for effect in predicted(Change("COPY", "async", "plain"))}
    assert there["ldgsts"] == "rises"
    assert there["sts"] == "falls"
    assert {counter: {"rises": "falls", "falls": "rises"}[way] for counter, way in there.items()} == back
    up = {effect.counter: effect.direction for effect in predicted(Change("STAGES", "1", "2"))}
    assert up["shared_bytes"] == "rises"
    assert predicted(Change("MINE", "1", "2")) == ()


def test_counters_with_opposite_effects_are_omitted() -> None:
    apart = predicted_together([Change("BLOCK_N", "32", "64"), Change("COPY", "plain", "async")])
    assert "registers" not in {effect.counter for effect in apart}
    together = predicted_together([Change("EXP", "exp", "exp2"), Change("TAIL", "every", "edge")])
    assert [effect.counter for effect in together].count("issued") == 1


def test_every_change_of_a_lever_has_a_prediction() -> None:
    for lever in family("sdpa").levers:
        for before in lever.values:
            for after in lever.values:
                assert before == after or predicted(Change(lever.name, before, after)), (lever.name, before, after)


def test_an_effect_holds_if_its_counter_moved_by_a_hundredth() -> None:
    (effect,) = [each for each in predicted(Change("TAIL", "every", "edge")) if each.counter == "alu"]
    assert effect.holds(1000, 980)
    assert not effect.holds(1000, 995)
    assert not effect.holds(1000, 1020)
    assert not effect.holds(0, 0)
