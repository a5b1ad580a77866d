"""racecheck on global memory against an oracle: random scripts of several CTAs, with some barriers.

A finding is suspected by the first two passes and confirmed by the third, so equality with the oracle shows that none
of them misses anything and that the last is exact. The kernels of `tests/bad/race_free/launched` test the messages.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.finding_codes import Severity
from weft.core.records import Binary, Finding, Run
from weft.engines.kernel_file import load
from weft.engines.sample import CtaSample
from weft.probes import InitCheck, Probes, RaceCheck, global_race_review

SOURCE = Path(__file__).parent / "cuda/global_script.cu"
FOLDER = Path(__file__).parent.parent / "bad" / "race_free" / "launched"
TYPES = {"unsigned char": 1, "unsigned short": 2, "unsigned": 4, "unsigned long long": 8}
LOAD, STORE, ATOMIC = 1, 2, 3
NOTHING, CTA, WARP, GRID, SIGNAL = range(5)


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, entries=[f"script<{name}, {waits}>" for name in TYPES for waits in (0, 1)])


def meet(clocks: np.ndarray, come: np.ndarray, leave: np.ndarray) -> None:
    """A thread that leaves knows what all arrivals know; a thread that arrives starts a new epoch."""
    known = clocks[come].max(axis=0)
    clocks[leave] = np.maximum(clocks[leave], known)
    clocks[come, come] += 1


def conflicts(verbs: np.ndarray, offsets: np.ndarray, meetings: np.ndarray, size: int) -> set[str]:
    """Return the kinds of races of a script of shape [step, CTA, thread], by plain vector clocks."""
    steps, ctas, block = verbs.shape
    threads = np.arange(ctas * block)
    clocks = np.zeros((len(threads), len(threads)), int)
    np.fill_diagonal(clocks, 1)
    seen: dict[int, list[tuple[int, int, int]]] = {}
    found = set()
    for step in range(steps):
        row, places = verbs[step].reshape(-1), offsets[step].reshape(-1)
        for thread in np.flatnonzero(row).tolist():
            for byte in range(size):
                before = seen.setdefault(int(places[thread]) + byte, [])
                for other, other_verb, epoch in before:
                    pair = {int(row[thread]), other_verb}
                    if other != thread and pair not in ({LOAD}, {ATOMIC}) and clocks[thread, other] < epoch:
                        near = "cta" if other // block == thread // block else "grid"
                        found.add("warp" if other // 32 == thread // 32 else near)
                before.append((thread, int(row[thread]), int(clocks[thread, thread])))
        members = threads.reshape(ctas, block)
        if meetings[step] == GRID:
            meet(clocks, threads, threads)
        elif meetings[step] in (CTA, SIGNAL):
            for cta in members:
                meet(clocks, cta, cta)
            if meetings[step] == SIGNAL:
                meet(clocks, members[0, :1], members[1])
        elif meetings[step] == WARP:
            for warp in threads.reshape(-1, 32):
                meet(clocks, warp, warp)
    return found


def kind(finding: Finding) -> str:
    """Return the kind: in a warp, between warps of a CTA, or between CTAs."""
    if "with CTA" in finding.message:
        assert finding.level is Severity.ERROR
        return "grid"
    inside = finding.warp == finding.other_warp
    assert (finding.level is Severity.WARNING) == (inside and finding.code == "R103")
    return "warp" if inside else "cta"


@pytest.mark.parametrize("waits", (0, 1))
@pytest.mark.parametrize("name, size", TYPES.items())
def test_random_scripts(name: str, size: int, waits: int) -> None:
    rng = np.random.default_rng(10 * size + waits)
    answers = []
    gpus = [weft.VirtualGPU(threads=2, schedule=schedule) for schedule in range(3)]
    for trial in range(24):
        steps, ctas, block = 4, int(rng.integers(2, 4)), 32 * int(rng.integers(1, 3))
        shape = (steps, ctas, block)
        verbs = rng.integers(1, 4 if size >= 4 else 3, shape)
        if rng.random() < 0.5:  # a step has one verb
            verbs = np.repeat(verbs[:, :1, :1], block, axis=2).repeat(ctas, axis=1)
        verbs[rng.random(shape) < rng.choice([0.5, 0.97, 0.99])] = 0
        offsets = size * rng.integers(0, int(rng.choice([4, 256 // size])), shape)
        if rng.random() < 0.4:  # each thread has a separate place, or later its neighbour's in the warp
            offsets[:] = size * np.arange(ctas * block).reshape(ctas, block)
            offsets[-1] = np.roll(offsets[-1].reshape(-1), int(rng.choice([0, 1, block]))).reshape(ctas, block)
        meetings = rng.choice([NOTHING, CTA, GRID, SIGNAL] if waits else [NOTHING, CTA, WARP], steps)
        memory = np.zeros(size * 192 + 256, np.uint8)
        arrays = [a.astype(np.int32) for a in (verbs, offsets, meetings)]
        args = [*arrays, steps, memory, np.zeros(8, np.uint32), np.zeros(1, np.float32)]
        run = gpus[trial % 3].launch(binary(), f"script<{name}, {waits}>", ctas, block, args, watch=RaceCheck())
        expected = conflicts(verbs, offsets, meetings, size)
        assert {kind(finding) for finding in run.findings} == expected, (trial, [str(f) for f in run.findings])
        answers.append(expected)
    assert sum(not answer for answer in answers) >= 3 and {"warp", "grid"} <= set().union(*answers)


# -- limits -----------------------------------------------------------------------------------------------------------


def stencil(bug: int, **how: object) -> Run:
    gpu = weft.VirtualGPU(threads=1)
    kernel = weft.compile_cuda(FOLDER / "stencil_in_place.cu", defines={"BUG": str(bug)}, entries=["kernel"])
    return gpu.launch(kernel, "kernel", 4, 32, [np.ones(128, np.float32)], names=["o"], watch=RaceCheck(), **how)


def test_message_and_cure() -> None:
    # Lane 31 of CTA 0 reads element 32, which lane 0 of CTA 1 writes: byte 128. CTAs 1 and 2 do the same.
    (found,) = stencil(1).findings
    assert (found.code, found.name, found.cta, found.lanes, found.other_lanes) == ("R103", "o", (1, 0, 0), 1, 1 << 31)
    assert found.message == "write-after-read race with CTA (0, 0, 0), 4 bytes at o+0x80" and found.count == 3
    assert "__threadfence() after line 8" in found.remedy


def test_some_bytes_represent_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_race_review, "MOST_BYTES", 4)
    monkeypatch.setattr(global_race_review, "MOST_ROUNDS", 1)
    assert [(f.code, f.level) for f in stencil(1).findings] == [("R103", Severity.ERROR), ("R102", Severity.INFO)]
    run = stencil(0)  # lanes pass their elements on, in order
    assert [f.level for f in run.findings] == [Severity.INFO] and run.clean


def test_what_cannot_be_judged_stays_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_race_review, "FIRST_LOG", 2)
    monkeypatch.setattr(global_race_review, "LOG_AT_MOST", 2)
    assert [f.level for f in stencil(0).findings] == [Severity.WARNING]


def test_a_long_log_contains_only_the_ctas_that_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_race_review, "FIRST_LOG", 2)
    assert [f.code for f in stencil(1).findings] == ["R103"]


def test_a_sample_stays_a_sample() -> None:
    assert stencil(1, ctas=CtaSample(((0, 0), (2, 0)))).findings == ()
    assert [f.cta for f in stencil(1, ctas=CtaSample(((1, 0), (2, 0)))).findings] == [(2, 0, 0)]


def test_stores_of_different_host_threads_are_compared() -> None:
    for _ in range(4):
        watch = Probes(InitCheck(), RaceCheck())
        run = load(FOLDER / "grid_overlaps.cu").run(weft.VirtualGPU(threads=2), watch=watch).run
        assert [(f.code, f.count) for f in run.findings] == [("R101", 7)]
