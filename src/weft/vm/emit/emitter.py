"""The interface of a chapter of the instruction set while it writes LLVM IR for one instruction.

One PTX register is one `<32 x iN>` vector (a warp), or one scalar if every lane is known to hold the same
value. A chapter's function reads operands, builds, and writes the destination; it works for both:

    def add(e: Emitter, ins: Instruction) -> None:
        e.dst(ins, e.b.op("add", e.src(ins, "a"), e.src(ins, "b")))

`e.src` returns LLVM values in the operand's PTX type, lifted to the instruction's lanes: u/s/b N → iN, f16 → half,
f32 → float, f64 → double, pred → i1; packed and alternate types (f16x2, bf16x2, bf16, tf32, e4m3x2 …) → iN bits.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence

from weft.core.errors import Unsupported
from weft.ptx.module import (
    WIDTH,
    Discard,
    FloatImm,
    Guard,
    Imm,
    Instruction,
    Not,
    Operand,
    Pair,
    Reg,
    Special,
    Sym,
    Vec,
)

from ..ir import LANES, Builder, Value, const, element, lanes_of, vec

_FLOATS = {"f16": "half", "f32": "float", "f64": "double"}


def llvm_type(ptx_type: str) -> str:
    """Return the scalar LLVM type in which a PTX type is computed."""
    if ptx_type == "pred":
        return "i1"
    return _FLOATS.get(ptx_type) or f"i{WIDTH[ptx_type]}"


class Emitter(ABC):
    """Reads and writes registers for the chapter functions; a subclass decides where registers are kept."""

    b: Builder
    lanes: int
    """1 if the current instruction is computed once for the entire warp, else 32."""

    # -- what a subclass provides ---------------------------------------------------------------------------

    @abstractmethod
    def get(self, name: str) -> Value:
        """Return register bits lifted to the current lanes: iN or <32 x iN>; predicates i1 or <32 x i1>."""

    @abstractmethod
    def put(self, name: str, value: Value) -> None:
        """Set a register under the current guard and mask (the old value stays in lanes that are off)."""

    @abstractmethod
    def register_type(self, name: str) -> str:
        """Return the declared PTX type of a register."""

    @abstractmethod
    def special(self, name: str) -> Value:
        """Return a special register, lifted."""

    @abstractmethod
    def symbol(self, sym: Sym) -> Value:
        """Return the address of a variable in its own state space, i64 (a scalar)."""

    @abstractmethod
    def active(self) -> Value:
        """Return the lanes that take part in the current instruction, as an i32 bit mask (with the guard)."""

    @abstractmethod
    def runtime(self, name: str, result: str, args: Sequence[Value]) -> Value:
        """Call an out-of-line function of the runtime by name (it receives the warp's context first)."""

    def ranges(self, ins: Instruction) -> bool:
        """Return whether the CPU has VRANGEPS and no source is a signalling NaN, which it would return."""
        return False

    def hides_nan(self, ins: Instruction) -> bool:
        """Return whether the payload of a NaN that `ins` writes can never be observed."""
        return False

    # -- what chapters use ----------------------------------------------------------------------------------

    def ty(self, scalar: str) -> str:
        """Return `scalar` lifted to the lanes of the current instruction."""
        return vec(scalar, self.lanes)

    def const(self, scalar: str, value: int | float) -> Value:
        """Return a constant lifted to the current lanes."""
        return const(self.ty(scalar), value)

    def lift(self, value: Value) -> Value:
        """Return a scalar in every lane, if the current instruction has 32."""
        return self.b.splat(value) if self.lanes > 1 and lanes_of(value.ty) == 1 else value

    def bits(self, value: Value) -> Value:
        """Return the same bits as an integer."""
        scalar = element(value.ty)
        width = {"float": 32, "double": 64, "half": 16}.get(scalar)
        return value if width is None else self.b.cast("bitcast", value, vec(f"i{width}", lanes_of(value.ty)))

    def as_float(self, value: Value, scalar: str) -> Value:
        """Return integer bits as `half`, `float` or `double`."""
        return self.b.cast("bitcast", value, vec(scalar, lanes_of(value.ty)))

    def src(self, ins: Instruction, name: str) -> Value:
        """Return operand `name` in its PTX type."""
        return self.read(ins.operand(name), ins.operand_type(name), ins.line)

    def items(self, ins: Instruction, name: str, ptx_type: str | None = None) -> list[Value]:
        """Return operand `name` as a list: one value, or the members of a vector."""
        operand = ins.operand(name)
        members = operand.items if isinstance(operand, Vec) else (operand,)
        return [self.read(item, ptx_type or ins.operand_type(name), ins.line) for item in members]

    def dst(self, ins: Instruction, value: Value, name: str = "d") -> None:
        """Write operand `name`, extending by the operand type's sign where the register is wider."""
        self.write(ins.operand(name), value, ins.operand_type(name), ins.line)

    def read(self, operand: Operand, ptx_type: str, line: int) -> Value:
        """Return any source operand as an LLVM value of `ptx_type`."""
        scalar = llvm_type(ptx_type)
        match operand:
            case Reg(name=name):
                value = self.get(name)
            case Not(reg=reg):
                value = self.b.op("xor", self.get(reg.name), self.const("i1", 1))
            case Imm(value=number):
                if scalar in ("float", "double", "half"):
                    raise Unsupported(f"an integer literal as a .{ptx_type} operand", line)
                return self.const(scalar, number)
            case FloatImm():
                return self.read_float(operand, ptx_type, line)
            case Special(name=name):
                value = self.special(name)
            case Sym():
                value = self.lift(self.symbol(operand))
            case _:
                raise Unsupported(f"operand {operand}", line)
        return self.narrow(value, scalar)

    def read_float(self, operand: FloatImm, ptx_type: str, line: int) -> Value:
        width = WIDTH[ptx_type]
        bits = operand.bits
        if operand.width == 64 and width == 32:
            bits = int.from_bytes(struct.pack("<f", struct.unpack("<d", bits.to_bytes(8, "little"))[0]), "little")
        elif operand.width == 32 and width == 64:
            bits = int.from_bytes(struct.pack("<d", struct.unpack("<f", bits.to_bytes(4, "little"))[0]), "little")
        elif operand.width != width:
            raise Unsupported(f"a {operand.width}-bit literal as a .{ptx_type} operand", line)
        value = self.const(f"i{width}", bits)
        scalar = llvm_type(ptx_type)
        return self.as_float(value, scalar) if scalar in ("float", "double", "half") else value

    def narrow(self, value: Value, scalar: str) -> Value:
        """Return register bits (iN, perhaps wider) as `scalar`."""
        if scalar == "i1" or element(value.ty) == "i1":
            return value
        width = {"float": 32, "double": 64, "half": 16}.get(scalar) or int(scalar[1:])
        have = int(element(value.ty)[1:])
        if have > width:
            value = self.b.cast("trunc", value, self.ty(f"i{width}"))
        elif have < width:
            value = self.b.cast("zext", value, self.ty(f"i{width}"))
        return self.b.cast("bitcast", value, self.ty(scalar))

    def write(self, operand: Operand, value: Value, ptx_type: str, line: int) -> None:
        """Write a destination: a register, `_`, or the first of a pair."""
        if isinstance(operand, Discard):
            return
        if isinstance(operand, Pair):
            operand = operand.first
            if isinstance(operand, Discard):
                return
        if not isinstance(operand, Reg):
            raise Unsupported(f"destination {operand}", line)
        declared = self.register_type(operand.name)
        value = self.lift(value)
        if declared == "pred":
            self.put(operand.name, value)
            return
        value = self.bits(value)
        width, have = WIDTH[declared], int(element(value.ty)[1:])
        if have < width:
            value = self.b.cast("sext" if ptx_type[0] == "s" else "zext", value, vec(f"i{width}", lanes_of(value.ty)))
        elif have > width:
            raise Unsupported(f"a {have}-bit result in .{declared} register {operand.name}", line)
        self.put(operand.name, value)

    def mask_vector(self, mask: Value) -> Value:
        """Return an i32 bit mask as <32 x i1>."""
        return self.b.cast("bitcast", mask, vec("i1"))

    def mask_bits(self, predicate: Value) -> Value:
        """Return <32 x i1> (or i1 for all lanes) as an i32 bit mask."""
        if predicate.ty == "i1":
            return self.b.cast("sext", predicate, "i32")
        return self.b.cast("bitcast", predicate, "i32")


__all__ = ["LANES", "Emitter", "Guard", "llvm_type"]
