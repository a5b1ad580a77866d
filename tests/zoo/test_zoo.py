"""Every bug of the zoo is wrong at its workload, its twin is right there, and both match the zoo's record."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.zoo.bug import PLACES, Bug, build
from tests.zoo.judged import Array, Judged, run, workload
from tests.zoo.transplants import TRANSPLANTS
from tests.zoo.zoo import BUGS, CORRECT, ZOO
from weft.attention.quantise import Quantiser, SimFp8
from weft.attention.reference import attention, default_scale
from weft.kernels import RUNGS

ALL = (*ZOO, *TRANSPLANTS)
BY_ID = {bug.id: bug for bug in ALL}
OUTSIDE = ("quantiser", "launch", "build")
SEPARATES = 20
"""A wrong kernel is wrong by at least this many times what rounding may leave."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@cache
def judged(bug_id: str, folder: Path, fixed: bool) -> Judged:
    bug = BY_ID[bug_id]
    return run(bug, build(bug, folder, fixed=fixed), fixed=fixed)


def wrong(bug_id: str, folder: Path) -> Array:
    found = judged(bug_id, folder, False)
    assert found.o is not None
    return found.o


def test_sixteen_and_their_transplants() -> None:
    assert [bug.id for bug in ZOO] == [f"Z{number:02}" for number in range(1, 17)]
    assert len(BY_ID) == len(ALL)
    assert len(TRANSPLANTS) >= 12 and len({bug.id[:3] for bug in TRANSPLANTS}) >= 12
    for bug in TRANSPLANTS:
        assert (bug.kind, bug.id[4:]) == ("transplant", bug.rung)


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.id)
def test_the_faulty_line_is_a_line_of_the_wrong_kernel(bug: Bug) -> None:
    assert bug.stage in PLACES
    assert (bug.faulty_line() > 0) == (bug.stage not in ("quantiser", "build"))
    if bug.launch:
        assert f"{bug.launch}<" in bug.text()


@pytest.mark.parametrize("bug", one_in(4, [bug for bug in ALL if bug.stage not in OUTSIDE]), ids=lambda bug: bug.id)
def test_wrong_kernel(bug: Bug, folder: Path) -> None:
    found = judged(bug.id, folder, False)
    assert not found.refused
    assert found.ratio > SEPARATES
    assert set(bug.findings) <= found.codes
    if bug.cause not in ("uninitialised", "leading_dimension", "missing_barrier", "region_overlap"):
        assert not found.codes, "nothing for the checkers: only the numbers tell"


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.id)
def test_twin(bug: Bug, folder: Path) -> None:
    found = judged(bug.id, folder, True)
    assert not found.refused and not found.findings, [str(finding) for finding in found.findings]
    assert found.ratio <= 1
    assert not [name for name, value in found.defines if value.endswith("(unused)")]


@pytest.mark.parametrize("path", CORRECT, ids=lambda path: path.stem)
def test_right_kernels_that_were_once_reported_wrong(path: Path, folder: Path) -> None:
    blamed = Bug("T01", "", "", "o", "", "", source=path.name)
    found = run(blamed, path, fixed=True)
    assert not found.findings and found.ratio <= 1


@pytest.mark.parametrize("bug", [bug for bug in ALL if bug.stage == "launch"], ids=lambda bug: bug.id)
def test_launch_is_refused(bug: Bug, folder: Path) -> None:
    found = judged(bug.id, folder, False)
    # The limit of a launch that does not opt in, or an empty grid; CUDA refuses both.
    assert ("above 49152" in found.refused) != ("grid (0, " in found.refused), found.refused


@pytest.mark.parametrize("bug", [bug for bug in ALL if bug.stage == "build"], ids=lambda bug: bug.id)
def test_define_has_no_effect(bug: Bug, folder: Path) -> None:
    path = build(bug, folder)
    found = judged(bug.id, folder, False)
    assert found.ratio <= 1 and not found.findings, "nothing is wrong with its numbers"
    (flag,) = bug.flags
    assert dict(found.defines)[flag].endswith("(unused)")
    arrays = workload(bug.task, bug.shape, bug.regime, bug.quantiser).arrays
    without, meant = (weft.load(path, defines=flags).compile(arrays) for flags in ({}, bug.twin_flags))
    assert without.ptx_digest == found.ptx_digest != meant.ptx_digest


def test_quantiser_scale_of_a_zero_head() -> None:
    zeros = np.zeros((1, 2, 8, 16), np.float32)
    codes, scale = BUGS["Z01"].quantiser.encode(zeros)
    right = SimFp8().encode(zeros)
    assert (scale == 0).all() and not (codes == 128).any()
    assert (right.scale == 1).all() and (right.codes == 128).all()


