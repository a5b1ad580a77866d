"""Recognisers where the run shows more than the output: stages, workspaces, findings, launches and builds."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm, emulate
from weft.attention.quantise import SimFp8
from weft.attention.shapes import SHAPES
from weft.core.records import Finding, Place, Run
from weft.core.status import Status
from weft.diagnose.diagnose import expected
from weft.diagnose.records import Case, Divergence, LaunchJudgement, Signature
from weft.diagnose.signatures import SIGNATURES
from weft.diagnose.signatures.start_values import wrong_start
from weft.diagnose.taps import Key, StageTap, Taps
from weft.judge.candidate import Candidate
from weft.judge.verdict import Verdict
from weft.kernels.ladder import RUNGS
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.registry import find_task
from weft.tasks.task import Workload

ALGORITHM = Algorithm(block_m=32, block_n=32, out_dtype="f16")
Stages = Mapping[Key, Array]


def draw(
    task: str = "sdpa", shape: str = "split_65", mask: str = "none", regime: str = "unit_normal"
) -> AttentionProblem:
    encoding = "plain" if task == "sdpa" else "sim_fp8"
    problem = find_task(task).draw(Workload(SHAPES[shape], "f16", mask, regime, 0, encoding))
    assert isinstance(problem, AttentionProblem)
    return problem


def stages_of(problem: AttentionProblem) -> Stages:
    return expected(ALGORITHM, problem.q, problem.k, problem.v, causal=problem.causal)


def tapped(stages: Stages) -> Taps:
    def tap(key: Key, values: Array) -> StageTap:
        seen, lane = np.ones(values.shape, np.int32), np.zeros(values.shape, np.int8)
        return StageTap(*key, values.astype(np.float64), seen == 1, seen, lane, made=seen, made_lane=lane)

    taps = {key: tap(key, values) for key, values in stages.items()}
    run = Run(("kernel",), (), "", 0, "", "")
    inputs = {name: [values for key, values in stages.items() if key[0] == name] for name in "qkv"}
    loads = {name: np.zeros(np.concatenate(parts, axis=2).shape, np.int32) for name, parts in inputs.items()}
    return Taps(
        ALGORITHM, taps, (), (), (), None, run=run, arrays={}, recorded_instructions=0, fetches=loads, reads=loads
    )


def diverging(problem: AttentionProblem, stages: Stages, key: Key, actual: Array, o: Array | None = None) -> Case:
    """Return a case whose first divergence is one stage; all stages before it are right."""
    wanted = stages[key].astype(np.float64)
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(actual - wanted) <= 1e-4 * (1 + np.abs(wanted))) | (actual == wanted))
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    stage, tile = key
    start = (tile or 0) * ALGORITHM.block_n
    keys = range(start, min(start + ALGORITHM.block_n, problem.k.shape[2]))
    first = Divergence(
        stage,
        tile,
        keys,
        index,
        None,
        "all",
        "some",
        "some",
        float(wrong.mean()),
        wrong,
        np.ones(wrong.shape, np.bool_),
        actual,
        wanted,
        np.full(wrong.shape, 1e-4),
        (),
    )
    verdict = Verdict(problem.workload, Status.INCORRECT_NUMERICAL)
    task = find_task("sdpa" if problem.original is None else "fp8_sdpa")
    outputs = {} if o is None else {"o": o.astype(np.float16)}
    return Case(
        Candidate(RUNGS["wmma"].path),
        task,
        problem,
        verdict,
        verdict,
        arrays={**problem.arrays, **outputs},
        algorithm=ALGORITHM,
        taps=tapped({**stages, key: actual}),
        expected=stages,
        divergence=first,
    )


def recognised(case: Case) -> list[Signature]:
    found = [signature for recognise in SIGNATURES if (signature := recognise(case)) is not None]
    return sorted(found, key=lambda signature: -signature.rank)


def only(case: Case, name: str) -> Signature:
    found = recognised(case)
    assert [each.name for each in found] == [name], found
    return found[0]


@pytest.mark.parametrize(
    ("factor", "name"),
    [(0.125, "scale_twice"), (8, "scale_missing"), (np.log(2), "exponent_base"), (3, "score_factor")],
)
def test_scores_times_a_factor(factor: float, name: str) -> None:
    problem = draw()
    stages = stages_of(problem)
    found = only(diverging(problem, stages, ("scores", 0), factor * stages["scores", 0]), name)
    assert f"{factor:.4g} times" in found.message


def test_k_with_the_softmax_scale_in_it() -> None:
    problem = draw("fp8_sdpa")
    stages = stages_of(problem)
    only(diverging(problem, stages, ("k", 0), 0.125 * stages["k", 0]), "scale_twice")


@pytest.mark.filterwarnings("error")
def test_no_start_is_looked_for_in_sums_that_are_no_numbers() -> None:
    problem = draw()
    stages = stages_of(problem)
    assert wrong_start(diverging(problem, stages, ("l", 0), np.nan * stages["l", 0])) is None


def test_l_times_a_factor() -> None:
    problem = draw()
    stages = stages_of(problem)
    found = only(diverging(problem, stages, ("l", 0), 1.48 * stages["l", 0]), "l_too_large")
    assert "1.48 times the right value" in found.message and "0.6757" in found.message


def test_l_sums_keys_beyond_the_end() -> None:
    """65 keys in tiles of 32: the third has one key, and 31 of score 0 would have the weight exp(0 - m) each."""
    problem = draw()
    stages = stages_of(problem)
    wrong = stages["l", 2] + 31 * np.exp(-stages["m", 2].astype(np.float64))
    found = only(diverging(problem, stages, ("l", 2), wrong), "l_too_large")
    assert "31 keys beyond the end" in found.message


@pytest.mark.parametrize(("columns", "name"), [(slice(1, None), "partial_rescale"), (slice(None), "missing_rescale")])
def test_u_not_rescaled(columns: slice, name: str) -> None:
    problem = draw()
    stages = stages_of(problem)
    rescale = np.exp(stages["m", 0].astype(np.float64) - stages["m", 1])
    wrong = stages["u", 1].astype(np.float64)
    wrong[..., columns] += ((1 - rescale)[..., None] * stages["u", 0])[..., columns]
    found = only(diverging(problem, stages, ("u", 1), wrong), name)
    assert "from KV tile 1 on" in found.message
    assert ("columns 1-63" in found.message) == (name == "partial_rescale")


def fragments(tile: Array, stored: int, read: int) -> Array:
    """Return a tile (n, d) with `stored` elements per row, read in 16 × 16 fragments with `read`; NaN is padding."""
    n, d = tile.shape
    memory = np.full((n, stored), np.nan)
    memory[:, :d] = tile
    flat = np.concatenate([memory.ravel(), np.full(16 * (stored + read), np.nan)])
    seen = np.empty((n, d))
    for row in range(0, n, 16):
        for column in range(0, d, 16):
            for r in range(16):
                start = row * stored + column + r * read
                seen[row + r, column : column + 16] = flat[start : start + 16]
    return seen


def test_sheared_k() -> None:
    problem = draw()
    stages = stages_of(problem)
    k = fragments(problem.k[0, 0, :32].astype(np.float64), 72, 32)
    scores = (problem.q[0, 0].astype(np.float64) @ k.T / 8)[None, None]
    case = diverging(problem, stages, ("scores", 0), scores)
    uninitialised = Finding("I201", "uninitialised shared memory read", count=9)
    case = replace(case, run=Run(("kernel",), (uninitialised,), "", 0, "", ""))
    found = recognised(case)
    assert [each.name for each in found[:2]] == ["leading_dimension", "uninitialised"], found
    assert "K, written with 72 elements per row, is read with 32" in found[0].message


def test_sheared_v() -> None:
    problem = draw()
    stages = stages_of(problem)
    v = fragments(problem.v[0, 0, :32].astype(np.float64), 72, 64)
    u = (stages["p", 0].astype(np.float64)[0, 0] @ np.nan_to_num(v))[None, None]
    found = recognised(diverging(problem, stages, ("u", 0), u))
    assert found[0].name == "leading_dimension" and "V, written with 72" in found[0].message, found


@pytest.mark.parametrize("axis", [2, 3])
def test_scores_summed_over_a_warp(axis: int) -> None:
    """64 rows and 64 keys are full warps: each score becomes the sum of its 32."""
    problem = draw(shape="split_64")
    stages = stages_of(problem)
    whole = np.concatenate([stages["scores", 0], stages["scores", 1]], axis=3).astype(np.float64)
    warps = np.stack([part.sum(axis=axis) for part in np.split(whole, 2, axis=axis)], axis=axis)
    summed = np.repeat(warps, 32, axis=axis)[..., :32]
    found = only(diverging(problem, stages, ("scores", 0), summed), "lane_owns_row")
    assert "32 " + ("rows" if axis == 2 else "keys") in found.message


def test_scores_of_one_lanes_columns() -> None:
    problem = draw()
    stages = stages_of(problem)
    q, k = problem.q[..., ::32].astype(np.float64), problem.k[:, :, :32, ::32].astype(np.float64)
    found = only(diverging(problem, stages, ("scores", 0), q @ k.swapaxes(2, 3) / 8), "inner_columns")
    assert "columns 1-31, 33-63 missing" in found.message


def test_q_overwritten_by_k() -> None:
    problem = draw()
    stages = stages_of(problem)
    wrong = stages["q", None].astype(np.float64).copy()
    wrong[0, 0, 15, 48:] = stages["k", 0][0, 0, 0, :16]
    found = only(diverging(problem, stages, ("q", None), wrong), "region_overlap")
    assert "16 elements of q" in found.message and "values of k" in found.message


def test_table_overwritten_after_the_first_tile() -> None:
    problem = draw("fp8_sdpa", "split_128")
    stages = stages_of(problem)
    wrong = np.random.default_rng(5).uniform(0, 1, stages["k", 1].shape)
    found = only(diverging(problem, stages, ("k", 1), wrong), "region_overlap")
    assert "KV tile 1" in found.message and "100% of the values not negative" in found.message


def split_case(read: Callable[[Array], Array], *, written: str = "") -> Case:
    """Return a case of three splits whose buffers the merge reads with `read`; `written`: the misplaced buffer."""
    problem = draw(shape="few_queries")
    parts = emulate(replace(ALGORITHM, splits=4), problem.q, problem.k, problem.v).partials
    buffers = {name: np.stack([getattr(part, name) for part in parts], axis=2).astype(np.float64) for name in "oml"}
    held = {name: read(x) if name == written else x for name, x in buffers.items()}
    seen = held if written else {name: read(x) for name, x in buffers.items()}
    weight = np.exp(seen["m"] - seen["m"].max(axis=2, keepdims=True))
    o = (seen["o"] * weight[..., None]).sum(axis=2) / (seen["l"] * weight).sum(axis=2)[..., None]
    verdict = Verdict(problem.workload, Status.INCORRECT_NUMERICAL)
    arrays = {
        **problem.arrays,
        "o": o.astype(np.float16),
        "part_u": held["o"],
        "part_m": held["m"],
        "part_l": held["l"],
    }
    return Case(Candidate(RUNGS["split_k"].path), find_task("sdpa"), problem, verdict, verdict, arrays=arrays)


def as_query_split(x: Array) -> Array:
    """Return the bytes of [b, h, split, query] read as [b, h, query, split]."""
    b, h, splits, queries = x.shape[:4]
    return np.moveaxis(x.reshape(b, h, queries, splits, *x.shape[4:]), 3, 2)


def test_partial_buffers_read_in_another_order() -> None:
    assert "read as [head, query, split]" in only(split_case(as_query_split), "partial_offsets").message


def test_one_partial_buffer_written_in_another_order() -> None:
    def stored(x: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(x, 2, 3)).reshape(x.shape)

    found = only(split_case(stored, written="l"), "partial_offsets")
    assert "part_l written as [head, query, split]" in found.message


def test_partial_buffers_in_order() -> None:
    assert not recognised(split_case(lambda x: x))


def test_launches_that_are_right_alone() -> None:
    case = split_case(lambda x: x)
    spoilt = np.random.default_rng(3).normal(size=case.arrays["o"].shape)
    launches = tuple(LaunchJudgement(i, "kernel", Place("k.cu", 1), True, "right") for i in range(2))
    case = replace(case, launches=launches, arrays={**case.problem.arrays, "o": spoilt.astype(np.float16)})
    assert "each of the 2 launches is right alone" in only(case, "partial_offsets").message


def plain_case(*findings: Finding, status: Status = Status.UNSAFE, defines: Mapping[str, str] | None = None) -> Case:
    problem = draw()
    verdict = Verdict(problem.workload, status, findings=findings)
    run = Run(("kernel",), findings, "", 0, "", "", defines=defines or {})
    outputs = {"o": problem.gold.o.astype(np.float16)}
    return Case(
        Candidate(RUNGS["scalar"].path),
        find_task("sdpa"),
        problem,
        verdict,
        verdict,
        run=run,
        arrays={**problem.arrays, **outputs},
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("R102", "missing_barrier"), ("R103", "missing_barrier"), ("I201", "uninitialised"), ("I203", "uninitialised"),
        ("M105", "region_overlap"),
    ],
)  # fmt: skip
def test_findings(code: str, name: str) -> None:
    place = Place("kernel.cu", 12)
    found = only(plain_case(Finding(code, "4 bytes at sK+0x40", place=place, count=7)), name)
    assert found.place == place and code in found.message and "7 " in found.message


def test_a_race_comes_before_the_undefined_values_it_causes() -> None:
    race, unwritten = Finding("R102", "race"), Finding("I201", "uninitialised")
    assert recognised(plain_case(unwritten, race))[0].name == "missing_barrier"


def test_define_that_no_file_uses() -> None:
    found = only(plain_case(status=Status.PASSED, defines={"ELEMENTS": "half (unused)"}), "define_not_compiled")
    assert found.stage == "build" and found.rank == 1 and found.cure == "spell it ELEMENT"
    assert not recognised(plain_case(status=Status.PASSED, defines={"ELEMENT": "half"}))


@pytest.mark.parametrize("status", [Status.RESOURCE_ERROR, Status.LAUNCH_ERROR])
def test_launch_that_is_refused(status: Status) -> None:
    case = plain_case(status=status)
    case = replace(case, run=None, arrays={}, verdict=replace(case.verdict, message="fa1.cu:31: 57792 bytes"))
    found = only(case, "launch_never_happened")
    assert found.stage == "launch" and found.message.endswith("57792 bytes") and found.place == Place("fa1.cu", 31)


def test_rows_that_were_never_written() -> None:
    case = plain_case(status=Status.INCORRECT_NUMERICAL)
    o = case.arrays["o"].copy()
    o.view(np.uint16)[:, :, 48:] = 0xFFFF
    found = recognised(replace(case, arrays={**case.arrays, "o": o}))
    assert found[0].name == "never_written" and "rows 48-64" in found[0].message


def test_overflow_without_the_maximum() -> None:
    """Only rows with a score above 88.7 overflow."""
    problem = draw(regime="logits_32")
    scores = problem.q.astype(np.float64) @ problem.k.astype(np.float64).swapaxes(2, 3) / 8
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp(scores.astype(np.float32))
        o = p @ problem.v.astype(np.float32) / p.sum(axis=-1, keepdims=True)
    assert not np.isfinite(o).all(), "the regime overflows"
    verdict = Verdict(problem.workload, Status.INCORRECT_NUMERICAL)
    case = Case(
        Candidate(RUNGS["scalar"].path),
        find_task("sdpa"),
        problem,
        verdict,
        verdict,
        arrays={**problem.arrays, "o": o.astype(np.float16)},
    )
    assert recognised(case)[0].name == "no_maximum"


def coded(encode: Callable[[Array], tuple[Array, Array]], regime: str = "unit_normal") -> Case:
    """Return the case of a right kernel on codes of a given quantiser."""
    problem = draw("fp8_sdpa", "validation_128", regime=regime)
    assert problem.original is not None
    arrays, meant = {}, []
    for name, x in zip("qkv", problem.original, strict=True):
        arrays[f"{name}_code"], arrays[f"{name}_scale"] = encode(x.astype(np.float32))
        meant.append(SimFp8().decode(arrays[f"{name}_code"], arrays[f"{name}_scale"]))
    q, k, v = meant
    scales = (arrays["q_scale"], arrays["k_scale"], arrays["v_scale"])
    problem = AttentionProblem(problem.workload, arrays, q, k, v, problem.original, scales)
    verdict = Verdict(problem.workload, Status.INCORRECT_NUMERICAL)
    o = problem.gold.o.astype(np.float16)
    return Case(
        Candidate(RUNGS["fp8_scalar"].path),
        find_task("fp8_sdpa"),
        problem,
        verdict,
        verdict,
        arrays={**arrays, "o": o},
    )


@pytest.mark.parametrize(("shift", "words"), [(-0.5, "V -0.5"), (0.5, "V +0.5")])
def test_codes_off_by_half_a_step(shift: float, words: str) -> None:
    def encode(x: Array) -> tuple[Array, Array]:
        scale = SimFp8().encode(x).scale
        steps = x.astype(np.float64) / SimFp8().lsb(scale)[..., None, None]
        return np.clip(np.rint(steps + 128 + shift), 0, 255).astype(np.uint8), scale

    found = only(coded(encode), "half_lsb")
    assert found.stage == "quantiser" and words in found.message


def test_scale_of_zero() -> None:
    def encode(x: Array) -> tuple[Array, Array]:
        return np.zeros(x.shape, np.uint8), np.zeros(x.shape[:2], np.float32)

    found = only(coded(encode, "zeros"), "zero_scale")
    assert found.stage == "quantiser"


@pytest.mark.parametrize("regime", ["unit_normal", "zeros", "all_equal", "one_hot"])
def test_right_codes(regime: str) -> None:
    assert not recognised(coded(SimFp8().encode, regime))
