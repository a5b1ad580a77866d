"""Marks of bytes: what they mean (`Algebra`) and where they are (`Shadow`).

An algebra answers the questions of the rules where bytes do more than move. The answers given here suit marks that name
a value and move byte by byte (the nodes of a diagnosis); where bits matter, or where a mark has an effect, an algebra
gives others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from weft.ptx.module import CARRY, Instruction, Mem, Not, Operand, Pair, Reg, Vec
from weft.vm.reference.access import address_of
from weft.vm.reference.fragments import Fragment
from weft.vm.reference.machine import Copy, Grid, RunningWarp
from weft.vm.reference.spaces import Addresses, Flags, SpaceStorage, in_window, to_offset
from weft.vm.reference.warp import Lanes

Marks = npt.NDArray[Any]
"""A mark per byte, 0 for none: (32, bytes) of a register or of the lanes' accesses, flat for a storage."""
Bits = npt.NDArray[np.uint8]
Finish = Callable[[], None]
"""Called after the instruction has run: its destinations hold the result."""
Rule = Callable[["Shadow", RunningWarp, Instruction], Finish | None]
_GENERIC = ("global", "shared", "local", "param")


@dataclass(frozen=True)
class Target:
    """Where lanes access memory."""

    space: str
    address: Addresses
    lanes: Lanes
    pointer: Marks
    """(32,): the marks of the addresses."""

    def plus(self, offset: npt.NDArray[np.uint64]) -> "Target":
        """Return it at other addresses."""
        return Target(self.space, self.address + offset, self.lanes, self.pointer)


class Place(NamedTuple):
    """Lanes whose access is in one storage, and where."""

    storage: SpaceStorage
    lanes: Flags
    at: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Product:
    """D = A · B + C in one warp: the types of A, B, C and D, and the marks of the elements of A, B and C."""

    instruction: Instruction
    types: tuple[str, ...]
    marks: tuple[Marks, ...]
    d: Fragment
    a: Fragment | None
    """None: A is in shared memory."""
    bits: Callable[[str], Any]
    """Returns the bits of the elements of `a`, `b` or `d` as they are when it is called, [row, column]."""


class Algebra:
    """How marks combine."""

    dtype: np.dtype[Any]
    predicates = True
    """Whether predicates have marks."""
    flag = 0
    """The mark of the flagged bytes of a storage that is kept as flags."""
    computes: Mapping[str, Rule] = {}
    """Rules for what rows compute (`Facts.computes`), in place of the transport's own."""

    # -- values --------------------------------------------------------------------------------------------------

    def one(self, marks: Marks) -> Marks:
        """Return the mark of values, given the marks of their bytes (…, bytes)."""
        raise NotImplementedError

    def both(self, a: Marks, b: Marks) -> Marks:
        """Return the marks of what is computed from marked values, pair by pair."""
        raise NotImplementedError

    def multiplied(self, s: "Shadow", w: RunningWarp, product: Product) -> Finish | None:
        """Handle a matrix product with marks in A, B or C."""
        raise NotImplementedError

    def decided(self, marks: Marks, by: Marks) -> Marks:
        """Return the marks (32, bytes) of values that were chosen, given those of what decided (32,)."""
        return marks

    def truth(self, marks: Marks) -> Marks:
        """Return the marks of comparisons, given those of what is compared."""
        return np.zeros_like(marks)

    def among(self, marks: Marks) -> Any:
        """Return the mark of a result to which several lanes contribute."""
        return 0

    def updated(self, found: Marks, given: Marks) -> Marks:
        """Return the marks (32, bytes) of memory after an atomic operation that combines two values."""
        return np.zeros_like(given)

    # -- bits of values ------------------------------------------------------------------------------------------

    def marked_bits(self, marks: Marks) -> Bits:
        """Return the bits of each byte that the mark is about."""
        return np.where(marks != 0, 0xFF, 0).astype(np.uint8)

    def through(self, marks: Marks, bits: Bits) -> Marks:
        """Return the marks of bytes of which only some bits are left."""
        return np.where(bits != 0, marks, 0).astype(self.dtype)

    def shifted(self, marks: Marks, right: npt.NDArray[np.int64], *, signed: bool) -> Marks | None:
        """Return the marks of values shifted right by so many bits (left if negative); None if bytes are cut."""
        if (right % 8).any():
            return None
        source = np.arange(marks.shape[1]) + right[:, None] // 8
        inside = (source >= 0) & (source < marks.shape[1])
        return np.where(inside, np.take_along_axis(marks, np.where(inside, source, 0), axis=1), 0).astype(self.dtype)

    def extended(self, marks: Marks) -> Marks:
        """Return the marks with those of the bytes that a sign is extended to."""
        return marks

    # -- memory --------------------------------------------------------------------------------------------------

    def initial(self, storage: SpaceStorage) -> Marks | None:
        """Return the marks or flags of a storage before the first access; None if there are none."""
        return None

    def fetched(self, ins: Instruction, marks: Marks) -> Marks:
        """Return the marks of bytes that `ins` reads, given those of memory."""
        return marks

    def loaded(self, w: RunningWarp, ins: Instruction, target: Target, marks: Marks) -> Marks:
        """Return the marks (32, bytes) of what lanes load into registers."""
        return marks

    def copied(self, w: RunningWarp, ins: Instruction, marks: Marks) -> None:
        """Called for what lanes begin to copy to shared memory, with its marks (32, bytes)."""

    def kept(self, ins: Instruction, storage: SpaceStorage, marks: Marks) -> Marks:
        """Return the marks or flags that a storage keeps of what `ins` writes."""
        return marks

    def stored(self, w: RunningWarp, ins: Instruction, target: Target, marks: Marks, data: Bits) -> None:
        """Called for each store of registers, after it: marks and data are (32, bytes)."""

    # -- effects -------------------------------------------------------------------------------------------------

    def begin(self, s: "Shadow", grid: Grid) -> None:
        """Called before the first instruction of a launch."""

    def executes(self, s: "Shadow", w: RunningWarp, ins: Instruction) -> None:
        """Called before the marks of each instruction are moved."""

    def meets_guard(self, s: "Shadow", w: RunningWarp, ins: Instruction, lanes: Lanes) -> None:
        """Called when lanes reach a guarded instruction."""

    def used(self, ins: Instruction, marks: Marks, what: str) -> None:
        """Called where values have an effect: as an address, a branch, a barrier."""

    def called(self, s: "Shadow", w: RunningWarp, ins: Instruction) -> None:
        """Called for a call of a function without a body."""

    def unmarked(self, w: RunningWarp, ins: Instruction) -> Finish | None:
        """Called for an instruction none of whose operands has marks."""
        return None


