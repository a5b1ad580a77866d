"""racecheck against an oracle: random scripts of accesses, with all kinds of barriers.

A finding is suspected by the first pass and confirmed by the second, so equality with the oracle shows that the first
never misses anything and that the second is exact.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.finding_codes import Severity
from weft.core.records import Binary, Run
from weft.probes import RaceCheck, race_review

SOURCE = Path(__file__).parent / "cuda/access_script.cu"
TYPES = {"unsigned char": 1, "unsigned short": 2, "unsigned": 4, "unsigned long long": 8}
LOAD, STORE, ATOMIC, SAME = 1, 2, 3, 4
NOTHING, CTA, WARP, HALVES, TWO_WARPS, ARRIVE = range(6)


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, entries=[f"script<{name}>" for name in TYPES])


def meet(clocks: np.ndarray, come: np.ndarray, leave: np.ndarray) -> None:
    """A thread that leaves knows what all arrivals know; a thread that arrives starts a new epoch."""
    known = clocks[come].max(axis=0)
    clocks[leave] = np.maximum(clocks[leave], known)
    clocks[come, come] += 1


def conflicts(verbs: np.ndarray, offsets: np.ndarray, meetings: np.ndarray, size: int) -> set[bool]:
    """Return the kinds of races of a script: True if mild (a lane overwrites what another of its warp has read).

    Plain vector clocks.
    """
    threads = verbs.shape[1]
    everyone = np.arange(threads)
    clocks = np.zeros((threads, threads), int)
    np.fill_diagonal(clocks, 1)
    seen: dict[int, list[tuple[int, int, int, int]]] = {}
    found = set()
    for step, meeting in enumerate(meetings):
        for thread in np.flatnonzero(verbs[step]).tolist():
            verb = int(verbs[step, thread])
            for byte in range(size):
                before = seen.setdefault(int(offsets[step, thread]) + byte, [])
                for other, other_verb, other_step, epoch in before:
                    pair = {verb, other_verb}
                    peaceful = pair in ({LOAD}, {ATOMIC}) or (pair == {SAME} and (step - other_step) % 2 == 0)
                    if other != thread and not peaceful and clocks[thread, other] < epoch:
                        # Of lanes that diverge in one step, those that load run first.
                        read_first = other_verb == LOAD or (step == other_step and verb == LOAD)
                        found.add(other // 32 == thread // 32 and read_first)
                before.append((thread, verb, step, int(clocks[thread, thread])))
        if meeting == CTA:
            meet(clocks, everyone, everyone)
        elif meeting in (WARP, HALVES):
            for first in range(0, threads, 32 if meeting == WARP else 16):
                lanes = everyone[first : first + (32 if meeting == WARP else 16)]
                meet(clocks, lanes, lanes)
        elif meeting == TWO_WARPS:
            meet(clocks, everyone[:64], everyone[:64])
        elif meeting == ARRIVE:
            meet(clocks, everyone[:64], everyone[32:64])
    return found


def launched(gpu: weft.VirtualGPU, name: str, *script: np.ndarray) -> Run:
    steps, threads = script[0].shape
    arguments = [*(part.astype(np.int32) for part in script), np.int32(steps), np.zeros(1, np.float32)]
    return gpu.launch(binary(), f"script<{name}>", 1, threads, arguments, watch=RaceCheck())


@pytest.mark.parametrize("name, size", TYPES.items())
def test_the_same_value_from_one_instruction(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of the same value race only with other accesses; a CTA with only such stores is not judged."""
    judged = []
    judge = race_review.judge_cta
    monkeypatch.setattr(race_review, "judge_cta", lambda log, *args: judged.append(log) or judge(log, *args))
    rng = np.random.default_rng(size)
    answers = set()
    gpus = [weft.VirtualGPU(threads=1, schedule=schedule) for schedule in range(3)]
    for trial in range(50):
        steps, threads = 4, 32 * int(rng.integers(1, 4))
        verbs = np.full((steps, threads), SAME)
        if trial % 5:
            verbs[1::2] = 0  # odd steps store another value than even steps
        if trial % 5 == 1:  # a few other accesses in between
            few = rng.random(verbs.shape) < 0.02
            verbs[few] = rng.integers(1, 4 if size >= 4 else 3, verbs.shape)[few]
        elif trial % 5 == 2:  # one other access, before, between or after
            verbs[int(rng.integers(0, steps)), int(rng.integers(0, threads))] = rng.integers(1, 3)
        verbs[rng.random(verbs.shape) < rng.choice([0.0, 0.9, 0.97])] = 0
        offsets = size * rng.integers(0, int(rng.choice([1, 4, 256 // size])), verbs.shape)
        meetings = rng.choice([NOTHING, NOTHING, CTA, WARP, HALVES], steps)
        judged.clear()
        run = launched(gpus[trial % 3], name, verbs, offsets, meetings)
        expected = conflicts(verbs, offsets, meetings, size)
        assert {f.level for f in run.findings} == {Severity.WARNING if mild else Severity.ERROR for mild in expected}
        if not (verbs % SAME).any() and not verbs[1::2].any():
            assert not judged
        answers.add((bool(expected), bool(judged)))
    assert {(False, False), (True, True)} <= answers


@pytest.mark.parametrize("name, size", TYPES.items())
def test_random_scripts(name: str, size: int) -> None:
    rng = np.random.default_rng(size)
    answers = []
    gpus = [weft.VirtualGPU(threads=1, schedule=schedule) for schedule in range(3)]
    for _ in range(60):
        steps, warps = 4, int(rng.integers(1, 4))
        threads = 32 * warps
        verbs = rng.integers(1, 4 if size >= 4 else 3, (steps, threads))
        if rng.random() < 0.5:  # a step has one verb
            verbs = np.repeat(verbs[:, :1], threads, axis=1)
        verbs[rng.random(verbs.shape) < rng.choice([0.0, 0.8, 0.97])] = 0
        offsets = size * rng.integers(0, int(rng.choice([4, 256 // size])), verbs.shape)
        shape = rng.random()
        if shape < 0.5:  # each thread has separate places, at most rotated within a part of the warp
            own = (np.arange(threads) + rng.choice([0, 0, 1, 16], (steps, 1))) % int(rng.choice([32, threads]))
            offsets = size * ((own + np.arange(threads) // 32 * 32) % (256 // size))
        elif shape < 0.6:  # all of a warp in one place
            offsets = np.repeat(offsets[:, ::32], 32, axis=1)
        kinds = [NOTHING, CTA, WARP, HALVES, *([TWO_WARPS, ARRIVE] if warps > 1 else [])]
        meetings = rng.choice(kinds if rng.random() < 0.6 else [CTA, WARP], steps)
        meetings[np.flatnonzero(meetings == ARRIVE)[1:]] = WARP  # warp 0 must not arrive twice in one phase
        run = launched(gpus[int(rng.integers(0, 3))], name, verbs, offsets, meetings)
        expected = conflicts(verbs, offsets, meetings, size)
        found = {f.level for f in run.findings}
        assert found == {Severity.WARNING if mild else Severity.ERROR for mild in expected}, meetings
        assert {f.code for f in run.findings} <= {"R101", "R102", "R103"}
        for finding in run.findings:
            mild = finding.code == "R103" and finding.warp == finding.other_warp
            assert mild == (finding.level is Severity.WARNING)
        answers.append(tuple(sorted(expected)))
    assert {(), (False,)} <= set(answers) and any(True in answer for answer in answers)  # all answers occur
