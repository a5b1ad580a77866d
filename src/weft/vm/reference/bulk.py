"""Bulk copies, tensor copies and tensor maps (PTX ISA 9.7.9.25.4 to 9.7.9.28), element by element of the box."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Mem, Sym

from ..memory import GLOBAL_BASE, PARAM_BASE
from ..places import is_foreign
from ..tensor_map import (
    BOX_ALIGN,
    BYTES,
    FILL_NAN,
    MAP_ALIGN,
    REDUCTIONS,
    TYPES,
    TensorMap,
    decode,
    field_offset,
    refuse,
    swizzled,
)
from .access import address_of, as_bytes, load, locate, store
from .bulk_queue import deliver
from .machine import BulkCopy, Copy, Reduction, RunningWarp
from .spaces import Addresses, in_window
from .warp import Lanes

PIECE = 16
"""Bytes that stay together in every swizzle."""


Run = tuple[int, int | None, int]
"""Offset in shared memory, address in global memory (None: outside the tensor), length in bytes."""


@dataclass(frozen=True)
class _Box:
    """The box of one lane: its map, the coordinates of its first element, where it is in shared memory."""

    map: TensorMap
    at: tuple[int, ...]
    shared: int
    rows: tuple[int, ...] = ()
    """gather4: the coordinates in dimension 1 of the rows."""

    @property
    def counts(self) -> tuple[int, ...]:
        counts = self.map.counts
        return (counts[0], len(self.rows)) if self.rows else counts

    @property
    def bytes(self) -> int:
        return int(np.prod(self.counts)) * self.map.item_bytes

    def elements(self) -> Iterator[tuple[int, int | None]]:
        """Yield for each element its offset in the box, and its address in global memory; None outside the tensor."""
        of, counts = self.map, self.counts
        steps = (1, *of.steps[1:])
        for number, index in enumerate(product(*(range(count) for count in reversed(counts)))):
            place = [first + j * step for first, j, step in zip(self.at, reversed(index), steps, strict=True)]
            if self.rows:
                place[1] = self.rows[index[0]]
            inside = all(0 <= c < size for c, size in zip(place, of.dims, strict=True))
            far = place[0] * of.item_bytes + sum(c * s for c, s in zip(place[1:], of.strides, strict=True))
            yield number * of.item_bytes, of.address + far if inside else None

    def near(self, offset: int) -> int:
        """Return where a byte of the box is in shared memory."""
        return swizzled(self.shared + offset, self.map.swizzle)

    def runs(self) -> list[Run]:
        """Return the pieces of shared memory that belong to one run of global memory, or to none."""
        found: list[Run] = []
        size = self.map.item_bytes
        for offset, far in self.elements():
            near = self.near(offset)
            if found and offset % PIECE:
                start, source, length = found[-1]
                follows = far == source + length if source is not None and far is not None else far is source is None
                if follows:
                    found[-1] = start, source, length + size
                    continue
            found.append((near, far, size))
        return found


# -- issue ----------------------------------------------------------------------------------------------------------


def _cp(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("prefetch"):
        return
    if ins.has("commit_group"):
        for lane in w.lanes_on():
            w.bulk_groups[lane] += 1
    elif ins.has("wait_group"):
        _wait(w, ins)
    elif ins.has("tensor") or ins.find("map") is not None:
        _tensor(w, ins)
    else:
        _linear(w, ins)


def _wait(w: RunningWarp, ins: Instruction) -> None:
    pending = w.src(ins, "count")
    for copy in list(w.cta.bulk):
        covered = w.bulk_groups[copy.lane] - int(pending[copy.lane]) if copy.warp is w else 0
        if w.mask[copy.lane] and copy.mbarrier is None and copy.group < covered:
            deliver(copy)


def _linear(w: RunningWarp, ins: Instruction) -> None:
    """Issue cp.async.bulk and cp.reduce.async.bulk: a run of bytes."""
    loads = ins.find("mbar") is not None
    sizes = w.src(ins, "size")
    _, to = address_of(w, ins, "dst")
    _, source = address_of(w, ins, "src")
    near, far = (to, source) if loads else (source, to)
    odd = w.mask & (sizes % PIECE != 0)
    if odd.any():
        w.report("M107", "the size of a bulk copy must be a multiple of 16 bytes", ins, odd)
    lanes = w.mask & ~odd & (sizes != 0)
    mbarriers = _mbarriers(w, ins, lanes) if loads else {}
    for lane in np.flatnonzero(lanes):
        size = int(sizes[lane])
        here = np.arange(32) == lane
        shared = locate(w, ins, "shared", near, size, write=loads, align=PIECE, lanes=here)
        arena = locate(w, ins, "global", far, size, write=not loads, align=PIECE, lanes=here)
        if not shared or not arena or (loads and int(lane) not in mbarriers):
            continue
        runs: list[Run] = [(int(near[lane]), int(far[lane]), size)]
        reduction = None
        if ins.opcode.startswith("cp.reduce"):
            operation = next(op for op in REDUCTIONS if ins.has(op))
            reduction = _elements(operation, ins.type, runs)
            runs = []
        _queue(w, ins, int(lane), runs, mbarriers.get(int(lane)), size, reduction)


def _tensor(w: RunningWarp, ins: Instruction) -> None:
    """Issue a copy or reduction of a box."""
    loads = ins.find("mbar") is not None
    _, near = address_of(w, ins, "dst" if loads else "src")
    maps = _maps(w, ins)
    coordinates = w.items(ins, "coordinates", "s32")
    mbarriers = _mbarriers(w, ins, w.mask) if loads else {}
    for lane, of in maps.items():
        at = tuple(int(each[lane]) for each in coordinates)
        rows: tuple[int, ...] = ()
        if ins.has("tile::gather4"):
            at, rows = (at[0], 0), at[1:]
        problem = _unfit(ins, of, rows)
        here = np.arange(32) == lane
        if problem:
            w.report("M107", f"tensor map: {problem}", ins, here)
            continue
        box = _Box(of, at, int(near[lane]), rows)
        shared = locate(w, ins, "shared", near, box.bytes, write=loads, align=BOX_ALIGN, lanes=here)
        if not shared or not _in_allocation(w, ins, box, here) or (loads and lane not in mbarriers):
            continue
        runs = box.runs()
        reduction = None
        if not loads:
            runs = [run for run in runs if run[1] is not None]
        if ins.opcode.startswith("cp.reduce"):
            reduction = _elements(ins.mods["op"], TYPES[of.elemtype], runs)
            runs = []
        rest = _nan(of) if of.fill == FILL_NAN else b""
        _queue(w, ins, lane, runs, mbarriers.get(lane), box.bytes, reduction, rest)


def _unfit(ins: Instruction, of: TensorMap, rows: tuple[int, ...]) -> str:
    """Return why a map cannot be used by an instruction; empty if it can."""
    rank = 2 if rows else int(ins.mods["dim"][0])
    if of.rank != rank:
        return f"it has {of.rank} dimensions, the instruction {rank}"
    if rows and of.box[1] != 1:
        return f"its box has {of.box[1]} rows; gather4 needs 1"
    problem = of.problem()
    if not problem:
        try:
            refuse(of)
        except Unsupported as error:
            return str(error)
    operation = ins.mods.get("op") if ins.opcode.startswith("cp.reduce") else None
    if not problem and operation and TYPES[of.elemtype] not in REDUCTIONS[operation].split():
        return f"no reduction {operation} of {TYPES[of.elemtype]}"
    return problem


def _elements(operation: str, kind: str, runs: list[Run]) -> Reduction:
    size = WIDTH[kind] // 8
    pairs: list[tuple[int, int]] = []
    for near, far, length in runs:
        if far is not None:
            pairs += [(far - GLOBAL_BASE + at, near + at) for at in range(0, length, size)]
    return Reduction(operation, f"u{8 * size}" if operation in ("and", "or", "xor") else kind, tuple(pairs))


def _queue(
    w: RunningWarp,
    ins: Instruction,
    lane: int,
    runs: list[Run],
    mbarrier: int | None,
    size: int,
    reduction: Reduction | None,
    fill: bytes = b"",
) -> None:
    arena, shared = w.grid.global_region, w.cta.shared
    pieces = []
    for near, far, length in runs:
        if far is None:
            pieces.append(Copy(shared, near, shared, near, 0, length, ins, (fill * length)[:length]))
        elif mbarrier is not None:
            pieces.append(Copy(shared, near, arena, far - GLOBAL_BASE, length, length, ins))
        else:
            pieces.append(Copy(arena, far - GLOBAL_BASE, shared, near, length, length, ins))
    w.cta.bulk.append(BulkCopy(w, w.cta, lane, ins, tuple(pieces), mbarrier, size, w.bulk_groups[lane], reduction))


def _nan(of: TensorMap) -> bytes:
    """Return the bytes of an element outside the tensor: the canonical NaN of the type."""
    return bytes([0xFF] * (of.item_bytes - 1) + [0x7F])


def _in_allocation(w: RunningWarp, ins: Instruction, box: _Box, here: Lanes) -> bool:
    """Return whether the elements inside the tensor are in the allocation that its address belongs to."""
    places = [far for _, far in box.elements() if far is not None]
    if not places:
        return True
    base, end = box.map.address, max(places) + box.map.item_bytes
    for start, length in w.grid.global_region.objects or ():
        if start <= base - GLOBAL_BASE < start + length and end - GLOBAL_BASE <= start + length:
            return True
    code = "M104" if is_foreign(end - 1) else "M101"
    w.report(code, f"the box ends at {end:#x}, beyond the buffer of its tensor map", ins, here, end - 1)
    return False


def _mbarriers(w: RunningWarp, ins: Instruction, lanes: Lanes) -> dict[int, int]:
    """Return lane → the offset of its mbarrier."""
    _, address = address_of(w, ins, "mbar")
    found: dict[int, int] = {}
    for hit in locate(w, ins, "shared", address, 8, write=True, lanes=lanes):
        found |= {int(lane): int(hit.at[lane]) for lane in np.flatnonzero(hit.lanes)}
    return found


def _maps(w: RunningWarp, ins: Instruction) -> dict[int, TensorMap]:
    """Return the tensor map of each lane, in param or global memory."""
    mem = ins.operand("map")
    assert isinstance(mem, Mem)
    if isinstance(mem.base, Sym):
        raise Unsupported(f"{ins.opcode}: a tensor map by name; use its generic address", ins.line)
    address: Addresses = w.read(mem.base, "b64", ins.line) + np.uint64(mem.offset & 0xFFFFFFFFFFFFFFFF)
    found: dict[int, TensorMap] = {}
    for space in ("param", "global"):
        base = PARAM_BASE if space == "param" else 0
        here = w.mask & (in_window("param", address) if space == "param" else ~in_window("param", address))
        if not here.any():
            continue
        for hit in locate(w, ins, space, address - np.uint64(base), BYTES, align=MAP_ALIGN, lanes=here):
            for lane in np.flatnonzero(hit.lanes):
                at = int(hit.at[lane])
                found[int(lane)] = decode(hit.region.data[at : at + BYTES].tobytes())
    return dict(sorted(found.items()))


# -- tensor maps ----------------------------------------------------------------------------------------------------


def _tensormap(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("cp_fenceproxy"):
        _hand_over(w, ins)
        return
    space, address = address_of(w, ins, "a")
    store(w, ins, space, address + np.uint64(field_offset(ins)), as_bytes(w.src(ins, "value")))


def _hand_over(w: RunningWarp, ins: Instruction) -> None:
    """Copy 128 bytes from shared to global memory: each lane a word."""
    size = ins.operand("size")
    if not isinstance(size, Imm) or size.value != BYTES:
        raise Unsupported(f"{ins.opcode} of {size} bytes", ins.line)
    words = np.arange(32, dtype=np.uint64) * np.uint64(4)
    _, to = address_of(w, ins, "dst")
    _, source = address_of(w, ins, "src")
    store(w, ins, "global", to + words, load(w, ins, "shared", source + words, 4))


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {"cp": _cp, "tensormap": _tensormap}
