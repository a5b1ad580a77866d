"""Describes an invalid address for the user: which array, allocation or region it misses, and by how much."""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.core.finding_text import counted
from weft.ptx.module import WIDTH, Imm, Instruction

from .layout import Layout, Placed, shared_arrays
from .memory import (
    GLOBAL_BASE,
    LOCAL_BASE,
    LOCAL_START,
    PARAM_BASE,
    SHARED_BASE,
    SHARED_START,
    WINDOW_BYTES,
    GlobalMemory,
    miss,
)
from .regions import Region

GLOBAL_BYTES = 1 << 43
"""Addresses within this distance of GLOBAL_BASE count as a wrong index; others are not device pointers."""
NULL_BYTES = 1 << 30
"""Addresses within this distance of zero count as a null pointer plus an index."""
OUT_OF_BOUNDS, FOREIGN, OUTSIDE_REGION = "M101", "M104", "M105"
_ATOMIC = "atomic access"
_VERBS = {"ld": "read", "st": "write", "atom": _ATOMIC, "red": _ATOMIC, "cp": "", "wmma": "", "ldmatrix": "read"}
"""Name of a form → its access; that of cp and wmma depends on the instruction."""
_MATRIX_ROW_BYTES = 16


@dataclass(frozen=True)
class Spot:
    """The diagnosis of an invalid address: the finding's code, message, and the name of the nearest buffer."""

    code: str
    message: str
    name: str = ""


@dataclass(frozen=True)
class _Access:
    """How an instruction accesses memory."""

    verb: str
    """`read`, `write`, `atomic access`, or `access` where it is not known."""
    size_bytes: int = 0
    """Per lane; 0 where it is not known."""

    @property
    def outside(self) -> str:
        return f"out-of-bounds {self.verb}"

    def start(self, at: int, placed: Placed) -> str:
        """Return where the access starts: `4 bytes starting exactly at the end of x (4000 bytes)`."""
        size = f"{counted(self.size_bytes, 'byte')} " if self.size_bytes else ""
        past = at - placed.address - placed.size_bytes
        if at < placed.address:
            where = f"{counted(placed.address - at, 'byte')} before the start of"
        elif past < 0:
            where = f"{counted(-past, 'byte')} before the end of"
        else:
            where = f"{counted(past, 'byte')} past the end of" if past else "exactly at the end of"
        return f"{size}starting {where} {placed.name} ({placed.size_bytes} bytes)"


