"""Barriers, fences, atomics, votes, matches, reductions (PTX ISA 9.7.13) and shuffles (9.7.9.6)."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Discard, Instruction, Operand, Pair

from .access import address_of, locate
from .machine import RUNNING, WAITING, Barrier, Cta, RunningWarp, Stop
from .spaces import SpaceStorage
from .warp import Lanes, dtype_of

_LANE = np.arange(32)


# -- CTA barriers ------------------------------------------------------------------------------------------------


def _bar(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("warp"):  # the lanes have already met, which is all that bar.warp.sync requires
        return
    if ins.has("red"):
        predicate = ins.find("e")
        count = ins.operand("c") if predicate is not None else None
        _arrive(w, ins, count, votes=w.read(predicate or ins.operand("c"), "pred", ins.line))
    else:
        _arrive(w, ins, ins.find("b"), blocking=not ins.has("arrive"))


def _arrive(
    w: RunningWarp, ins: Instruction, count: Operand | None, *, votes: Lanes | None = None, blocking: bool = True
) -> None:
    numbers = w.src(ins, "a")
    counts = np.zeros(32, np.uint32) if count is None else w.read(count, "u32", ins.line)
    group = w.mask.copy()
    for number in sorted({int(n) for n in numbers[group]}):
        if number > 15:
            w.report("S303", f"barrier number {number} does not exist: valid numbers are 0 to 15", ins, group, number)
            raise Stop
        lanes = group & (numbers == number)
        if number in w.cta.barriers and _complete(w.cta.barriers[number], w.cta.live_threads()):
            release(w.cta)  # this arrival belongs to the next phase
        barrier = w.cta.barriers.setdefault(number, Barrier())
        _check_arrival(w, ins, barrier, int(counts[lanes].max()), lanes, number)
        barrier.expected = max(barrier.expected, int(counts[lanes].max()))
        together = bool((lanes == w.live).all())
        barrier.arrived += 32 if together else int(np.count_nonzero(lanes))
        if votes is not None:
            barrier.true += int(np.count_nonzero(votes & lanes))
            barrier.voted += int(np.count_nonzero(lanes))
        if blocking:
            w.state[lanes] = WAITING
            barrier.waiting.append((w, lanes, ins))


def _check_arrival(w: RunningWarp, ins: Instruction, barrier: Barrier, count: int, lanes: Lanes, number: int) -> None:
    """Report counts that can never be reached, and lanes of one warp at different instructions of one barrier."""
    if count % 32:
        w.report("S305", f"barrier for {count} threads: the count must be a multiple of 32", ins, lanes, count)
    if count > 32 * len(w.cta.warps):
        w.report("S305", f"barrier for {count} threads: the CTA has fewer", ins, lanes, count)
    if barrier.arrived and barrier.expected != count:
        w.report("S305", f"barrier for {count} threads: other warps arrived with a different count", ins, lanes, count)
    apart = any(warp is w and other.line != ins.line for warp, _, other in barrier.waiting)
    if apart and (ins.facts.aligned or ins.has("aligned")):
        words = f"lanes of one warp reach barrier {number} at different instructions"
        w.report("S306", words, ins, lanes, number)


def release(cta: Cta) -> bool:
    """Let the threads of every complete barrier continue. False if none is complete."""
    live = cta.live_threads()
    done = [number for number, barrier in cta.barriers.items() if _complete(barrier, live)]
    for number in done:
        barrier = cta.barriers.pop(number)
        _hand_out(barrier)
        for warp, lanes, _ in barrier.waiting:
            warp.state[lanes] = RUNNING
    return bool(done)


def _complete(barrier: Barrier, live_threads: int) -> bool:
    """Return whether every expected thread has arrived."""
    if barrier.expected:
        return barrier.arrived >= barrier.expected
    waiting = sum(int(np.count_nonzero(lanes)) for _, lanes, _ in barrier.waiting)
    return waiting > 0 and waiting >= live_threads


def _hand_out(barrier: Barrier) -> None:
    """Give every waiting thread of a complete barrier the result of its reduction, if it requested one."""
    results = {
        "popc": np.full(32, barrier.true, np.uint32),
        "and": np.full(32, barrier.true == barrier.voted),
        "or": np.full(32, barrier.true > 0),
    }
    for w, lanes, ins in barrier.waiting:
        if ins.has("red"):
            w.enter(w.grid.program.owners[int(w.pc[lanes][0])])  # at the barrier, or just after it
            w.mask = lanes
            w.dst(ins, results["popc" if ins.has("popc") else ins.mods["op"]])


def _fence(w: RunningWarp, ins: Instruction) -> None:
    """Do nothing: memory is always in order here, in every proxy."""


# -- atomics -----------------------------------------------------------------------------------------------------


def _atom(w: RunningWarp, ins: Instruction) -> None:
    old = _read_modify_write(w, ins)
    w.dst(ins, old)


def red(w: RunningWarp, ins: Instruction) -> None:
    """Combine a value with what is in memory."""
    _read_modify_write(w, ins)


def _read_modify_write(w: RunningWarp, ins: Instruction) -> Lanes:
    """Read, compute and write, one lane after the other. Returns what each lane found."""
    size = WIDTH[ins.type] // 8
    packed = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}.get(ins.type)
    dtype = np.dtype(packed) if packed else dtype_of(ins.type)
    operation = next(name for name in _OPERATIONS if ins.has(name))
    b = w.src(ins, "b")
    c = w.src(ins, "c") if operation == "cas" else b
    old = np.zeros(32, dtype_of(ins.type))
    space, address = address_of(w, ins, "a")
    where: dict[int, tuple[SpaceStorage, int]] = {}
    for hit in locate(w, ins, space, address, size, write=True):
        where |= {int(lane): (hit.region, int(hit.at[lane])) for lane in np.flatnonzero(hit.lanes)}
    for lane in sorted(where):
        region, at = where[lane]
        cell = region.data[at : at + size]
        found = cell.copy().view(dtype)
        operands = [value[lane : lane + 1].view(dtype) for value in (b, c)]
        new = updated(operation, found, *operands, flush=ins.type == "f32" and region.name == "global")
        old[lane : lane + 1] = found.view(old.dtype)
        cell[:] = new.astype(dtype).view(np.uint8)
    return old


def updated(operation: str, found: Lanes, b: Lanes, c: Lanes, *, flush: bool) -> Lanes:
    """Return what an atomic operation writes, of arrays of equal length.

    `flush`: subnormal operands and results of an addition become zero, as PTX documents for f32 in global memory.
    """
    if operation == "add" and flush:
        return _flushed(_add(*(_flushed(value) for value in (found, b, c))))
    return np.concatenate([_OPERATIONS[operation](*item) for item in zip(found, b, c, strict=True)])


def _flushed(value: Lanes) -> Lanes:
    """Return subnormals as zeros of the same sign."""
    tiny = np.abs(value) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), value), value).astype(np.float32)


def _add(a: Any, b: Any, c: Any) -> Any:
    with np.errstate(all="ignore"):
        total = np.atleast_1d(a + b)
    if total.dtype in (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        nan = np.full(1, 0x7FFFFFFF if total.dtype.itemsize == 4 else 0x7FFF, f"uint{8 * total.dtype.itemsize}")
        return nan.view(total.dtype) if np.isnan(total[0]) else total
    return total


def _one(function: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    return lambda a, b, c: np.atleast_1d(np.asarray(function(a, b, c), a.dtype))


_OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "and": _one(lambda a, b, c: a & b),
    "or": _one(lambda a, b, c: a | b),
    "xor": _one(lambda a, b, c: a ^ b),
    "exch": _one(lambda a, b, c: b),
    "add": _add,
    "inc": _one(lambda a, b, c: 0 if a >= b else a + 1),
    "dec": _one(lambda a, b, c: b if a == 0 or a > b else a - 1),
    "min": _one(lambda a, b, c: min(a, b)),
    "max": _one(lambda a, b, c: max(a, b)),
    "cas": _one(lambda a, b, c: c if a == b else a),
}


# -- warp collectives: w.mask is the group of lanes that met -----------------------------------------------------


def _vote(w: RunningWarp, ins: Instruction) -> None:
    votes = w.src(ins, "a")[w.mask]
    if ins.has("ballot"):
        w.dst(ins, np.full(32, _bits(w.mask & w.src(ins, "a")), np.uint32))
        return
    answer = {"all": votes.all(), "any": votes.any(), "uni": votes.all() or not votes.any()}[ins.mods["mode"]]
    w.dst(ins, np.full(32, bool(answer)))


def _bits(lanes: Lanes) -> int:
    return sum(1 << int(lane) for lane in np.flatnonzero(lanes))


def _match(w: RunningWarp, ins: Instruction) -> None:
    values = w.src(ins, "a")
    if ins.has("any"):
        w.dst(ins, np.array([_bits(w.mask & (values == value)) for value in values], np.uint32))
        return
    same = len(set(values[w.mask].tolist())) == 1
    w.dst(ins, np.full(32, _bits(w.mask) if same else 0, np.uint32))
    _second(w, ins, np.full(32, same))


def _second(w: RunningWarp, ins: Instruction, predicate: Lanes) -> None:
    pair = ins.operand("d")
    if isinstance(pair, Pair) and not isinstance(pair.second, Discard):
        w.write(pair.second, predicate, "pred", ins.line)


def _activemask(w: RunningWarp, ins: Instruction) -> None:
    w.dst(ins, np.full(32, _bits(w.mask), np.uint32))


def _elect(w: RunningWarp, ins: Instruction) -> None:
    leader = int(np.flatnonzero(w.mask)[0])
    w.dst(ins, np.full(32, leader, np.uint32))
    _second(w, ins, np.equal(_LANE, leader))


def _redux(w: RunningWarp, ins: Instruction) -> None:
    values = w.src(ins, "a")
    fold = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[ins.mods["op"]]
    w.dst(ins, np.full(32, fold.reduce(values[w.mask], dtype=values.dtype)))


def shuffle_sources(w: RunningWarp, ins: Instruction) -> tuple[Lanes, Lanes]:
    """Return the lane from which each lane takes its value, and whether that is the requested one."""
    b = w.src(ins, "b").astype(np.int64) & 31
    c = w.src(ins, "c").astype(np.int64)
    clamp, segment = c & 31, c >> 8 & 31
    first = _LANE & segment
    last = first | (clamp & ~segment)
    match ins.mods["mode"]:
        case "up":
            source = _LANE - b
            valid = source >= last
        case "down":
            source = _LANE + b
            valid = source <= last
        case "bfly":
            source = _LANE ^ b
            valid = source <= last
        case "idx":
            source = first | (b & ~segment)
            valid = source <= last
        case mode:
            raise Unsupported(f"shfl.{mode}", ins.line)
    return np.where(valid, source, _LANE), valid


def _shfl(w: RunningWarp, ins: Instruction) -> None:
    source, valid = shuffle_sources(w, ins)
    w.dst(ins, w.src(ins, "a")[source])
    _second(w, ins, valid)


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {
    "bar": _bar,
    "barrier": _bar,
    "membar": _fence,
    "fence": _fence,
    "atom": _atom,
    "red": red,
    "vote": _vote,
    "match": _match,
    "activemask": _activemask,
    "elect": _elect,
    "redux": _redux,
    "shfl": _shfl,
}

__all__ = ["EXECUTE", "red", "release", "shuffle_sources"]
