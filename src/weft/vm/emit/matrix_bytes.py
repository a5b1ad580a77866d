"""ldmatrix of bytes: rows of 16 bytes, or of 16 elements of 6 or 4 bits, each of which becomes a byte.

The rows are loaded as those of `m8n8`: a register is eight rows one after the other. The rest permutes bytes.
"""

from weft.core.errors import Unsupported
from weft.ptx.module import Instruction, Vec

from ..ir import LANES, Value, const, vec, vector
from .kernel_contract import KernelContract
from .mbarrier import shared_address

_ROW = 4 * LANES
_BYTES = vec("i8", _ROW)
_PAIRS = vec("i16", _ROW)


def load_bytes(e: KernelContract, ins: Instruction) -> None:
    """Write ldmatrix.m8n16, or .m16n16, which is transposed: see vm/reference/matrix.py."""
    wide = ins.has("m16n16")
    count = int(ins.mods["num"][1:]) * (2 if wide else 1)
    target = ins.operand("d")
    registers = target.items if isinstance(target, Vec) else (target,)
    if len(registers) != count:
        raise Unsupported(f"{ins.opcode} into {len(registers)} registers; it takes {count}", ins.line)
    room = e.buffer("tile", _ROW * 4)
    width = {"b6x16_p32": 6, "b4x16_p64": 4}.get(ins.mods.get("source", ""), 8)
    name = f"ldmatrix.x{count}" + (f".{2 * width}" if width < 8 else "")
    e.runtime(name, "void", [shared_address(e, ins), e.active(), e.site(), room])
    rows = [e.b.load(_BYTES, e.b.offset(room, _ROW * number), align=64) for number in range(count)]
    if width < 8:
        rows = [_widened(e, each, width) for each in rows]
    if wide:
        rows = [_columns(e, rows[at], rows[at + 1], first) for at in range(0, count, 2) for first in (0, 8)]
    for register, value in zip(registers, rows, strict=True):
        e.write(register, e.b.cast("bitcast", value, vec("i32")), "b32", ins.line)


def _columns(e: KernelContract, top: Value, bottom: Value, first: int) -> Value:
    """Return columns `first` to `first` + 7 of 16 rows: lane 4 g + t gets rows 4 t to 4 t + 3 of column g."""
    order = [16 * (4 * t + i) + first + g for g in range(8) for t in range(4) for i in range(4)]
    return e.b.shuffle(top, bottom, order)


def _widened(e: KernelContract, rows: Value, width: int) -> Value:
    """Return 16 elements of each row as bytes; they follow each other from the row's lowest bit on."""
    b = e.b
    places = [(16 * row, width * number) for row in range(8) for number in range(16)]
    low, high = (
        b.cast("zext", b.shuffle(rows, None, [start + bit // 8 + next_ for start, bit in places]), _PAIRS)
        for next_ in (0, 1)
    )
    pairs = b.op("or", low, b.op("shl", high, const(_PAIRS, 8)))
    shifted = b.op("lshr", pairs, vector("i16", [bit % 8 for _, bit in places]))
    return b.cast("trunc", b.op("and", shifted, const(_PAIRS, (1 << width) - 1)), _BYTES)
