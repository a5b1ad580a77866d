"""Where a bad address lies, for a person: which array, allocation or region it misses, and by how much."""

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
    SHARED_START,
    WINDOW_BYTES,
    GlobalMemory,
    miss,
)
from .regions import Region

GLOBAL_BYTES = 1 << 43
"""Addresses so near to GLOBAL_BASE count as a wrong index, others as no pointer of the device at all."""
NULL_BYTES = 1 << 30
"""Addresses so near to zero count as a null pointer and an index."""
OUT_OF_BOUNDS, FOREIGN, OUTSIDE_REGION = "M101", "M104", "M105"


@dataclass(frozen=True)
class Spot:
    """What a bad address is: the finding's code, words, and the name of the buffer meant."""

    code: str
    message: str
    name: str = ""


@dataclass(frozen=True)
class Places:
    """Everything of a launch that has an address."""

    memory: GlobalMemory
    layout: Layout
    dynamic_bytes: int
    param_bytes: int
    regions: tuple[Region, ...] = ()

    def spot(self, ins: Instruction | None, address: int) -> Spot:
        """What is wrong with an access of `ins` to `address`, which is outside everything."""
        space, at = _window(ins, address)
        verb = ins.form.name if ins is not None else ""
        match space:
            case "shared":
                return self._shared(at)
            case "local" if verb in ("atom", "red"):
                return Spot(OUT_OF_BOUNDS, "out of bounds, an atomic operation on local memory", self._frame().name)
            case "param" if verb != "ld":
                return Spot(OUT_OF_BOUNDS, "out of bounds, a write to the kernel's parameters")
            case "local":
                return Spot(OUT_OF_BOUNDS, f"out of bounds, {_beside(at, self._frame())}", self._frame().name)
            case "param":
                block = Placed("the kernel's parameters", "param", 0, self.param_bytes)
                return Spot(OUT_OF_BOUNDS, f"out of bounds, {_beside(at, block)}", block.name)
        return self._global(at)

    def where(self, ins: Instruction | None, address: int) -> str:
        """The same without a judgement: an address inside an array is `name+0x40`."""
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

    def _shared(self, at: int) -> Spot:
        for region in self.regions:
            if region.cut_from <= at < region.cut_from + region.size_bytes:
                words = f"{at - region.cut_from} bytes into region {region.name}, but not by its own pointer"
                return Spot(OUTSIDE_REGION, words, region.name)
        system = " (the system's part of shared memory, for cooperative groups of several warps)" * (at < SHARED_START)
        arrays = shared_arrays(self.layout, self.dynamic_bytes)
        places = [*map(_standing, self.regions), *arrays]
        if not places:
            return Spot(
                OUT_OF_BOUNDS, f"out of bounds, shared address {at:#x}: the kernel has no shared memory{system}"
            )
        nearest = min(places, key=lambda placed: _distance(at, placed))
        if nearest.space == "region":
            return Spot(OUTSIDE_REGION, f"outside its region, {_beside(at, nearest)}", nearest.name)
        return Spot(OUT_OF_BOUNDS, f"out of bounds, {_beside(at, nearest)}{system}", nearest.name)

    def _global(self, address: int) -> Spot:
        if is_foreign(address):
            signed = address - (address >> 63 << 64)
            if abs(signed) < NULL_BYTES:
                return Spot(FOREIGN, "null pointer" + (f" {signed:+} bytes" if signed else ""))
            return Spot(FOREIGN, f"{address:#x} is no address of the device: a host pointer, or no pointer at all")
        gone = self.memory.freed_owner(address)
        if gone is not None:
            words = f"freed memory, {address - gone.address} bytes into {gone.name or 'a buffer'} of an earlier launch"
            return Spot(FOREIGN, words, _bare(gone.name))
        nearest = self.memory.nearest(address)
        if nearest is None:
            return Spot(OUT_OF_BOUNDS, f"out of bounds, address {address:#x}: the kernel has no global memory")
        buffer = Placed(nearest.name or "a buffer", "global", nearest.address, nearest.size_bytes)
        return Spot(OUT_OF_BOUNDS, f"out of bounds, {_beside(address, buffer)}", _bare(nearest.name))


def is_foreign(address: int) -> bool:
    """Whether a generic address can have come from no pointer of the device, whatever the index."""
    return _window(None, address)[0] == "global" and abs(address - GLOBAL_BASE) >= GLOBAL_BYTES


def _window(ins: Instruction | None, address: int) -> tuple[str, int]:
    """The space an address lies in and the address there."""
    named = ins.mods.get("space", "generic").partition("::")[0] if ins is not None else "generic"
    if named in ("shared", "local") and address < WINDOW_BYTES:
        return named, address
    for space, base in (("shared", SHARED_BASE), ("local", LOCAL_BASE), ("param", PARAM_BASE)):
        if base <= address < base + WINDOW_BYTES:
            return space, address - base
    return "global", address


def _bare(name: str) -> str:
    return name.removeprefix("argument ")


def _standing(region: Region) -> Placed:
    return Placed(f"region {region.name}", "region", region.address, region.size_bytes)


def _distance(at: int, placed: Placed) -> int:
    return miss(at, placed.address, placed.size_bytes)


def _beside(at: int, placed: Placed) -> str:
    name = f"{placed.name} ({placed.size_bytes} bytes)"
    if at < placed.address:
        return f"{placed.address - at} bytes before {name}"
    behind = at - placed.address - placed.size_bytes
    return f"{behind} bytes past the end of {name}" if behind >= 0 else f"across the end of {name}"
