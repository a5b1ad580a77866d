"""racecheck against an oracle: random scripts of accesses, with barriers here and there."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.records import Binary
from weft.probes import RaceCheck

SOURCE = Path(__file__).parent / "cuda/access_script.cu"
TYPES = {"unsigned char": 1, "unsigned short": 2, "unsigned": 4, "unsigned long long": 8}
LOAD, STORE, ATOMIC = 1, 2, 3


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, entries=[f"script<{name}>" for name in TYPES])


def conflicts(verbs: np.ndarray, offsets: np.ndarray, barriers: np.ndarray, size: int) -> bool:
    """Whether two warps touch a byte between barriers, one of them writing, not both atomically."""
    seen: dict[int, set[tuple[int, int]]] = {}
    for step in range(len(barriers)):
        for thread in np.flatnonzero(verbs[step]):
            for byte in range(size):
                who = (int(thread) // 32, int(verbs[step, thread]))
                seen.setdefault(int(offsets[step, thread]) + byte, set()).add(who)
        if barriers[step] or step == len(barriers) - 1:
            for touched in seen.values():
                for warp, verb in touched:
                    for other, other_verb in touched:
                        pair = {verb, other_verb}
                        if warp != other and pair != {LOAD} and pair != {ATOMIC}:
                            return True
            seen = {}
    return False


@pytest.mark.parametrize("name, size", TYPES.items())
def test_random_scripts(name: str, size: int) -> None:
    rng = np.random.default_rng(size)
    answers = []
    for _ in range(30):
        steps, warps = 4, int(rng.integers(1, 4))
        verbs = rng.integers(1, 4 if size >= 4 else 3, (steps, 32 * warps))
        if rng.random() < 0.5:  # a step has one verb
            verbs = np.repeat(verbs[:, :1], 32 * warps, axis=1)
        verbs[rng.random(verbs.shape) < rng.choice([0.0, 0.8, 0.97])] = 0
        offsets = size * rng.integers(0, int(rng.choice([4, 256 // size])), verbs.shape)
        shape = rng.random()
        if shape < 0.3:  # everybody has places of their own
            offsets = np.broadcast_to(size * (np.arange(32 * warps) % (256 // size)), verbs.shape).copy()
        elif shape < 0.6:  # all of a warp in one place
            offsets = np.repeat(offsets[:, ::32], 32, axis=1)
        barriers = rng.integers(0, 2, steps)
        run = weft.VirtualGPU(threads=1, schedule=int(rng.integers(0, 3))).launch(
            binary(), f"script<{name}>", 1, 32 * warps,
            [verbs.astype(np.int32), offsets.astype(np.int32), barriers.astype(np.int32), np.int32(steps),
             np.zeros(1, np.float32)],
            watch=RaceCheck(),
        )  # fmt: skip
        expected = conflicts(verbs, offsets, barriers, size)
        assert bool(run.findings) == expected, [str(f) for f in run.findings]
        assert {f.code for f in run.findings} <= {"R101", "R102", "R103"}
        answers.append(expected)
    assert 5 <= sum(answers) <= 25  # both answers are tried
