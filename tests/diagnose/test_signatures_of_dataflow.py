"""Recognisers where values are NaN or lost: pairs that are multiplied, values not observed, cases of one element."""

from dataclasses import replace

import numpy as np
import pytest

from tests.diagnose.test_signatures_of_stages import ALGORITHM, diverging, draw, only, recognised, split_case, stages_of
from weft.attention.dtypes import Array
from weft.attention.emulate import emulate
from weft.attention.shapes import Shape
from weft.core.records import Finding, Place, Run
from weft.diagnose.nodes import Event
from weft.diagnose.records import Case
from weft.diagnose.taps import Fact
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.registry import find_task
from weft.tasks.task import Workload


def with_facts(case: Case, *facts: Fact) -> Case:
    assert case.taps is not None
    return replace(case, taps=replace(case.taps, facts=facts))


def met(*places: tuple[int, int, int, int]) -> Fact:
    """Return the text of q[row, column] with k[row, column], of head 0."""
    shown = "; ".join(f"q[0, 0, {i}, {c}] with k[0, 0, {j}, {e}]" for i, c, j, e in places)
    return Fact("inner_mismatch", f"products of Q and K in different columns are summed: {shown}", 64, (0, 0, 0))


def nan_scores() -> Case:
    problem = draw()
    stages = stages_of(problem)
    wrong = np.where(np.arange(32) % 9 == 0, stages["scores", 0], np.nan).astype(np.float64)
    return diverging(problem, stages, ("scores", 0), wrong)


def test_strides_by_the_pairs_that_are_multiplied() -> None:
    """Rows stored 72 apart and read 32 apart: key r begins at element 32 r of the tile."""
    places = [(0, 0, *divmod(32 * r, 72)) for r in (1, 3, 4, 5)]
    found = recognised(with_facts(nan_scores(), met(*places)))
    assert found[0].name == "leading_dimension"
    assert "K, written with 72 elements per row, is read with 32" in found[0].message
    turned = [(row, column, i, c) for i, c, row, column in places]
    found = recognised(with_facts(nan_scores(), met(*turned)))
    assert "Q, written with 72 elements per row, is read with 32" in found[0].message


def test_a_transposed_tile_is_not_sheared() -> None:
    """Column 0 is multiplied with row 0 of every column: that is Q·K."""
    case = with_facts(nan_scores(), met(*((0, 0, 0, e) for e in (1, 2, 3, 4))))
    assert "leading_dimension" not in {each.name for each in recognised(case)}


def test_rows_of_a_sheared_q() -> None:
    """Stored 72 apart and read 32 apart: row 9 of a fragment is row 4, and rows with padding are NaN."""
    problem = draw()
    o = np.full(problem.q.shape, np.nan)
    for first in (0, 16, 32, 48):
        o[:, :, first], o[:, :, first + 9] = problem.gold.o[:, :, first], problem.gold.o[:, :, first + 4]
    o[:, :, 64] = problem.gold.o[:, :, 64]
    stages = stages_of(problem)
    case = replace(diverging(problem, stages, ("o", None), o, o), divergence=None)
    found = recognised(case)
    assert found[0].name == "leading_dimension"
    assert "Q, written with 72 elements per row, is read with 32" in found[0].message


@pytest.mark.parametrize(("offset", "name"), [(0x80, "leading_dimension"), (0x40, "uninitialised")])
def test_padding_that_is_read(offset: int, name: str) -> None:
    """64 elements of two bytes end at 0x80; an undefined element before that is no padding."""
    problem = draw()
    stages = stages_of(problem)
    case = diverging(problem, stages, ("u", 0), np.full(stages["u", 0].shape, np.nan))
    finding = Finding("I201", f"uninitialised shared memory read at sKV+0x{offset:x}")
    algorithm = replace(ALGORITHM, operand_dtype="f16")
    case = replace(case, algorithm=algorithm, run=Run(("kernel",), (finding,), "", 0, "", ""))
    assert recognised(case)[0].name == name
    # The product may not be observed, and only O shows that it is NaN.
    at_o = diverging(problem, stages, ("o", None), np.full(stages["o", None].shape, np.nan))
    case = replace(at_o, algorithm=algorithm, run=case.run)
    assert recognised(replace(case, lost=("u", 0)))[0].name == name
    assert recognised(case)[0].name == "uninitialised"


def test_k_that_is_no_longer_observed() -> None:
    problem = draw("fp8_sdpa", "split_128")
    stages = stages_of(problem)
    case = diverging(problem, stages, ("o", None), stages["o", None].astype(np.float64) + 1)
    assert case.taps is not None
    taps = {key: tap for key, tap in case.taps.taps.items() if key not in (("k", 1), ("v", 1))}
    case = replace(case, taps=replace(case.taps, taps=taps), lost=("k", 1))
    found = only(case, "region_overlap")
    assert found.stage == "k" and "only 0 of the elements multiplied" in found.message
    assert not recognised(replace(case, lost=None))


