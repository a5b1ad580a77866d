"""Loads and stores of lanes: address → state space → bytes, with M101 and M104 (out of range) and M102 (misaligned)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.core.errors import Unsupported
from weft.ptx.module import Imm, Instruction, Mem, Reg, Sym

from ..clusters import RANK_SHIFT
from ..last_word import takes_last_word
from ..memory import SHARED_BASE, Bytes
from ..places import is_foreign
from .machine import RunningWarp
from .spaces import Addresses, Flags, SpaceStorage, in_window, to_offset

_GENERIC = ("global", "shared", "local", "param")


class Hit(NamedTuple):
    """Lanes whose access is in one region, and the offset in its storage."""

    region: SpaceStorage
    lanes: Flags
    at: npt.NDArray[np.int64]


def address_of(w: RunningWarp, ins: Instruction, name: str) -> tuple[str, Addresses]:
    """Return the state space and the address per lane of the operand `[base+offset]`."""
    mem = ins.operand(name)
    if not isinstance(mem, Mem):
        raise Unsupported(f"address {mem}", ins.line)
    space = written_space(ins)
    if isinstance(mem.base, Sym):
        real = w.space_of(mem.base)
        if space == "param" and real == "local":  # the parameters of a call are local memory
            space = "local"
        elif space == "generic":  # a name without a space is an address in the variable's own space
            space = real
    # At another CTA the address has the rank on top (`vm/clusters.py`); the tensor map and the global side have none.
    far = np.uint64(w.far << RANK_SHIFT if name in ("a", "mbar") else 0)
    if isinstance(mem.base, Reg) and w.file[mem.base.name].dtype.itemsize == 4:
        low = w.read(mem.base, "b32", ins.line) + np.uint32(mem.offset & 0xFFFFFFFF)
        return space, low.astype(np.uint64) - far
    base = np.full(32, mem.base.value, np.uint64) if isinstance(mem.base, Imm) else w.read(mem.base, "b64", ins.line)
    return space, base + np.uint64(mem.offset & 0xFFFFFFFFFFFFFFFF) - far


def shared_addresses(w: RunningWarp, ins: Instruction, name: str = "a") -> Addresses:
    """Return the addresses `[a]` of objects that must be in shared memory, as offsets in its window."""
    space, address = address_of(w, ins, name)
    return address - np.uint64(SHARED_BASE) if space == "generic" else address


def written_space(ins: Instruction) -> str:
    """Return the state space that the opcode names."""
    return "global" if "global" in ins.mods else ins.mods.get("space", "generic").partition("::")[0]


def locate(
    w: RunningWarp,
    ins: Instruction,
    space: str,
    address: Addresses,
    size: int,
    *,
    write: bool = False,
    align: int | None = None,
    lanes: Flags | None = None,
) -> list[Hit]:
    """Return where the lanes' accesses are. Lanes with an invalid access are reported and left out."""
    lanes = w.mask if lanes is None else lanes
    hits: list[Hit] = []
    outside = lanes.copy()
    misaligned = lanes & (address % np.uint64(align or size) != 0)
    for name in _GENERIC if space == "generic" else (space,):
        here = lanes & in_window(name, address) if space == "generic" else lanes
        region = w.region(name)
        at = to_offset(name, address, generic=space == "generic")
        good = here & region.holds(at, size, last_word=name == "global" and takes_last_word(ins))
        if write and not region.writable:
            good = np.zeros(32, bool)
        outside &= ~good
        good &= ~misaligned
        if good.any():
            hits.append(Hit(region, good, at + np.arange(32) * region.lane_bytes))
    verb = "write" if write else "read"
    if outside.any():
        first = int(address[np.flatnonzero(outside)[0]])
        code = "M104" if space in ("global", "generic") and is_foreign(first) else "M101"
        w.report(code, f"{verb} of {size} bytes out of range at {space} {first:#x}", ins, outside, first)
    misaligned &= ~outside
    if misaligned.any():
        first = int(address[np.flatnonzero(misaligned)[0]])
        w.report("M102", f"misaligned {verb} of {size} bytes at {space} {first:#x}", ins, misaligned, first)
    return hits


def load(w: RunningWarp, ins: Instruction, space: str, address: Addresses, size: int) -> Bytes:
    """Return the bytes of every lane, shape (32, size); zero in lanes that are off or may not read."""
    return fetch(locate(w, ins, space, address, size), size)


def fetch(hits: list[Hit], size: int) -> Bytes:
    """Return the bytes at `hits`, shape (32, size); zero elsewhere."""
    out = np.zeros((32, size), np.uint8)
    for region, lanes, at in hits:
        out[lanes] = region.data[at[lanes][:, None] + np.arange(size)]
    return out


def store(w: RunningWarp, ins: Instruction, space: str, address: Addresses, data: Bytes) -> None:
    """Write `data` of shape (32, size); the highest of several lanes at one address wins."""
    size = data.shape[1]
    for region, lanes, at in locate(w, ins, space, address, size, write=True):
        region.data[at[lanes][:, None] + np.arange(size)] = data[lanes]  # in lane order: the last value remains


def as_bytes(values: npt.NDArray[np.generic]) -> Bytes:
    """Return (32,) values as (32, itemsize) bytes."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(32, -1)


def device_bytes(w: RunningWarp, lane: int, address: int, size: int) -> bytes:
    """Return `size` bytes at a generic address as `lane` sees them; zeros outside every object."""
    return _held(w, lane, address, size) or bytes(size)


def _held(w: RunningWarp, lane: int, address: int, size: int) -> bytes | None:
    addresses = np.full(32, address & 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
    for name in _GENERIC:
        region = w.region(name)
        at = to_offset(name, addresses, generic=True)
        if in_window(name, addresses)[lane] and region.holds(at, size)[lane]:
            start = int(at[lane]) + lane * region.lane_bytes
            return region.data[start : start + size].tobytes()
    return None


def device_string(w: RunningWarp, lane: int, address: int) -> bytes:
    """Return the zero-terminated string at a generic address; it ends where its object ends."""
    if _held(w, lane, address, 1) is None:
        return b"<bad pointer>"
    text = bytearray()
    while (char := _held(w, lane, address + len(text), 1)) not in (b"\0", None):
        text += char
    return bytes(text)
