"""Shifts by any amount: LLVM's are poison if the amount is at least the width, PTX's clamp."""

from ..ir import Value, bits_of, element
from .emitter import Emitter


def resize(e: Emitter, value: Value, width: int) -> Value:
    """Return an integer zero-extended or truncated to `width` bits."""
    have = bits_of(element(value.ty))
    return e.b.cast("zext" if have < width else "trunc", value, e.ty(f"i{width}"))


def shift(e: Emitter, name: str, a: Value, amount: Value) -> Value:
    """Return `shl` or `lshr` by an i32 amount; 0 from the width on."""
    width = bits_of(element(a.ty))
    shifted = e.b.op(name, a, resize(e, amount, width))
    within = e.b.icmp("ult", amount, e.const("i32", width))
    return e.b.select(within, shifted, e.const(f"i{width}", 0))


def shift_signed(e: Emitter, a: Value, amount: Value) -> Value:
    """Return `ashr` by an i32 amount; all sign bits from the width on."""
    width = bits_of(element(a.ty))
    clamped = e.b.intrinsic("umin", amount.ty, [amount, e.const("i32", width - 1)])
    return e.b.op("ashr", a, resize(e, clamped, width))


def low_mask(e: Emitter, width: int, count: Value) -> Value:
    """Return a `width`-bit integer whose low `count` (i32) bits are set; all of them from the width on."""
    return e.b.op("xor", shift(e, "shl", e.const(f"i{width}", -1), count), e.const(f"i{width}", -1))
