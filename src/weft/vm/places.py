"""Describes a bad address for the user: which array, allocation or region it misses, and by how much."""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.ptx.module import Instruction

from .layout import Layout, Placed, shared_arrays
from .memory import (
    GLOBAL_BASE,
    LOCAL_BASE,
    LOCAL_START,
    PARAM_BASE,
    SHARED_BASE,
    WINDOW_BYTES,
    GlobalMemory,
    miss,
    shown_name,
)
from .regions import Region

GLOBAL_BYTES = 1 << 43
"""Addresses this close to GLOBAL_BASE count as a wrong index, all others as no device pointer."""
NULL_BYTES = 1 << 30
"""Addresses this close to zero count as a null pointer plus an index."""
OUT_OF_BOUNDS, FOREIGN, OUTSIDE_REGION = "M101", "M104", "M105"
_VERBS = {"load": "read", "store": "write", "atomic": "atomic"}


@dataclass(frozen=True)
class Spot:
    """The diagnosis of an invalid address: code and message of the finding, and the name of the nearest buffer."""

    code: str
    message: str
    name: str = ""


@dataclass(frozen=True)
class Places:
    """Every object of a launch that has an address."""

    memory: GlobalMemory
    layout: Layout
    dynamic_bytes: int
    param_bytes: int
    regions: tuple[Region, ...] = ()

    def spot(self, ins: Instruction | None, address: int) -> Spot:
        """Returns what is wrong with an access of `ins` to `address`, which is outside every array and buffer."""
        space, at = _window(ins, address)
        what, size = access_words(ins, address)
        match space:
            case "shared":
                return self._shared(at, what, size)
            case "local" if ins is not None and ins.facts.is_atomic:
                words = "out-of-bounds access: an atomic operation on local memory (only global and shared have them)"
                return Spot(OUT_OF_BOUNDS, words, self._frame().name)
            case "param" if ins is None or ins.facts.writes_memory:
                words = "out-of-bounds write: a write to the kernel's parameters, which are read-only"
                return Spot(OUT_OF_BOUNDS, words)
            case "local":
                return _outside(at, self._frame(), what, size)
            case "param":
                return _outside(at, Placed("the kernel's parameters", "param", 0, self.param_bytes), what, size)
        return self._global(at, what, size)

    def where(self, ins: Instruction | None, address: int) -> str:
        """Returns where an address is, right or wrong: inside an array it is `name+0x40`."""
        space, at = _window(ins, address)
        arrays: Iterable[Placed] = ()
        if space == "shared":
            arrays = [*map(_standing, self.regions), *shared_arrays(self.layout, self.dynamic_bytes)]
        elif space == "local":
            arrays = [self._frame()]
        for array in arrays:
            if array.address <= at < array.address + array.size_bytes:
                return f"{array.name}+{at - array.address:#x}"
        return self.memory.describe(at) if space == "global" else f"{space} address {at:#x}"

    def _frame(self) -> Placed:
        return Placed("the thread's local memory", "local", LOCAL_START, self.layout.local_bytes - LOCAL_START)

    def _shared(self, at: int, what: str, size: str) -> Spot:
        for region in self.regions:
            if region.cut_from <= at < region.cut_from + region.size_bytes:
                words = f"{what} at offset {at - region.cut_from} of region {region.name}"
                words += " through another pointer than the one that WEFT_REGION returned"
                return Spot(OUTSIDE_REGION, words, region.name)
        arrays = shared_arrays(self.layout, self.dynamic_bytes)
        places = [*map(_standing, self.regions), *arrays]
        if not places:
            words = f"out-of-bounds {what}: shared address {at:#x}, but the kernel has no shared memory"
            return Spot(OUT_OF_BOUNDS, words)
        nearest = min(places, key=lambda placed: _distance(at, placed))
        if nearest.space == "region":
            return Spot(OUTSIDE_REGION, f"out-of-region {what}: {size} {_missing(at, nearest)}", nearest.name)
        return _outside(at, nearest, what, size)

    def _global(self, address: int, what: str, size: str) -> Spot:
        if is_foreign(address):
            signed = address - (address >> 63 << 64)
            if abs(signed) < NULL_BYTES:
                offset = f" at offset {signed:+} bytes" if signed else ""
                return Spot(FOREIGN, f"{what} through a null pointer{offset}")
            words = f"{what} at {address:#x}, which is not a device address: a host pointer, or no pointer"
            return Spot(FOREIGN, words)
        gone = self.memory.freed_owner(address)
        if gone is not None:
            words = f"{what} of freed memory: offset {address - gone.address} in {shown_name(gone.name)}"
            return Spot(FOREIGN, f"{words}{gone.of}", _bare(gone.name))
        nearest = self.memory.nearest(address)
        if nearest is None:
            words = f"out-of-bounds {what}: address {address:#x}, but the kernel has no global memory"
            return Spot(OUT_OF_BOUNDS, words)
        buffer = Placed(shown_name(nearest.name), "global", nearest.address, nearest.size_bytes)
        return Spot(OUT_OF_BOUNDS, f"out-of-bounds {what}: {size} {_missing(address, buffer)}", _bare(nearest.name))


