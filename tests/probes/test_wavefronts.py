"""Wavefronts of single accesses: computed by hand, and by the formula on random patterns."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.errors import UsageError
from weft.core.records import Binary, Run
from weft.probes import InitCheck, Probes, Wavefronts
from weft.probes.wavefronts import NAMES

SOURCE = Path(__file__).parent / "cuda/shared_patterns.cu"
KINDS = ("load_2", "load_4", "load_8", "load_16", "store_4", "store_8", "store_16", "ldmatrix_1", "ldmatrix_4")
SHARED_BYTES = 32 * 1024
LANE = np.arange(32)


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, entries=[*KINDS, "uniform_4", "uniform_16"])


def counts(run: Run) -> tuple[int, ...]:
    return tuple(run.counters[name] for name in NAMES)


def measured(kind: str, offsets: np.ndarray) -> tuple[int, ...]:
    """Return accesses, wavefronts and the ideal."""
    args = [offsets.astype(np.int32), np.zeros(32, np.uint32)]
    gpu = weft.VirtualGPU(threads=1)
    return counts(gpu.launch(binary(), kind, 1, 32, args, shared_bytes=SHARED_BYTES, watch=Wavefronts()))


@pytest.mark.parametrize(
    "kind, offsets, wavefronts, ideal",
    [
        ("load_4", 4 * LANE, 1, 1),  # neighbours
        ("load_4", 4 * (31 - LANE), 1, 1),  # any order: every bank once
        ("load_4", 8 * LANE, 2, 1),  # every other bank, twice
        ("load_4", 4 * 33 * LANE, 1, 1),  # a column of rows padded to 33 words
        ("load_4", 128 * LANE, 32, 1),  # a column of rows of 32 words: one bank
        ("load_4", 0 * LANE, 1, 1),  # broadcast
        ("load_4", 128 * (LANE % 2), 2, 1),  # two words of one bank
        ("load_4", 4 * (LANE // 2), 1, 1),  # pairs share a word
        ("load_2", 2 * LANE, 1, 1),  # halves of 16 words
        ("load_2", 128 * (LANE // 2) + 2 * (LANE % 2), 16, 1),
        ("store_4", 8 * LANE, 2, 1),
        ("load_8", 8 * LANE, 2, 2),
        ("load_8", 8 * (LANE // 2), 1, 1),  # T and T^1 agree: both halves in one go, 16 x 8 bytes
        ("load_8", 16 * LANE, 4, 2),  # 16 lanes 16 bytes apart: twice round the banks in each half
        ("store_8", 8 * (LANE // 2), 2, 2),  # stores do not join
        ("load_16", 16 * LANE, 4, 4),
        ("load_16", 0 * LANE, 2, 2),  # uniform
        ("load_16", 128 * LANE, 32, 4),  # one bank group: 8 lanes, 8 times, 4 phases
        ("load_16", 16 * (LANE // 2), 2, 2),  # joined: 8 distinct chunks per 16 lanes
        ("load_16", 16 * (LANE % 2 + LANE // 4 * 2), 2, 2),  # T and T^2 agree
        ("store_16", 16 * LANE, 4, 4),
        ("store_16", 144 * LANE, 4, 4),  # rows padded by 16 bytes
        ("store_16", 32 * LANE, 8, 4),
        ("ldmatrix_4", 128 * LANE, 32, 4),  # rows of 128 bytes without a swizzle: 8-way
        ("ldmatrix_4", 128 * LANE + 16 * (LANE % 8), 4, 4),  # with it
        ("ldmatrix_4", 144 * LANE, 4, 4),  # with padding
        ("ldmatrix_4", 64 * LANE, 16, 4),  # rows of 64 bytes: 8 rows start in two places
        ("ldmatrix_4", 0 * LANE, 4, 4),  # matrices are not joined
        ("ldmatrix_1", 128 * LANE, 8, 1),
        ("load_4", np.where(LANE < 5, 128 * LANE, -1), 5, 1),  # lanes off
        ("load_8", np.where(LANE >= 16, 8 * LANE, -1), 1, 1),  # a phase without lanes
        ("load_16", np.where(LANE == 9, 16 * LANE, -1), 1, 1),
    ],
)
def test_by_hand(kind: str, offsets: np.ndarray, wavefronts: int, ideal: int) -> None:
    assert measured(kind, offsets) == (1, wavefronts, ideal)


@pytest.mark.parametrize("kind, wavefronts", [("uniform_4", 1), ("uniform_16", 2)])
def test_uniform_addresses(kind: str, wavefronts: int) -> None:
    args = [np.zeros(32, np.int32), np.zeros(32, np.uint32), np.int32(64)]
    gpu = weft.VirtualGPU(threads=1)
    run = gpu.launch(binary(), kind, 3, 64, args, shared_bytes=SHARED_BYTES, watch=Wavefronts())
    assert counts(run) == (6, 6 * wavefronts, 6 * wavefronts)


def formula(kind: str, offsets: np.ndarray) -> tuple[int, int]:
    """Compute the formula directly, bank by bank and word by word."""
    size = 16 if kind.startswith("ldmatrix") else int(kind.split("_")[1])
    per_phase = {16: 8, 8: 16}.get(size, 32)
    active = [lane for lane in range(32) if offsets[lane] >= 0]
    if kind == "ldmatrix_1":
        active = active[:8]

    def agrees(distance: int) -> bool:
        return all(offsets[T ^ distance] in (-1, offsets[T]) for T in active)

    if kind.startswith("load") and size > 4 and (agrees(1) or agrees(2)):
        per_phase *= 2
    wavefronts = ideal = 0
    for first in range(0, 32, per_phase):
        lanes = [lane for lane in active if first <= lane < first + per_phase]
        words = {(offsets[lane] + byte) // 4 for lane in lanes for byte in range(0, size, min(size, 4))}
        banks = [sum(word % 32 == bank for word in words) for bank in range(32)]
        wavefronts += max(banks)
        ideal += bool(lanes)
    return wavefronts, ideal


@pytest.mark.parametrize("kind", KINDS)
def test_random_patterns(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    size = 16 if kind.startswith("ldmatrix") else int(kind.split("_")[1])
    for trial in range(24):
        reach = int(rng.choice([1, 4, 16, 64, SHARED_BYTES // size]))
        offsets = size * rng.integers(0, reach, 32)
        if trial % 3 == 1:  # make neighbours agree
            offsets = offsets[LANE & ~int(rng.choice([1, 2]))]
        if trial % 2 and not kind.startswith("ldmatrix"):
            offsets[rng.random(32) < rng.choice([0.1, 0.9])] = -1
            offsets[rng.integers(0, 32)] = 0
        assert measured(kind, offsets) == (1, *formula(kind, offsets)), offsets


def test_a_probe_watches_once() -> None:
    with pytest.raises(UsageError, match="different probes"):
        Probes(InitCheck(), InitCheck())


def test_counts_are_the_same_with_another_probe_and_on_two_threads() -> None:
    args = [(8 * LANE).astype(np.int32), np.zeros(32, np.uint32)]
    gpu = weft.VirtualGPU(threads=2)
    watch = Probes(Wavefronts(), InitCheck())
    run = gpu.launch(binary(), "store_4", 40, 32, args, shared_bytes=SHARED_BYTES, watch=watch)
    assert counts(run) == (40, 80, 40)
    assert not run.findings
