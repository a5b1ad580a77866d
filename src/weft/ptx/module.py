"""A parsed PTX module: frozen values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from weft.core.errors import Unsupported
from weft.core.records import Place

from .isa.facts import Access, Facts, named_space
from .isa.form import Form

WIDTH = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32, "u16x2": 32, "s16x2": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64, "b128": 128,
    "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8, "ue8m0": 8, "ue4m3": 8,
    "e4m3x2": 16, "e5m2x2": 16, "e3m2x2": 16, "e2m3x2": 16, "e2m1x2": 8, "ue8m0x2": 16,
}  # fmt: skip
"""Bits of every fundamental and alternate type (PTX ISA 5.2)."""


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register, `%r7`. Its declared type is in `Function.registers`."""

    name: str


CARRY = Reg("%cc")
"""The condition code of carry chains: a predicate register that instructions name only by `.cc`."""


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register, `%tid.x`, `%laneid` (PTX ISA 10)."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer literal."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatImm:
    """A floating literal; `0f3F800000` and `0d…` keep their bits, decimal ones are doubles."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable or function by name, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Mem:
    """`[base+offset]`."""

    base: "Reg | Sym | Imm"
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vec:
    """`{a, b, c, d}`."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Pair:
    """`p|q`: two destinations."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True, slots=True)
class Not:
    """`!p` as a source operand."""

    reg: Reg


@dataclass(frozen=True, slots=True)
class Discard:
    """`_`: a destination whose value is discarded."""


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str


@dataclass(frozen=True, slots=True)
class Args:
    """`(a, b)`: the argument or return list of a call."""

    items: "tuple[Operand, ...]"


@dataclass(frozen=True, slots=True)
class Prototype:
    """The functions that an indirect call can reach: `.calltargets`, or all with the sizes of a `.callprototype`."""

    return_bytes: tuple[int, ...] = ()
    param_bytes: tuple[int, ...] = ()
    targets: tuple[str, ...] = ()


Operand = Reg | Special | Imm | FloatImm | Sym | Mem | Vec | Pair | Not | Discard | Label | Args | Prototype


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p`."""

    reg: Reg
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction, matched to its row of the ISA table."""

    opcode: str
    """As written: `add.rn.ftz.f32`."""
    form: Form
    mods: Mapping[str, str]
    """Slot of the form → the modifier chosen (absent optional slots are missing)."""
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int
    place: Place | None = None
    pragma: str = ""
    """Text of a `.pragma "weft.…"` in front of it: what the virtual GPU does in addition to the PTX meaning."""

    @property
    def facts(self) -> Facts:
        """Return what the instruction is."""
        return self.form.facts

    @property
    def copied(self) -> Operand | None:
        """Return the operand that a `mov` copies; None for other instructions."""
        copies = self.facts.copies
        return self.operand(copies[0]) if len(copies) == 1 and not self.facts.group else None

    @property
    def space(self) -> str:
        """Return the state space of addresses that the opcode names (descriptors: shared memory), `generic` if none."""
        return "shared" if self.facts.multiplies == "wgmma" else named_space(self.mods)

    def bytes_of(self, access: Access) -> int | None:
        """Return the bytes that a lane accesses; None if they are known only when it runs, or to a tile."""
        width = access.width
        if width == "type":
            return int(self.mods.get("vec", "v1")[1:]) * WIDTH[self.type] // 8
        if width == "row":
            return 16
        if isinstance(width, str):
            size = self.find(width) if width != "tile" else None
            return size.value if isinstance(size, Imm) else None
        return width

    @property
    def type(self) -> str:
        """Return the instruction type, the `type` slot."""
        return self.mods["type"]

    def has(self, slot: str) -> bool:
        """Return whether the optional modifier is present."""
        return slot in self.mods

    def operand(self, name: str) -> Operand:
        """Return the operand that the form calls `name`; KeyError if the form has none."""
        return self.operands[self.form.index[name]]

    def find(self, name: str) -> Operand | None:
        """Return the operand `name`, or None if it is optional and absent."""
        at = self.form.index.get(name)
        return self.operands[at] if at is not None and at < len(self.operands) else None

    def operand_type(self, name: str) -> str:
        """Return the PTX type in which operand `name` is read or written."""
        return self.form.operand_type(name, self.mods)

    def written(self) -> Iterator[Reg]:
        """Yield the registers this instruction writes; carry chains pass their carry through `%cc`."""
        if "cc" in self.mods:
            yield CARRY
        for spec, operand in zip(self.form.operands, self.operands, strict=False):
            if spec.written:
                yield from _registers(operand)

    def read(self) -> Iterator[Reg]:
        """Yield the registers this instruction reads, with its guard. A guarded write also keeps the old value."""
        if self.guard is not None:
            yield self.guard.reg
        if self.facts.reads_carry or ("cc" in self.mods and self.guard is not None):
            yield CARRY
        for spec, operand in zip(self.form.operands, self.operands, strict=False):
            if not spec.written or self.guard is not None or spec.name in self.facts.updates:
                yield from _registers(operand)


def _registers(operand: Operand) -> Iterator[Reg]:
    match operand:
        case Reg():
            yield operand
        case Not(reg=reg):
            yield reg
        case Mem(base=Reg() as reg):
            yield reg
        case Vec(items=items) | Args(items=items):
            for item in items:
                yield from _registers(item)
        case Pair(first=first, second=second):
            yield from _registers(first)
            yield from _registers(second)


@dataclass(frozen=True)
class Variable:
    """A declared variable: `.shared .align 16 .b8 tile[4096]`."""

    name: str
    space: str
    type: str
    align: int
    count: int
    """Elements; 1 for a scalar, 0 for an unsized extern array."""
    init: bytes = b""
    extern: bool = False
    relocations: tuple[tuple[int, Sym], ...] = ()
    """Byte offset → symbol whose address is stored there."""
    managed: bool = False
    """`.attribute(.managed)`: the host has it at the same address."""

    @property
    def size_bytes(self) -> int:
        return self.count * WIDTH[self.type] // 8


@dataclass(frozen=True)
class LabelDef:
    """A label in the instruction stream."""

    name: str
    line: int


@dataclass(frozen=True)
class BranchTable:
    """`.branchtargets L1, L2;` for brx.idx."""

    name: str
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """An `.entry` or `.func` with its body in program order."""

    name: str
    entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    registers: Mapping[str, str]
    """Register → declared type."""
    variables: tuple[Variable, ...]
    body: tuple[Instruction | LabelDef, ...]
    tables: Mapping[str, BranchTable] = field(default_factory=dict)
    directives: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """`maxntid`, `reqntid`, `minnctapersm`, …"""
    extern: bool = False
    line: int = 0
    refused: Unsupported | None = None
    """Why the body was not read. A file may have such functions, as long as no launched kernel is or calls one."""

    @property
    def bounds_registers(self) -> bool:
        """Return whether a directive tells how many registers a thread has at the start; otherwise ptxas ignores
        `setmaxnreg`."""
        return "maxnreg" in self.directives or "minnctapersm" in self.directives

    @property
    def cluster(self) -> tuple[int, int, int]:
        """Return the CTAs per cluster that the kernel requires, in x, y and z; zeros if the launch decides."""
        x, y, z, *_ = (*self.directives.get("reqnctapercluster", (0, 0, 0)), 1, 1)
        return x, y, z

    def check_supported(self) -> None:
        """Raise Unsupported if the body was not read."""
        if self.refused is not None:
            raise self.refused


@dataclass(frozen=True)
class Module:
    """An entire PTX file."""

    version: tuple[int, int]
    target: str
    variables: tuple[Variable, ...]
    functions: Mapping[str, Function]
    files: Mapping[int, str] = field(default_factory=dict)
    debug: bool = False
    """Whether it is a device-debug build (-G): variables are in memory, also between the products of a chain."""

    def entries(self) -> tuple[str, ...]:
        """Return the names of the kernels, in file order."""
        return tuple(name for name, function in self.functions.items() if function.entry)
