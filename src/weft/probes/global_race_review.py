"""Finds the races of global memory in suspicious buffers: first the bytes, then the order of their accesses, exactly.

The bytes with possibly conflicting accesses come from a second run (`global_race_shadow.py`), the order from a third
(`global_race_log.py`). Where there are too many such bytes to check all, some are chosen for each set of instructions
and neighbourhoods, and a finding reports that; what could not be checked at all stays as a warning.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.ptx.module import Instruction
from weft.vm.device_heap import heap_in
from weft.vm.ir import LANES
from weft.vm.memory import GLOBAL_BASE, GlobalMemory
from weft.vm.runtime.watch import Scene

from .conflict import Conflict
from .crowds import first_part
from .global_race import MOST_THREADS, give_back_owners, suspects
from .global_race_log import GlobalRecorder, strong_sites
from .global_race_shadow import GlobalShadow
from .happens_before import find_conflicts_in_global
from .semantics import semantics_of

MOST_BYTES, MOST_ROUNDS = 1 << 14, 8
"""Bytes checked with one log, and logs of a launch, where one log for the bytes of all rounds is too long."""
FIRST_LOG, LOG_AT_MOST = 1 << 14, 1 << 17
"""Records of the log: room at the first attempt, and at most."""


@dataclass(frozen=True)
class Judgement:
    """The races of a launch in global memory, and what was not checked."""

    conflicts: tuple[Conflict, ...] = ()
    left: int = 0
    """The number of bytes that were not checked."""
    severity: Severity = Severity.INFO
    """INFO: other bytes that the same instructions accessed were checked."""
    address: int = 0
    """The address of one of these bytes."""


def judge_global(scene: Scene) -> Judgement:
    """Return the races of a launch that RaceCheck has watched."""
    memory = scene.memory
    buffers = suspects(scene.boards, memory)
    if not buffers:
        return Judgement()
    first = int(memory.extents[buffers[0]][0]) + GLOBAL_BASE
    block, ctas = math.prod(scene.launch.block), math.prod(scene.launch.grid)
    if ctas * -(-block // LANES) * LANES > MOST_THREADS:
        sizes = sum(int(memory.extents[number][1]) for number in buffers)
        return Judgement((), sizes, Severity.WARNING, first)
    give_back_owners(scene.boards, memory)
    shadow = GlobalShadow(buffers)
    scene.again(shadow, None)
    offsets, marks = shadow.met(memory)
    once = ~_reused(offsets, memory)  # accesses to blocks of the heap that had one place after the other are no race
    offsets, marks = offsets[once], marks[once]
    if not len(offsets):
        return Judgement()
    # One log for all bytes is cheapest; where it would be too long, several shorter ones.
    at_once = _judge_bytes(scene, offsets, marks, MOST_BYTES * MOST_ROUNDS, 1)
    if at_once.severity is Severity.INFO:
        return at_once
    return _judge_bytes(scene, offsets, marks, MOST_BYTES, MOST_ROUNDS)


def _judge_bytes(
    scene: Scene, offsets: npt.NDArray[np.int64], marks: npt.NDArray[np.uint32], most: int, rounds: int
) -> Judgement:
    """Check the bytes at `offsets` with at most `rounds` logs of `most` bytes each."""
    block, ctas = math.prod(scene.launch.block), math.prod(scene.launch.grid)
    semantics = semantics_of(scene)
    conflicts: list[Conflict] = []
    left = np.arange(len(offsets))
    for _ in range(rounds):
        which = _sample(marks[left], most)
        chosen = np.zeros(scene.memory.used + 64, bool)
        chosen[offsets[left[which]]] = True
        log = _log(scene, chosen, ctas)
        if log is None:
            return Judgement(tuple(conflicts), len(left), Severity.WARNING, int(offsets[left[0]]) + GLOBAL_BASE)
        log = semantics.unused.without(log)
        part = first_part(log, semantics)
        conflicts += find_conflicts_in_global(part, block, semantics)
        if len(part) < len(log):
            alike = set(np.unique(log["site"])) == set(np.unique(part["site"]))
            severity = Severity.INFO if alike else Severity.WARNING
            return Judgement(tuple(conflicts), len(left), severity, int(offsets[left[0]]) + GLOBAL_BASE)
        left = np.delete(left, which)
        if not len(left):
            return Judgement(tuple(conflicts))
    return Judgement(tuple(conflicts), len(left), Severity.INFO, int(offsets[left[0]]) + GLOBAL_BASE)


def _reused(offsets: npt.NDArray[np.int64], memory: GlobalMemory) -> npt.NDArray[np.bool_]:
    """Return which bytes were part of several blocks of the heap in this launch."""
    inside = np.zeros(len(offsets), bool)
    heap = heap_in(memory)
    for low, high in heap.reused if heap is not None else ():
        inside |= (offsets >= low) & (offsets < high)
    return inside


def _sample(marks: npt.NDArray[np.uint32], most: int) -> npt.NDArray[np.intp]:
    """Return the positions of about `most` bytes, evenly from each kind of marks; all if there are no more."""
    if len(marks) <= most:
        return np.arange(len(marks))
    kinds, kind = np.unique(marks, return_inverse=True)
    share = -(-most // len(kinds))
    parts = []
    for number in range(len(kinds)):
        here = np.flatnonzero(kind == number)
        parts.append(here[np.unique(np.linspace(0, len(here) - 1, share).astype(np.intp))])
    return np.concatenate(parts)


def _log(scene: Scene, chosen: npt.NDArray[np.bool_], ctas: int) -> npt.NDArray[np.void] | None:
    """Return the log, if necessary only of the CTAs that take part in it; None if it is too long."""
    body = (item for item in scene.source.inlined.body if isinstance(item, Instruction))
    strong, warps = strong_sites(body), -(-math.prod(scene.launch.block) // LANES)
    recorder = GlobalRecorder(np.ones(ctas, bool), FIRST_LOG, warps, chosen=chosen, strong=strong)
    scene.again(recorder, None)
    log, count = recorder.read()
    if count <= FIRST_LOG:
        return log
    recorder = GlobalRecorder(recorder.takes_part, min(count, LOG_AT_MOST), warps, chosen=chosen, strong=strong)
    scene.again(recorder, None)
    log, count = recorder.read()
    return log if count <= recorder.capacity else None
