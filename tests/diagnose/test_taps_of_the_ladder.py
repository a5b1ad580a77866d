"""All stages of every unmodified rung are observed, and they match its algorithm."""

import math

import numpy as np
import pytest

from tests.diagnose.recorded import ALGORITHMS, KERNELS, PLAIN, WARPS, Recorded, inputs, record
from tests.in_turn import one_in
from weft.attention.shapes import Shape
from weft.diagnose.locate import locate
from weft.diagnose.taps import TAPPED
from weft.engines.kernel_file import load

RAGGED = Shape("ragged", 1, 2, 1, 19, 36, 18)
"""Grouped queries, two KV tiles of which the last is short, a head that is no multiple of 16."""


def _tolerance(rung: str, stage: str) -> float:
    """float32 sums of 18 terms near 5 are off by about 1e-5; P in f16 has steps of 2^-11, and U sums 36 of them."""
    rounds_p = ALGORITHMS[rung].p_dtype == "f16"
    steps = {"p": 2.0**-11, "u": 36 * 2.0**-12, "o": 2.0**-10} if rounds_p else {"o": 2.0**-10}
    return steps.get(stage, 0.0) + 3e-5


@pytest.mark.parametrize("rung", one_in(6, ALGORITHMS))
def test_stages_agree_with_the_declared_algorithm(rung: str) -> None:
    recorded = record(rung, RAGGED, position=(1, 1))
    _check(recorded, rung, head=1)


@pytest.mark.parametrize("rung", ["split_k", "fa1", "fp8_wmma"])
def test_masked_kernels_agree(rung: str) -> None:
    recorded = record(rung, Shape("causal", 1, 1, 1, 18, 34, 16), "bottom_right", position=(1, 0))
    _check(recorded, rung, head=0)


def _check(recorded: Recorded, rung: str, head: int) -> None:
    taps = recorded.taps
    assert taps.run.findings == ()
    assert taps.facts == ()
    assert taps.disagreements == ()
    assert taps.observed == TAPPED
    assert taps.algorithm.block_n == (1 if rung in WARPS else 32)
    assert taps.algorithm.exp_base == math.e
    for stage, tile in taps.taps:
        assert recorded.worst(stage, tile) <= _tolerance(rung, stage), (stage, tile)
    _check_coverage(recorded, head)


def _check_coverage(recorded: Recorded, head: int) -> None:
    """Check that everything the CTA computes was observed, and nothing of other rows."""
    rows = np.zeros(len(recorded.mask), bool)
    rows[recorded.rows] = True
    sees = recorded.mask & rows[:, None]
    block = recorded.taps.algorithm.block_n
    for (stage, tile), tap in recorded.taps.taps.items():
        if stage in ("k", "v"):
            continue
        observed = tap.observed[0, head]
        assert not tap.observed[0, [h for h in range(tap.observed.shape[1]) if h != head]].any()
        assert not observed[~rows].any()
        if tile is None:
            assert observed[rows].all(), stage
            continue
        in_tile = sees[:, tile * block : (tile + 1) * block]
        if stage in ("products", "scores", "masked", "p"):
            assert observed[in_tile].all(), (stage, tile)
        else:
            assert observed[in_tile.any(axis=1)].all(), (stage, tile)
    tiles = {tile for stage, tile in recorded.taps.taps if stage == "u"}
    needed = {int(key) // block for key in np.flatnonzero(sees.any(axis=0))}
    assert tiles == needed


def test_sums_record_which_keys_they_cover() -> None:
    recorded = record("fa1", RAGGED, position=(1, 1))
    for stage in ("m", "l", "u"):
        for tile, keys in ((0, 32), (1, 36)):
            tap = recorded.taps.at(stage, tile)
            assert tap is not None and tap.keys is not None
            covered = tap.keys[tap.observed]
            assert covered[:, :keys].all() and not covered[:, keys:].any()


def test_splits_cover_their_own_keys() -> None:
    recorded = record("split_k", Shape("split", 1, 1, 1, 2, 12, 16))
    tap = recorded.taps.at("u", 5)  # the last key of the second of four splits
    assert tap is not None and tap.keys is not None
    assert np.flatnonzero(tap.keys[0, 0, 0, 0]).tolist() == [3, 4, 5]


def test_sites_are_lines_of_the_kernel() -> None:
    recorded = record("wmma", RAGGED, position=(1, 1))
    source = (KERNELS / "wmma.cu").read_text().splitlines()
    tap = recorded.taps.at("u", 1)
    assert tap is not None
    site = recorded.taps.site(tap, (0, 1, 17, 5))
    assert site is not None and site.place is not None
    assert "mma_sync(u," in source[site.place.line - 1]
    assert site.cta == (1, 1, 0) and 0 <= site.warp < 4 and 0 <= site.lane < 32
    assert recorded.taps.site(tap, (0, 0, 17, 5)) is None  # another head's CTA


def test_a_kernel_shows_its_own_tiles() -> None:
    arrays, _ = inputs("scalar", Shape("few", 1, 1, 1, 2, 5, 8))
    kernel = load(KERNELS / "scalar.cu", defines={"WARPS": "2"})
    assert locate(kernel, arrays, PLAIN).algorithm.block_n == 1


def test_the_recording_is_the_run() -> None:
    shape = Shape("few", 1, 1, 1, 2, 5, 8)
    arrays, _ = inputs("split_k", shape)
    kernel = load(KERNELS / "split_k.cu", defines={"WARPS": "2", "SPLITS": "2"})
    alone, whole = (locate(kernel, arrays, ALGORITHMS["split_k"], whole=whole) for whole in (False, True))
    assert whole.run.entries == alone.run.entries and len(whole.run.entries) == 2
    for taps in (alone, whole):
        tap = taps.at("o")
        assert tap is not None and tap.observed.all()
        assert np.array_equal(tap.values, taps.arrays["o"].astype(np.float64))
    assert np.array_equal(alone.arrays["o"], whole.arrays["o"])
