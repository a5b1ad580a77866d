"""Products of a warpgroup (PTX ISA 9.7.15): operands are read element by element, by the layouts of 9.7.15.5.1."""

from collections.abc import Callable

import numpy as np

from weft.ptx.module import Instruction, Vec

from ..mma_kind import STORAGE_BITS, WGMMA
from ..wgmma_kind import BASE_OFFSET_SHIFT, INVALID_ADDRESS, SWIZZLES, WARPS, Wgmma, wgmma_of
from .access import fetch, locate
from .fragments import Array, mma_fragment
from .machine import RunningWarp
from .tensorcore import mma
from .warpgroups import await_group, take_step

_SIGN = {8: 0x80, 16: 0x8000, 32: 0x80000000}


def element_addresses(descriptor: int, rows: Array, depth: int, size: int, *, by_k: bool) -> Array:
    """Return the shared address of every element, [row, k]; `size` is that of an element in bytes.

    `by_k`: the elements of a row follow each other (K-major), otherwise those of a column (MN-major).
    """
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    width = SWIZZLES[descriptor >> 62]
    m, k = np.meshgrid(rows, np.arange(depth), indexing="ij")
    if by_k and width:
        at = m // 8 * stride + m % 8 * width + k * size
    elif by_k:
        at = m // 8 * stride + m % 8 * 16 + k * size // 16 * leading + k * size % 16
    elif width:
        per_row = width // size
        at = m // per_row * leading + m % per_row * size + k // 8 * stride + k % 8 * width
    else:
        per_row = 16 // size
        at = m // per_row * stride + m % per_row * size + k // 8 * leading + k % 8 * 16
    address: Array = start + at
    swizzle = {0: 0, 32: 1, 64: 3, 128: 7}[width]
    return np.asarray(address ^ (address >> 7 & swizzle) << 4)


def operand_addresses(w: RunningWarp, ins: Instruction, how: Wgmma, name: str) -> Array:
    """Return the shared address of every element of this warp's A, [row, k], or of B, [column, k]."""
    rows = 16 * (w.number % WARPS) + np.arange(16) if name == "a" else np.arange(8 * how.blocks)
    by_k = how.a_by_rows if name == "a" else how.b_by_columns
    given = w.src(ins, name)
    descriptor = int(given[0])
    address = element_addresses(descriptor, rows, how.kind.k, STORAGE_BITS[how.kind.a_type] // 8, by_k=by_k)
    if (given != given[0]).any() or descriptor >> BASE_OFFSET_SHIFT & 7:
        return np.full(address.shape, INVALID_ADDRESS)
    return address


def _tile(w: RunningWarp, ins: Instruction, how: Wgmma, name: str) -> Array:
    """Return the elements of an operand in shared memory, [row, k]."""
    bits = STORAGE_BITS[how.kind.a_type]
    size = bits // 8
    address = operand_addresses(w, ins, how, name)
    flat = address.ravel().astype(np.uint64)
    parts = []
    for first in range(0, len(flat), 32):
        here = np.resize(flat[first : first + 32], 32)
        hits = locate(w, ins, "shared", here, size, lanes=np.ones(32, bool))
        parts.append(fetch(hits, size)[: len(flat) - first])
    raw = np.ascontiguousarray(np.concatenate(parts)).view(f"uint{bits}")
    return raw.reshape(address.shape)


def _wgmma(w: RunningWarp, ins: Instruction) -> None:
    if ins.facts.orders == "wait":
        await_group(w)
    if not ins.has("mma_async"):  # products are complete when they are issued
        return
    how = wgmma_of(ins)
    kind = how.kind
    take_step(w, ins, (ins.line, *(int(w.src(ins, name)[0]) for name in ("ab" if not how.in_registers else "b"))))
    bits = STORAGE_BITS[kind.a_type]
    if how.in_registers:
        a = mma_fragment(kind, "a").unpack(np.stack(w.items(ins, "a", "b32")))
    else:
        a = _tile(w, ins, how, "a")
    if how.negate:
        a = a ^ a.dtype.type(_SIGN[bits])
    b = _tile(w, ins, how, "b").T
    target = ins.operand("d")
    assert isinstance(target, Vec)
    keep = bool(w.src(ins, "go")[0])
    for block in range(how.blocks):
        registers = target.items[how.results * block : how.results * (block + 1)]
        held = np.stack([w.read(item, "b32", ins.line) for item in registers])
        c = mma_fragment(kind, "c").unpack(held if keep else np.zeros_like(held))
        d = mma(a, b[:, 8 * block : 8 * block + 8], c, kind=kind, arch=WGMMA, mode=w.grid.launch.mode)
        for item, value in zip(registers, mma_fragment(kind, "d").pack(d), strict=True):
            w.write(item, value, "b32", ins.line)


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {"wgmma": _wgmma}