@dataclass(frozen=True)
class Places:
    """Every object of a launch that has an address."""

    memory: GlobalMemory
    layout: Layout
    dynamic_bytes: int
    param_bytes: int
    regions: tuple[Region, ...] = ()

    def spot(self, ins: Instruction | None, address: int) -> Spot:
        """Return what is wrong with an access of `ins` to `address`, which is outside every object."""
        space, at = _window(ins, address)
        access = _access(ins, space)
        if space == "shared":
            return self._shared(access, at)
        if space == "local":
            frame = self._frame()
            if access.verb == _ATOMIC:
                return Spot(OUT_OF_BOUNDS, f"{access.outside}: local memory has no atomic operations", frame.name)
            return Spot(OUT_OF_BOUNDS, f"{access.outside}: {access.start(at, frame)}", frame.name)
        if space == "param":
            if access.verb != "read":
                return Spot(OUT_OF_BOUNDS, f"{access.outside}: the kernel's parameters are read-only")
            block = Placed("the kernel's parameters", "param", 0, self.param_bytes)
            return Spot(OUT_OF_BOUNDS, f"{access.outside}: {access.start(at, block)}", block.name)
        return self._global(access, at)

    def access(self, ins: Instruction | None, address: int) -> str:
        """Return how `ins` accesses `address`: `4-byte read`."""
        access = _access(ins, _window(ins, address)[0])
        return f"{access.size_bytes}-byte {access.verb}" if access.size_bytes else access.verb

    def where(self, ins: Instruction | None, address: int) -> str:
        """Return the place of an address without a diagnosis: inside an array it is `name+0x40`."""
        space, at = _window(ins, address)
        arrays: Iterable[Placed] = ()
        if space == "shared":
            arrays = [*map(_standing, self.regions), *shared_arrays(self.layout, self.dynamic_bytes)]
        elif space == "local":
            arrays = [self._frame()]
        for array in arrays:
            if array.address <= at < array.address + array.size_bytes:
                return f"{array.name}+{at - array.address:#x}"
        if space != "global":
            return f"{space} address {at:#x}"
        owner = self.memory.owner(at)
        return f"{_shown(owner.name)}+{at - owner.address:#x}" if owner else self.memory.describe(at)

    def _frame(self) -> Placed:
        return Placed("the thread's local memory", "local", LOCAL_START, self.layout.local_bytes - LOCAL_START)

    def _shared(self, access: _Access, at: int) -> Spot:
        for region in self.regions:
            if region.cut_from <= at < region.cut_from + region.size_bytes:
                words = f"{access.verb} at byte {at - region.cut_from} of region {region.name} through another pointer"
                return Spot(OUTSIDE_REGION, words, region.name)
        system = " (the system's part of shared memory, for cooperative groups of several warps)" * (at < SHARED_START)
        arrays = shared_arrays(self.layout, self.dynamic_bytes)
        places = [*map(_standing, self.regions), *arrays]
        if not places:
            words = f"{access.outside} at shared address {at:#x}: the kernel has no shared memory{system}"
            return Spot(OUT_OF_BOUNDS, words)
        nearest = min(places, key=lambda placed: _distance(at, placed))
        if nearest.space == "region":
            words = f"{access.verb} outside its region: {access.start(at, nearest)}"
            return Spot(OUTSIDE_REGION, words, nearest.name)
        return Spot(OUT_OF_BOUNDS, f"{access.outside}: {access.start(at, nearest)}{system}", nearest.name)

    def _global(self, access: _Access, address: int) -> Spot:
        if is_foreign(address):
            signed = address - (address >> 63 << 64)
            if abs(signed) < NULL_BYTES:
                offset = f", offset {signed:+} bytes" if signed else ""
                return Spot(FOREIGN, f"{access.verb} through a null pointer{offset}")
            return Spot(FOREIGN, f"{access.verb} at {address:#x}, which is not a device address: is it a host pointer?")
        gone = self.memory.freed_owner(address)
        if gone is not None:
            place = f"byte {address - gone.address} of {_shown(gone.name)}"
            words = f"access to freed memory: {access.verb} at {place}, a buffer of an earlier launch"
            return Spot(FOREIGN, words, _bare(gone.name))
        nearest = self.memory.nearest(address)
        if nearest is None:
            return Spot(OUT_OF_BOUNDS, f"{access.outside} at address {address:#x}: the launch has no global memory")
        buffer = Placed(_shown(nearest.name), "global", nearest.address, nearest.size_bytes)
        return Spot(OUT_OF_BOUNDS, f"{access.outside}: {access.start(address, buffer)}", _bare(nearest.name))


def is_foreign(address: int) -> bool:
    """Return whether a generic address cannot come from any device pointer, whatever the index."""
    return _window(None, address)[0] == "global" and abs(address - GLOBAL_BASE) >= GLOBAL_BYTES


def _window(ins: Instruction | None, address: int) -> tuple[str, int]:
    """Return the state space of an address and the address in that space."""
    named = ins.mods.get("space", "generic").partition("::")[0] if ins is not None else "generic"
    if named in ("shared", "local") and address < WINDOW_BYTES:
        return named, address
    for space, base in (("shared", SHARED_BASE), ("local", LOCAL_BASE), ("param", PARAM_BASE)):
        if base <= address < base + WINDOW_BYTES:
            return space, address - base
    return "global", address


def _access(ins: Instruction | None, space: str) -> _Access:
    name = ins.form.name if ins is not None else ""
    if ins is None or name not in _VERBS:
        return _Access("access")
    if name == "cp":  # from global to shared memory; a fourth operand may make the source shorter
        size = ins.find("size")
        known = isinstance(size, Imm) and (space == "shared" or ins.find("extra") is None)
        return _Access("write" if space == "shared" else "read", size.value if known and isinstance(size, Imm) else 0)
    if name == "wmma":
        return _Access("write" if ins.has("store") else "read")
    if name == "ldmatrix":
        return _Access("read", _MATRIX_ROW_BYTES)
    return _Access(_VERBS[name], int(ins.mods.get("vec", "v1")[1:]) * WIDTH[ins.type] // 8)


def _bare(name: str) -> str:
    return name.removeprefix("argument ")


def _shown(name: str) -> str:
    """Return the name for a message: `x`; `argument 0` if the argument has only a number."""
    bare = _bare(name)
    return (name if bare.isdecimal() else bare) or "a buffer"


def _standing(region: Region) -> Placed:
    return Placed(f"region {region.name}", "region", region.address, region.size_bytes)


def _distance(at: int, placed: Placed) -> int:
    return miss(at, placed.address, placed.size_bytes)