@pytest.mark.parametrize("bug", [bug for bug in ALL if bug.cause == "half_lsb"], ids=lambda bug: bug.id)
def test_half_an_lsb(bug: Bug, folder: Path) -> None:
    """The kernel is right for these codes: V is half a step too low, and O with it."""
    found = judged(bug.id, folder, False)
    assert found.ratio <= 1 and found.o is not None
    given = workload(bug.task, bug.shape, bug.regime, bug.quantiser)
    lsb = SimFp8().lsb(given.arrays["v_scale"])
    bias = SimFp8().bias(given.original_v, given.arrays["v_code"], given.arrays["v_scale"])
    np.testing.assert_allclose(bias, -0.5, atol=0.03)
    right = workload(bug.task, bug.shape, bug.regime, SimFp8())
    shift = (found.o - attention(right.q, right.k, right.original_v).o).mean(axis=(2, 3))
    np.testing.assert_allclose(shift / lsb, -0.5, atol=0.1)
    assert (np.abs(shift) > 0.01).all()


def test_right_for_one_split(folder: Path) -> None:
    path = build(BUGS["Z05"], folder)
    bug = Bug("T05", "", "", "o", "", "", rung="split_k", shape="few_queries", flags={"SPLITS": "1"})
    assert run(bug, path).ratio <= 1


def share_wrong(found: Judged) -> float:
    assert found.o is not None and found.expected is not None and found.limit is not None
    return float(np.mean(~(np.abs(found.o - found.expected) <= SEPARATES * found.limit)))


def test_what_the_engineer_saw(folder: Path) -> None:
    assert share_wrong(judged("Z02", folder, False)) > 0.99
    assert 0 < share_wrong(judged("Z04-fa1", folder, False)) < 1 / 8  # one query of every sixteen
    assert np.isnan(wrong("Z06", folder)).any()
    # From the second tile on the tables contain weights: V has lost its signs. Right outputs have as many of each sign.
    assert (wrong("Z04", folder) > 0).mean() > 0.8
    expected = judged("Z04", folder, True).expected
    assert expected is not None and 0.4 < (expected > 0).mean() < 0.6


def test_rescale_reaches_some_columns(folder: Path) -> None:
    for bug_id, right in (("Z12", 1), ("Z12-fp8_wmma", 32)):
        found = judged(bug_id, folder, False)
        assert found.o is not None and found.expected is not None and found.limit is not None
        error = (np.abs(found.o - found.expected) / found.limit).max(axis=(0, 1, 2))
        assert (error[:right] <= 1).all() and (error[right:] > SEPARATES).all()


def blocks_not_transposed(k: Array, size: int) -> Array:
    """Return K as read by a kernel that reads [n][d] as [d][n], a block of `size` at a time."""
    b, h, skv, d = k.shape
    padded = np.zeros((b, h, -(-skv // size) * size, d))
    padded[:, :, :skv] = k
    split = padded.reshape(b, h, -1, size, d // size, size)
    return split.swapaxes(3, 5).reshape(padded.shape)[:, :, :skv]


def warps_of_queries(q: Array) -> Array:
    """Return queries, each the sum over its warp's 32 lanes; lanes beyond the last query repeat it."""
    lanes = np.minimum(np.arange(-(-q.shape[2] // 32) * 32), q.shape[2] - 1)
    sums = q[:, :, lanes].reshape(*q.shape[:2], -1, 32, q.shape[3]).sum(axis=3)
    return np.repeat(sums, 32, axis=2)[:, :, : q.shape[2]]


CAUSES = ("Z08", "Z09", "Z09-wmma", "Z09-fa1", "Z10", "Z10-scalar", "Z10-fp8_scalar", "Z14", "Z14-fa1")


@pytest.mark.parametrize("bug_id", one_in(4, CAUSES))
def test_the_cause_explains_the_error(bug_id: str, folder: Path) -> None:
    """Attention with only the named mistake gives the kernel's output."""
    bug, found = BY_ID[bug_id], judged(bug_id, folder, False)
    given = workload(bug.task, bug.shape, bug.regime, bug.quantiser)
    q, k, v = (x.astype(np.float64) for x in (given.q, given.k, given.v))
    scale = default_scale(q.shape[3])
    if bug.cause == "lane_owns_row":
        explained = attention(warps_of_queries(q), k, v).o
    elif bug.cause == "k_not_transposed":
        explained = attention(q, blocks_not_transposed(k, 16 if bug.rung != "fa1" else 32), v).o
    elif bug.cause == "scale_twice":
        explained = attention(q, k, v, scale=scale * scale).o
    else:
        explained = attention(q, k, v).o / 1.48
    assert found.o is not None and found.limit is not None
    # Summed queries give logits of about 10, where the fp32 score is known to about 1e-5.
    assert (np.abs(found.o - explained) <= 2 * found.limit).all()


def test_every_rung_with_bugs_exists() -> None:
    assert {bug.rung for bug in ALL if bug.rung} <= set(RUNGS)


def test_quantisers_have_the_api() -> None:
    for bug in ALL:
        quantiser: Quantiser = bug.quantiser
        assert quantiser.decode(*quantiser.encode(np.ones((1, 1, 2, 4), np.float32))).shape == (1, 1, 2, 4)
