"""The work of a launch as the model reads it: counts over the entire grid."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from weft.core.chips import TensorKind
from weft.core.errors import Unsupported, UsageError

from .occupancy import LaunchShape
from .opcodes import ALU, FP32, LSU, TENSOR, UNKNOWN_TENSOR, WHOLE_TILES, tensor_instruction


@dataclass(frozen=True)
class Instructions:
    """Warp instructions executed, by the unit they keep busy."""

    executed: int
    """All instructions: each takes an issue slot."""
    fp32: int = 0
    imad: int = 0
    alu: int = 0
    mufu: int = 0
    lsu: int = 0
    shuffles: int = 0
    tensor: int = 0
    tensor_macs: Mapping[TensorKind, int] = field(default_factory=dict)
    """Dense multiply-adds of the tensor-core instructions."""
    warp_group: bool = False
    """Tensor work is wgmma, which reaches Hopper's full rate."""
    unsure: int = 0
    """Instructions beyond `executed` that probably ran; estimates only."""

    def __post_init__(self) -> None:
        _not_negative(self)
        if any(macs < 0 for macs in self.tensor_macs.values()):
            raise UsageError("a negative number of multiply-adds")
        parts = self.fp32 + self.imad + self.alu + self.mufu + self.lsu + self.shuffles + self.tensor
        if parts > self.executed:
            raise UsageError(f"{parts} instructions by unit are more than the {self.executed} executed")


@dataclass(frozen=True)
class Memory:
    """The memory that the accesses of a launch touch."""

    shared_wavefronts: int = 0
    """Wavefronts of loads, stores and ldmatrix."""
    other_wavefronts: int = 0
    """Shared memory written by cp.async, and accesses whose width in SASS is not known; estimates only."""
    tags: int = 0
    """128-byte lines requested from L1, per instruction; estimates only."""
    load_sectors: int = 0
    """Distinct 32-byte sectors of global memory that are read before the launch wrote them."""
    store_sectors: int = 0
    """Distinct sectors that are written."""

    def __post_init__(self) -> None:
        _not_negative(self)


@dataclass(frozen=True)
class Work:
    """One launch: its size, its instructions and its memory."""

    launch: LaunchShape
    instructions: Instructions
    memory: Memory


def instructions_of(sass: Mapping[str, int], *, accesses: int | None = None) -> Instructions:
    """Return executed SASS opcodes, with modifiers, as instructions by unit.

    `accesses` is the number of loads and stores with an active lane: those that a predicate switched off for the entire
    warp take an issue slot but no load/store unit. Without it every executed one counts as active.
    """
    units = {"fp32": 0, "imad": 0, "alu": 0, "mufu": 0, "lsu": 0, "shuffles": 0, "tensor": 0}
    macs: dict[TensorKind, int] = {}
    groups: set[bool] = set()
    for opcode, count in sass.items():
        unit = _unit(opcode)
        if unit:
            units[unit] += count
        if unit == "tensor":
            one = tensor_instruction(opcode)
            macs[one.kind] = macs.get(one.kind, 0) + one.macs * count
            groups.add(one.of_group)
    if accesses is not None:
        units["lsu"] = min(units["lsu"], accesses)
    return Instructions(sum(sass.values()), **units, tensor_macs=macs, warp_group=groups == {True})


def _unit(opcode: str) -> str:
    """Return the unit of an opcode; empty: it costs an issue slot, and no other rate is documented."""
    name, *modifiers = opcode.split(".")
    if name in UNKNOWN_TENSOR:
        raise Unsupported(
            f"{opcode} has no rate in the model: its time would be left out; add its shape and type to model/opcodes.py"
        )
    if name in TENSOR:
        return "tensor"
    if name in FP32:
        return "fp32"
    if name == "IMAD":
        return "imad"
    if name in ALU:
        return "alu"
    if name == "MUFU":
        return "mufu"
    if name in LSU or (name in WHOLE_TILES and "4" in modifiers):
        return "lsu"
    return "shuffles" if name == "SHFL" else ""


def _not_negative(record: Instructions | Memory) -> None:
    for cell in fields(record):
        value = getattr(record, cell.name)
        if isinstance(value, int) and value < 0:
            raise UsageError(f"{cell.name} is {value}: a count must not be negative")
