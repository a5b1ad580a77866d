"""The node of every byte of registers and memory."""

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from weft.ptx.module import Imm, Instruction, Operand, Pair, Reg, Vec
from weft.vm.reference.access import address_of
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.spaces import Addresses, Flags, SpaceStorage, in_window, to_offset

from .nodes import MIX_NODE
from .tags import Ids

_GENERIC = ("global", "shared", "local", "param")


class Shadow:
    """Node ids per byte: (32, bytes) for a register, flat for a region's storage. Absent means all constant."""

    def __init__(self) -> None:
        self.registers: WeakKeyDictionary[RunningWarp, dict[tuple[str, str], Ids]] = WeakKeyDictionary()
        self.regions: dict[int, tuple[SpaceStorage, Ids]] = {}

    # -- registers -----------------------------------------------------------------------------------------------

    def read(self, w: RunningWarp, operand: Operand, size: int) -> Ids | None:
        """Return the nodes of the lowest `size` bytes of a source, or None if nothing in it is tracked."""
        if not isinstance(operand, Reg):
            return None
        held = self.registers.setdefault(w, {}).get((w.code.function.name, operand.name))
        if held is None or held.shape[1] == size:
            return held
        if held.shape[1] > size:
            return held[:, :size]
        wide = np.zeros((32, size), np.int32)
        wide[:, : held.shape[1]] = held
        return wide

    def write(self, w: RunningWarp, operand: Operand, ids: Ids | None) -> None:
        """Set the nodes of a destination's bytes in the active lanes."""
        if isinstance(operand, Pair):
            operand = operand.first
        if not isinstance(operand, Reg) or w.types[operand.name] == "pred":
            return
        file, key = self.registers.setdefault(w, {}), (w.code.function.name, operand.name)
        held = file.get(key)
        if ids is None and held is None:
            return
        if held is None:
            held = file[key] = np.zeros((32, w.file[operand.name].dtype.itemsize), np.int32)
        held[w.mask] = 0
        if ids is not None:
            size = min(ids.shape[1], held.shape[1])
            held[w.mask, :size] = ids[w.mask, :size]
        if not held.any():
            del file[key]

    def forget(self, w: RunningWarp, ins: Instruction) -> None:
        """Stop tracking what `ins` writes."""
        for register in ins.written():
            self.write(w, register, None)

    # -- memory --------------------------------------------------------------------------------------------------

    def of_region(self, region: SpaceStorage) -> Ids:
        """Return the shadow of a region's storage; created at the first call."""
        if id(region) not in self.regions:
            self.regions[id(region)] = region, np.zeros(len(region.data), np.int32)
        return self.regions[id(region)][1]

    def load(self, w: RunningWarp, space: str, address: Addresses, size: int) -> Ids:
        """(32, size)."""
        out = np.zeros((32, size), np.int32)
        for region, lanes, at in places(w, space, address, size):
            if id(region) in self.regions:
                out[lanes] = self.regions[id(region)][1][at[lanes][:, None] + np.arange(size)]
        return out

    def store(self, w: RunningWarp, space: str, address: Addresses, ids: Ids) -> None:
        """(32, size)."""
        size = ids.shape[1]
        for region, lanes, at in places(w, space, address, size):
            if id(region) in self.regions or ids[lanes].any():
                self.of_region(region)[at[lanes][:, None] + np.arange(size)] = ids[lanes]


def places(
    w: RunningWarp, space: str, address: Addresses, size: int
) -> list[tuple[SpaceStorage, Flags, npt.NDArray[np.int64]]]:
    """Return where the lanes' bytes are. Out-of-bounds accesses are left out; the interpreter reports them."""
    found = []
    for name in _GENERIC if space == "generic" else (space,):
        region = w.region(name)
        at = to_offset(name, address, generic=space == "generic")
        lanes = w.mask & (at >= region.start) & (at <= region.end - size)
        if space == "generic":
            lanes = lanes & in_window(name, address)
        if lanes.any():
            found.append((region, lanes, at + np.arange(32) * region.lane_bytes))
    return found


def target(w: RunningWarp, ins: Instruction, name: str = "a") -> tuple[str, Addresses]:
    """Return the state space and the address per lane."""
    return address_of(w, ins, name)


def members(operand: Operand) -> tuple[Operand, ...]:
    """Return a vector's registers, or the single one."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def single(ids: Ids) -> Ids:
    """Convert (32, bytes) to (32,): the one node in those bytes, MIX_NODE where there are several."""
    highest = ids.max(axis=1)
    several = ((ids != highest[:, None]) & (ids != 0)).any(axis=1)
    return np.where(several, np.int32(MIX_NODE), highest)


def literal(operand: Operand) -> int | None:
    """Return the value of an integer literal, else None."""
    return operand.value if isinstance(operand, Imm) else None