class Shadow:
    """Marks per byte; absent means that nothing is marked."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self.files: WeakKeyDictionary[RunningWarp, dict[str, dict[str, Marks]]] = WeakKeyDictionary()
        """By warp, function and register."""
        self.storages: dict[int, tuple[SpaceStorage, Marks]] = {}

    # -- registers -----------------------------------------------------------------------------------------------

    def file(self, w: RunningWarp) -> dict[str, Marks]:
        """Return the marked registers of the function that a warp executes."""
        functions = self.files.get(w)
        if functions is None:
            functions = self.files[w] = {}
        return functions.setdefault(w.code.function.name, {})

    def read(self, w: RunningWarp, operand: Operand, size: int) -> Marks:
        """Return the marks of an operand's lowest `size` bytes, (32, size)."""
        name = operand.name if isinstance(operand, Reg) else operand.reg.name if isinstance(operand, Not) else ""
        held = self.file(w).get(name)
        if held is not None and held.shape[1] >= size:
            return held[:, :size].copy()  # a rule may write the register that it has read
        marks = np.zeros((32, size), self.algebra.dtype)
        if held is not None:
            marks[:, : held.shape[1]] = held
        return marks

    def value(self, w: RunningWarp, operand: Operand) -> Marks:
        """Return the mark of an operand as a whole, (32,); members of a vector and bases of addresses included."""
        total = np.zeros(32, self.algebra.dtype)
        file = self.file(w)
        for name in register_names(operand):
            if name in file:
                total = self.algebra.both(total, self.algebra.one(file[name]))
        return total

    def write(self, w: RunningWarp, operand: Operand, marks: Marks | None, lanes: Lanes | None = None) -> None:
        """Give a destination its marks in the active lanes; bytes beyond those given have none."""
        if isinstance(operand, Pair):
            operand = operand.first
        if not isinstance(operand, Reg) or not (self.algebra.predicates or w.types[operand.name] != "pred"):
            return
        lanes = w.mask if lanes is None else lanes
        file = self.file(w)
        held = file.get(operand.name)
        if held is None:
            if marks is None or not marks[lanes].any():
                return
            held = file[operand.name] = np.zeros((32, w.file[operand.name].dtype.itemsize), self.algebra.dtype)
        held[lanes] = 0
        if marks is not None:
            size = min(held.shape[1], marks.shape[1])
            held[lanes, :size] = marks[lanes, :size]
        if not held.any():
            del file[operand.name]

    def forget(self, w: RunningWarp, ins: Instruction) -> None:
        """Remove the marks of what `ins` writes."""
        for register in ins.written():
            self.write(w, register, None)

    # -- memory --------------------------------------------------------------------------------------------------

    def of_storage(self, storage: SpaceStorage, *, create: bool = True) -> Marks | None:
        """Return the marks of a storage's bytes, or flags; None if it has none and none are to be made."""
        found = self.storages.get(id(storage))
        if found is not None:
            return found[1]
        marks = self.algebra.initial(storage)
        if marks is None and create:
            marks = np.zeros(len(storage.data), self.algebra.dtype)
        if marks is not None:
            self.storages[id(storage)] = storage, marks
        return marks

    def target(self, w: RunningWarp, ins: Instruction, name: str, lanes: Lanes | None = None) -> Target:
        """Return where the lanes' accesses are; the marks of the addresses are used there."""
        lanes = w.mask if lanes is None else lanes
        pointer = self.value(w, ins.operand(name))
        self.algebra.used(ins, pointer[lanes], "an address")
        return Target(*address_of(w, ins, name), lanes, pointer)

    def load(self, w: RunningWarp, ins: Instruction, target: Target, size: int) -> Marks:
        """Return the marks (32, size) of what lanes load into registers."""
        return self.algebra.loaded(w, ins, target, self.fetch(w, ins, target, size))

    def fetch(self, w: RunningWarp, ins: Instruction, target: Target, size: int) -> Marks:
        """Return the marks (32, size) of bytes that lanes read."""
        out = np.zeros((32, size), self.algebra.dtype)
        for storage, lanes, at in places(w, target, size):
            held = self.of_storage(storage, create=False)
            if held is not None:
                out[lanes] = self._as_marks(held[at[lanes][:, None] + np.arange(size)])
        return self.algebra.fetched(ins, out)

    def store(self, w: RunningWarp, ins: Instruction, target: Target, marks: Marks) -> None:
        """Give the bytes that lanes write their marks (32, size)."""
        for storage, lanes, at in places(w, target, marks.shape[1]):
            self._keep(ins, storage, at[lanes][:, None] + np.arange(marks.shape[1]), marks[lanes])

    def copy(self, copy: Copy) -> None:
        """Move the marks of an asynchronous copy; beyond its length it writes zeros."""
        marks = np.zeros(copy.size, self.algebra.dtype)
        held = self.of_storage(copy.source, create=False) if copy.length else None
        if held is not None:
            found = self._as_marks(held[copy.start : copy.start + copy.length])
            marks[: copy.length] = self.algebra.fetched(copy.call, found)
        self._keep(copy.call, copy.to, np.arange(copy.at, copy.at + copy.size), marks)

    def _as_marks(self, held: Marks) -> Marks:
        dtype = self.algebra.dtype
        return held if held.dtype != bool else held.astype(dtype) * dtype.type(self.algebra.flag)

    def _keep(self, ins: Instruction, storage: SpaceStorage, at: npt.NDArray[np.int64], marks: Marks) -> None:
        kept = self.algebra.kept(ins, storage, marks)
        held = self.of_storage(storage, create=bool(kept.any()))
        if held is not None:
            held[at] = kept