def test_a_row_of_q_that_k_overwrote() -> None:
    problem = draw()
    stages = stages_of(problem)
    q = problem.q.astype(np.float64)
    q[0, 0, 15, 48:] = problem.k[0, 0, 0, :16]
    case = diverging(problem, stages, ("scores", 0), q @ problem.k[:, :, :32].astype(np.float64).swapaxes(2, 3) / 8)
    assert case.taps is not None
    seen = case.taps.taps["q", None].observed.copy()
    seen[0, 0, 15, 48:] = False
    tap = replace(case.taps.taps["q", None], observed=seen)
    case = replace(case, taps=replace(case.taps, taps={**case.taps.taps, ("q", None): tap}))
    found = only(case, "region_overlap")
    assert found.stage == "q" and "columns 48-63 of Q in row 15" in found.message and "the K tile" in found.message


def test_partial_outputs_that_are_divided_already() -> None:
    case = split_case(lambda x: x)
    problem = case.attention
    assert problem is not None
    parts = emulate(replace(ALGORITHM, splits=4), problem.q, problem.k, problem.v).partials
    u, m, l = (np.stack([getattr(part, name) for part in parts], axis=2).astype(np.float64) for name in "oml")
    weight = np.exp(m - m.max(axis=2, keepdims=True))
    o = (u / l[..., None] * weight[..., None]).sum(axis=2) / (l * weight).sum(axis=2)[..., None]
    case = replace(case, arrays={**case.arrays, "part_u": u / l[..., None], "o": o.astype(np.float16)})
    found = only(case, "double_counted_split")
    assert found.message.startswith("part_u is already divided by l")


def tiny(sq: int, skv: int) -> AttentionProblem:
    problem = find_task("sdpa").draw(
        Workload(Shape("tiny", 1, 1, 1, sq, skv, 32), "f16", "none", "unit_normal", 0, "plain")
    )
    assert isinstance(problem, AttentionProblem)
    return problem


@pytest.mark.parametrize(
    ("factor", "name"),
    [(32**-0.5, "scale_twice"), (32**0.5, "scale_missing"), (np.log2(np.e), "exponent_base"), (32, "lane_owns_row")],
)
def test_one_score(factor: float, name: str) -> None:
    problem = tiny(1, 1)
    stages = stages_of(problem)
    only(diverging(problem, stages, ("scores", 0), factor * stages["scores", 0]), name)


def test_one_score_that_is_anything() -> None:
    """A single number is always some multiple of another: that names no cause."""
    problem = tiny(1, 1)
    stages = stages_of(problem)
    assert not recognised(diverging(problem, stages, ("scores", 0), 1.23 * stages["scores", 0]))


def test_one_score_of_a_transposed_key() -> None:
    """One key in blocks of 16: only the first row of each block is not padding."""
    problem = tiny(1, 1)
    stages = stages_of(problem)
    terms: Array = problem.q[0, 0, 0, ::16].astype(np.float64) * problem.k[0, 0, 0, ::16].astype(np.float64)
    case = diverging(problem, stages, ("scores", 0), terms.sum().reshape(1, 1, 1, 1) / np.sqrt(32))
    found = recognised(case)
    assert found[0].name == "k_not_transposed" and "16 × 16" in found[0].message


def test_the_stage_that_a_race_reaches() -> None:
    """The numbers are right by coincidence: the stage is that of the first event after the racing read."""
    problem = draw()
    stages = stages_of(problem)
    case = diverging(problem, stages, ("o", None), stages["o", None].astype(np.float64) + 1)
    assert case.taps is not None
    lines = {"q": 150, "k": 150, "products": 150, "scores": 174, "masked": 174, "m": 174, "v": 200, "p": 200, "u": 200}
    events = tuple(Event(0, (0, 0, 0), 0, 0, "", 0, Place("k.cu", line)) for line in (0, 150, 174, 200, 300))
    number = {event.place.line: i for i, event in enumerate(events) if event.place is not None}
    taps = {
        key: replace(tap, event=np.full(tap.event.shape, number[lines.get(key[0], 300)], np.int32))
        for key, tap in case.taps.taps.items()
    }
    for line, stage in ((149, "scores"), (199, "u")):
        race = Finding("R102", "race", place=Place("k.cu", line))
        late = Finding("R103", "race", place=Place("k.cu", 80), other=Place("k.cu", line))
        for finding in (race, late):
            run = Run(("kernel",), (finding,), "", 0, "", "")
            followed = replace(case.taps, taps=taps, events=events)
            found = recognised(replace(case, divergence=None, taps=followed, run=run))
            assert (found[0].name, found[0].stage) == ("missing_barrier", stage)
