"""The rung `softcap_sinks`: with every combination of window, cap and mask, and where it must agree with `scalar`."""

import itertools

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.ladder.test_scalar_rungs import CAUSAL, DTYPES, attended, inputs, outputs
from weft.attention.contract import NO_LIMIT, Contract
from weft.attention.dtypes import Array
from weft.attention.reference import Causal
from weft.attention.shapes import Shape
from weft.attention.shapes import shape as shape_of
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.kernels import RUNGS
from weft.kernels.ladder import MASKS
from weft.tasks.family import attention_task
from weft.tasks.registry import TASKS
from weft.tasks.task import Task, Workload

SMALL = Shape("small", 1, 4, 2, 30, 20, 37)
NO_SINKS = np.full(SMALL.hq, -np.inf, np.float32)
GPU = weft.VirtualGPU(threads=2)


def run(arrays: dict[str, Array], **defines: str) -> dict[str, Array]:
    return outputs(GPU, "softcap_sinks", arrays, **{"ELEMENT": "float", **defines})


def task_of(contract: Contract) -> Task:
    """Return the task of another point of the family, on the workloads of `softcap_sinks`."""
    own = TASKS["softcap_sinks"]
    kept = ("workloads", "quick", "mutants", "certified_on")
    return attention_task(contract, name="point", what="", **{name: getattr(own, name) for name in kept})


WINDOWS = ((None, None), (7, None), (None, 4), (7, 4), (0, 0))
POINTS = tuple(itertools.product(WINDOWS, (None, 5.0, 0.25), MASKS))


@pytest.mark.parametrize(("window", "soft_cap", "mask"), one_in(4, POINTS, several=True))
def test_every_point_of_the_family(window: tuple[int | None, int | None], soft_cap: float | None, mask: str) -> None:
    contract = Contract(left=window[0], right=window[1], soft_cap=soft_cap, sinks=True)
    candidate = Candidate(RUNGS["softcap_sinks"].path, "softcap_sinks", defines={**NO_LIMIT, **contract.defines()})
    work = Workload(shape_of("gqa_4_ragged"), "f32", mask, "logits_8", 0)
    verdict = check(candidate, task_of(contract), work)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", CAUSAL)
def test_without_cap_window_and_sinks_it_is_the_scalar_rung(dtype: str, causal: Causal) -> None:
    case = (SMALL, dtype, causal)
    mine = attended(GPU, "scalar", case)
    given = {**inputs(SMALL, dtype), "sinks": NO_SINKS}
    found = run(given, ELEMENT=DTYPES[dtype][0], CAUSAL=CAUSAL[causal], **NO_LIMIT)
    assert all(mine[name].tobytes() == found[name].tobytes() for name in ("o", "lse"))


def test_a_sink_of_zero_is_a_first_key_of_zeros() -> None:
    """Its score is 0 and its value adds nothing to U."""
    arrays = inputs(SMALL, "f32")
    longer = {name: np.pad(arrays[name], ((0, 0), (0, 0), (1, 0), (0, 0))) for name in ("k", "v")}
    keyed = outputs(GPU, "scalar", {**arrays, **longer}, ELEMENT="float")
    sinks = np.zeros(SMALL.hq, np.float32)
    found = run({**arrays, "sinks": sinks}, **NO_LIMIT)
    assert all(keyed[name].tobytes() == found[name].tobytes() for name in ("o", "lse"))


def test_a_small_cap_makes_weights_equal() -> None:
    """Capped scores are within ±cap, so two weights differ by a factor of at most exp(2 · cap)."""
    arrays = inputs(SMALL, "f32")
    arrays["q"] *= 1000
    cap = 1e-3
    found = run({**arrays, "sinks": NO_SINKS}, SOFT_CAP=str(cap))
    v = arrays["v"].astype(np.float64).repeat(SMALL.group, axis=1)
    off = np.abs(found["o"] - v.mean(axis=2, keepdims=True))
    assert (off <= np.expm1(2 * cap) * np.abs(v).max() + 1e-5).all()
    assert (np.abs(found["lse"] - np.log(SMALL.skv)) <= cap + 1e-5).all()


def test_a_wide_head_and_one_key() -> None:
    """With one key and a sink, O is v / (1 + exp(sink - s)) and s = cap · tanh(q·k·scale / cap)."""
    shape = Shape("wide", 1, 1, 1, 2, 1, 300)
    arrays = inputs(shape, "f32")
    found = run({**arrays, "sinks": np.float32([0.5])}, SOFT_CAP="2.0")
    q, k, v = (arrays[name].astype(np.float64)[0, 0] for name in "qkv")
    s = 2 * np.tanh(q @ k.T / np.sqrt(300) / 2)
    assert (np.abs(found["o"][0, 0] - v / (1 + np.exp(0.5 - s))) <= 1e-5).all()
    assert (np.abs(found["lse"][0, 0] - np.logaddexp(0.5, s[:, 0])) <= 1e-5).all()
