"""One warp of the reference interpreter: 32 lanes of registers as NumPy arrays."""

import struct
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Discard, FloatImm, Imm, Instruction, Not, Operand, Pair, Reg, Special, Sym, Vec

Lanes = npt.NDArray[Any]
"""An array of shape (32,)."""

_FLOATS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@lru_cache
def dtype_of(ptx_type: str) -> np.dtype[Any]:
    """Return the NumPy type of a PTX type; packed and alternate types are their bits."""
    if ptx_type == "pred":
        return np.dtype(bool)
    if ptx_type in _FLOATS:
        floating: np.dtype[Any] = np.dtype(_FLOATS[ptx_type])
        return floating
    signed = ptx_type[0] == "s" and ptx_type[1:].isdigit()
    return np.dtype(f"{'int' if signed else 'uint'}{WIDTH[ptx_type]}")


class Warp:
    """Register file and active mask of one warp. Control flow and memory are in the interpreter."""

    def __init__(self, registers: dict[str, str]) -> None:
        self.types = registers
        self.file: dict[str, Lanes] = {
            name: np.zeros(32, dtype_of(f"b{WIDTH[ptx_type]}" if ptx_type != "pred" else "pred"))
            for name, ptx_type in registers.items()
        }
        self.mask: Lanes = np.ones(32, bool)
        """Lanes that take part in the current instruction, after its guard."""

    # -- filled in by the interpreter ------------------------------------------------------------------------

    def special(self, name: str) -> Lanes:
        """Return a special register."""
        raise NotImplementedError(name)

    def symbol(self, sym: Sym) -> Lanes:
        """Return the address of a variable in its own state space, as each lane sees it."""
        raise NotImplementedError(sym.name)

    # -- operands --------------------------------------------------------------------------------------------

    def src(self, ins: Instruction, name: str) -> Lanes:
        """Return operand `name` in its PTX type."""
        return self.read(ins.operand(name), ins.operand_type(name), ins.line)

    def items(self, ins: Instruction, name: str, ptx_type: str | None = None) -> list[Lanes]:
        """Return operand `name` as a list: one array, or the members of a vector."""
        operand = ins.operand(name)
        members = operand.items if isinstance(operand, Vec) else (operand,)
        return [self.read(item, ptx_type or ins.operand_type(name), ins.line) for item in members]

    def dst(self, ins: Instruction, value: Lanes, name: str = "d") -> None:
        """Write operand `name` in the lanes that are on."""
        self.write(ins.operand(name), value, ins.operand_type(name), ins.line)

    def read(self, operand: Operand, ptx_type: str, line: int) -> Lanes:
        """Return a source operand as an array of `ptx_type`."""
        dtype = dtype_of(ptx_type)
        match operand:
            case Reg(name=name):
                return _reinterpret(self.file[name], dtype)
            case Not(reg=reg):
                return ~self.file[reg.name]
            case Imm(value=value):
                if ptx_type in _FLOATS:
                    raise Unsupported(f"an integer literal as a .{ptx_type} operand", line)
                if ptx_type == "pred":
                    return np.full(32, bool(value))
                bits = np.array([value & ((1 << WIDTH[ptx_type]) - 1)] * 32, f"uint{WIDTH[ptx_type]}")
                return bits.view(dtype)
            case FloatImm():
                return np.full(32, _literal_bits(operand, ptx_type, line), f"uint{WIDTH[ptx_type]}").view(dtype)
            case Special(name=name):
                return _reinterpret(self.special(name), dtype)
            case Sym():
                return _reinterpret(self.symbol(operand), dtype)
        raise Unsupported(f"operand {operand}", line)

    def write(self, operand: Operand, value: Lanes, ptx_type: str, line: int) -> None:
        """Write a destination, extended by the sign of `ptx_type` where the register is wider."""
        if isinstance(operand, Pair):
            operand = operand.first
        if isinstance(operand, Discard):
            return
        if not isinstance(operand, Reg):
            raise Unsupported(f"destination {operand}", line)
        register = self.file[operand.name]
        if register.dtype == bool:
            register[self.mask] = value[self.mask]
            return
        bits = value.view(f"uint{8 * value.dtype.itemsize}")
        if bits.dtype.itemsize > register.dtype.itemsize:
            raise Unsupported(f"a {8 * bits.dtype.itemsize}-bit result in register {operand.name}", line)
        if ptx_type[0] == "s" and bits.dtype.itemsize < register.dtype.itemsize:
            bits = bits.view(f"int{8 * bits.dtype.itemsize}").astype(f"int{8 * register.dtype.itemsize}")
            bits = bits.view(register.dtype)
        register[self.mask] = bits.astype(register.dtype)[self.mask]


def _reinterpret(bits: Lanes, dtype: np.dtype[Any]) -> Lanes:
    """Return register bits as `dtype`: truncated if the register is wider, zero-extended if it is narrower."""
    if bits.dtype.kind == "b" or dtype.kind == "b":
        return bits.astype(dtype)
    return bits.astype(f"uint{8 * dtype.itemsize}").view(dtype)


def _literal_bits(operand: FloatImm, ptx_type: str, line: int) -> int:
    width = WIDTH[ptx_type]
    if operand.width == width:
        return operand.bits
    if operand.width == 64 and width == 32:
        return int.from_bytes(struct.pack("<f", struct.unpack("<d", operand.bits.to_bytes(8, "little"))[0]), "little")
    if operand.width == 32 and width == 64:
        return int.from_bytes(struct.pack("<d", struct.unpack("<f", operand.bits.to_bytes(4, "little"))[0]), "little")
    raise Unsupported(f"a {operand.width}-bit literal as a .{ptx_type} operand", line)