def places(w: RunningWarp, target: Target, size: int) -> list[Place]:
    """Return where the lanes' bytes are. Out-of-bounds accesses are left out; the interpreter reports them."""
    generic = target.space == "generic"
    found = []
    for name in _GENERIC if generic else (target.space,):
        storage = w.region(name)
        at = to_offset(name, target.address, generic=generic)
        lanes = target.lanes & (at >= storage.start) & (at <= storage.end - size)
        if generic:
            lanes = lanes & in_window(name, target.address)
        if lanes.any():
            found.append(Place(storage, lanes, at + np.arange(32) * storage.lane_bytes))
    return found


def members(operand: Operand) -> tuple[Operand, ...]:
    """Return a vector's registers, or the single one."""
    return operand.items if isinstance(operand, Vec) else (operand,)


def register_names(operand: Operand) -> tuple[str, ...]:
    """Return the registers of an operand, bases of addresses and members of vectors included."""
    match operand:
        case Reg(name=name):
            return (name,)
        case Not(reg=reg):
            return (reg.name,)
        case Mem(base=Reg(name=name)):
            return (name,)
        case Vec(items=items):
            return tuple(name for item in items for name in register_names(item))
        case Pair(first=first, second=second):
            return register_names(first) + register_names(second)
    return ()


def sources_of(ins: Instruction) -> tuple[str, ...]:
    """Return the names of the registers that an instruction reads, without its guard."""
    names = dict.fromkeys(
        name
        for spec, operand in zip(ins.form.operands, ins.operands, strict=False)
        if not spec.written
        for name in register_names(operand)
    )
    return (*names, CARRY.name) if ins.facts.reads_carry else tuple(names)