def is_foreign(address: int) -> bool:
    """Return whether a generic address cannot be a device pointer plus an index."""
    return _window(None, address)[0] == "global" and abs(address - GLOBAL_BASE) >= GLOBAL_BYTES


def _window(ins: Instruction | None, address: int) -> tuple[str, int]:
    """Returns the state space of an address, and the address in that space."""
    named = ins.space if ins is not None else "generic"
    if named in ("shared", "local") and address < WINDOW_BYTES:
        return named, address
    for space, base in (("shared", SHARED_BASE), ("local", LOCAL_BASE), ("param", PARAM_BASE)):
        if base <= address < base + WINDOW_BYTES:
            return space, address - base
    return "global", address


_QUEUES = {"cp.async": "cp.async", "bulk": "a bulk copy"}


def access_words(ins: Instruction | None, address: int) -> tuple[str, str]:
    """Returns the kind of an access to `address` (read, write, atomic) and its size, in words."""
    if ins is None or not ins.facts.uses_memory:
        return "access", "bytes"
    space = _window(ins, address)[0]
    accesses = ins.facts.accesses
    access = next((each for each in accesses if each.space(ins.mods) == space), accesses[0])
    verb, count = _VERBS[access.verb], ins.bytes_of(access)
    if access.holds:
        verb = f"{access.holds} access"
    if ins.facts.starts:
        verb = f"{verb} by {_QUEUES[ins.facts.starts]}"
        count = None if access.reads and ins.find("extra") is not None else count  # the source may be shorter
    if access.width == "tile":
        return verb, "bytes of a box" if ins.facts.starts else "bytes of a wmma tile"
    if access.width == "row":
        return verb, "a 16-byte row of ldmatrix"
    return verb, "bytes" if count is None else f"{count} byte{'s' * (count != 1)}"


def _bare(name: str) -> str:
    return name.removeprefix("argument ")


def _standing(region: Region) -> Placed:
    return Placed(f"region {region.name}", "region", region.address, region.size_bytes)


def _distance(at: int, placed: Placed) -> int:
    return miss(at, placed.address, placed.size_bytes)


def _outside(at: int, placed: Placed, what: str, size: str) -> Spot:
    return Spot(OUT_OF_BOUNDS, f"out-of-bounds {what}: {size} {_missing(at, placed)}", placed.name)


def _missing(at: int, placed: Placed) -> str:
    name = f"{placed.name} ({placed.size_bytes} bytes)"
    before = placed.address - at
    if before > 0:
        return f"starting {before} byte{'s' * (before != 1)} before the start of {name}"
    behind = at - placed.address - placed.size_bytes
    if behind < 0:
        return f"across the end of {name}"
    return f"starting {f'{behind} byte' + 's' * (behind != 1) + ' past' if behind else 'exactly at'} the end of {name}"
