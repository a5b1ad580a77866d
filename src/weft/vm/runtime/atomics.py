"""Atomic operations: read, compute, write, one lane after the other in ascending order.

    <32 x iN> atom.{global,shared,generic}.<op>.<type>
              (warp, <32 x iA> address, i32 mask, i32 site, <32 x iN> b, <32 x iN> c)
The result is what each lane found. iA is i32 for shared, i64 otherwise; `c` counts for cas only: where the
value is b, c is written. Lanes that are off, out of bounds or misaligned do nothing and find 0; the last two
are reported.

CTAs run on several host threads, so global memory is changed by LLVM atomics (monotonic: order comes from
fences); shared memory belongs to one thread and takes plain loads and stores. A generic address is atomic
in every window; atomics on local memory do not exist.

Floating-point addition rounds to nearest even. As PTX documents, f32 flushes subnormal operands and results
to zero in global memory and keeps them in shared memory; the other types keep them. NaN results are the
canonical ones, except for f64, which keeps a payload.

Watchers see one access that is `atomic`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from weft.core.errors import Unsupported

from ..context import MISALIGNED, OUT_OF_BOUNDS
from ..ir import Builder, Value, const, vec
from ..last_word import WORD_BYTES
from ..memory import GLOBAL_BASE, SHARED_BASE
from .bounds import (
    Window,
    global_window,
    host_addresses,
    owned,
    report_lanes,
    shared_window,
    straight,
    without,
)
from .shape import Variable, each_lane, function, unbits
from .watch import Access, Instrumentation

_TYPES = {
    "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "exch": "b32 b64", "cas": "b16 b32 b64",
    "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2", "inc": "u32", "dec": "u32",
    "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64",
}  # fmt: skip
_BITS = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32}


@dataclass(frozen=True)
class Atomic:
    """The operation of an atomic function."""

    space: str
    op: str
    kind: str

    @property
    def bits(self) -> int:
        return _BITS.get(self.kind) or int(self.kind[1:])

    @property
    def word(self) -> str:
        return f"i{self.bits}"

    @property
    def floating(self) -> bool:
        return "f" in self.kind

    @property
    def instruction(self) -> str:
        """Return LLVM's name of an integer operation."""
        sign = "u" if self.kind[0] == "u" else ""
        if self.op in ("min", "max"):
            return sign + self.op
        return {"exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}.get(self.op, self.op)


def parse_atomic(name: str) -> Atomic:
    """Return the Atomic of `atom.global.add.f32`."""
    parts = name.split(".")
    known = len(parts) == 4 and parts[1] in ("global", "shared", "generic")
    if not known or parts[3] not in _TYPES.get(parts[2], "").split():
        raise Unsupported(f"runtime function {name}")
    return Atomic(*parts[1:])


def build_atomic(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    atomic = parse_atomic(name)
    word = vec(atomic.word)
    address_type = vec("i32" if atomic.space == "shared" else "i64")
    params = [("ptr", "warp"), (address_type, "address"), ("i32", "mask"), ("i32", "site")]
    b = function(name, word, [*params, (word, "b"), (word, "c")])
    address, mask = b.param("address"), b.param("mask")
    places, inside, in_global, seen = _places(b, atomic, address)
    aligned = straight(b, address, atomic.bits // 8)
    report_lanes(b, OUT_OF_BOUNDS, without(b, mask, inside), address)
    report_lanes(b, MISALIGNED, without(b, b.op("and", mask, inside), aligned), address)
    valid = b.op("and", mask, b.op("and", inside, aligned))
    exchange = atomic.op == "exch"
    watch.access(b, Access(exchange, atomic.space, atomic.bits // 8, seen, valid, contiguous=False, atomic=True))
    found, at, left, right = (b.alloca(ty) for ty in (word, vec("i64"), word, word))
    for value, slot in ((const(word, 0), found), (places, at), (b.param("b"), left), (b.param("c"), right)):
        b.store(value, slot, align=64)
    with each_lane(b, valid) as lane:
        place = b.load("i64", _element(b, at, lane, 64), align=8)
        pointer = b.emit("ptr", f"inttoptr i64 {place.ref} to ptr")
        operands = [b.load(atomic.word, _element(b, slot, lane, atomic.bits), align=2) for slot in (left, right)]
        bit = b.op("and", b.op("lshr", in_global, lane), const("i32", 1))
        flush = b.icmp("ne", bit, const("i32", 0))
        if atomic.space == "shared":
            old = _plain(b, atomic, pointer, operands)
        else:
            old = _between_threads(b, atomic, pointer, operands, flush)
        b.store(old, _element(b, found, lane, atomic.bits), align=2)
    b.ret(b.load(word, found, align=64))
    return [b]


def _element(b: Builder, slot: Value, lane: Value, width: int) -> Value:
    return b.offset(slot, b.op("mul", b.cast("zext", lane, "i64"), const("i64", width // 8)))


def _places(b: Builder, atomic: Atomic, address: Value) -> tuple[Value, Value, Value, Value]:
    """Return host addresses (<32 x i64>), lanes inside a window, lanes in the global one, offsets for watchers."""
    size = atomic.bits // 8

    def within(window: Window, base: int) -> tuple[Value, Value, Value]:
        offsets = b.op("sub", address, const(address.ty, base))
        space = "global" if window.base == GLOBAL_BASE else "shared"
        last_word = space == "global" and atomic.op == "cas" and size == WORD_BYTES
        inside = owned(b, space, offsets, b.param("mask"), size, last_word=last_word)
        return host_addresses(b, window, offsets), inside, offsets

    if atomic.space == "shared":
        near = shared_window(b)
        places, inside, offsets = within(near, near.base)
        return places, inside, const("i32", 0), offsets
    far = global_window(b)
    places, inside, offsets = within(far, far.base)
    if atomic.space == "global":
        return places, inside, const("i32", -1), offsets
    near = shared_window(b)
    near_places, near_inside, _ = within(near, SHARED_BASE + near.base)
    return (
        b.select(unbits(b, near_inside), near_places, places),
        b.op("or", inside, near_inside),
        inside,
        address,
    )


# -- one lane -------------------------------------------------------------------------------------------


def _plain(b: Builder, atomic: Atomic, pointer: Value, operands: list[Value]) -> Value:
    old = b.load(atomic.word, pointer, align=atomic.bits // 8)
    b.store(_combined(b, atomic, old, operands, const("i1", 0)), pointer, align=atomic.bits // 8)
    return old


def _between_threads(b: Builder, atomic: Atomic, pointer: Value, operands: list[Value], flush: Value) -> Value:
    left, right = operands
    word, align = atomic.word, atomic.bits // 8
    if atomic.op == "cas":
        return _exchanged(b, pointer, left, right)[0]
    if not atomic.floating:
        update = f"atomicrmw {atomic.instruction} ptr {pointer.ref}, {word} {left.ref}"
        return b.emit(word, f"{update} monotonic, align {align}")
    expected = Variable(b, b.emit(word, f"load atomic {word}, ptr {pointer.ref} monotonic, align {align}"))
    again, done = b.label("again"), b.label("done")
    b.place(again)
    old = expected.get()
    now, same = _exchanged(b, pointer, old, _combined(b, atomic, old, operands, flush))
    expected.set(now)
    b.cbr(same, done, again, likely=True)
    b.place(done)
    return expected.get()


def _exchanged(b: Builder, pointer: Value, old: Value, new: Value) -> tuple[Value, Value]:
    """Compare and swap: return the old value, and whether it was `old`."""
    pair = f"{{ {old.ty}, i1 }}"
    swap = f"cmpxchg ptr {pointer.ref}, {old.ty} {old.ref}, {old.ty} {new.ref}"
    both = b.emit(pair, f"{swap} monotonic monotonic")
    return b.emit(old.ty, f"extractvalue {pair} {both.ref}, 0"), b.emit("i1", f"extractvalue {pair} {both.ref}, 1")


def _combined(b: Builder, atomic: Atomic, old: Value, operands: list[Value], flush: Value) -> Value:
    """Return the value to write."""
    left, right = operands
    if atomic.floating:
        return _FLOAT_ADD[atomic.kind](b, old, left, flush)
    one = const(old.ty, 1)
    match atomic.op:
        case "exch":
            return left
        case "cas":
            return b.select(b.icmp("eq", old, left), right, old)
        case "inc":
            return b.select(b.icmp("uge", old, left), const(old.ty, 0), b.op("add", old, one))
        case "dec":
            outside = b.op("or", b.icmp("eq", old, const(old.ty, 0)), b.icmp("ugt", old, left))
            return b.select(outside, left, b.op("sub", old, one))
        case "min" | "max":
            sign = "u" if atomic.kind[0] == "u" else "s"
            return b.intrinsic(f"{sign}{atomic.op}", old.ty, [old, left])
        case _:
            return b.op(atomic.op, old, left)


# -- floating-point addition on raw bits -----------------------------------------------------------------


def _add_f32(b: Builder, old: Value, addend: Value, flush: Value) -> Value:
    x, y = (b.cast("bitcast", _flushed(b, v, flush), "float") for v in (old, addend))
    total = b.op("fadd", x, y)
    return _canonical(b, total, _flushed(b, b.cast("bitcast", total, "i32"), flush), 0x7FFFFFFF)


def _flushed(b: Builder, word: Value, flush: Value) -> Value:
    """Return f32 bits with a subnormal replaced by a zero of its sign, if `flush`."""
    exponent = b.op("and", word, const("i32", 0x7F800000))
    small = b.op("and", flush, b.icmp("eq", exponent, const("i32", 0)))
    return b.select(small, b.op("and", word, const("i32", 1 << 31)), word)


def _canonical(b: Builder, total: Value, word: Value, nan: int) -> Value:
    return b.select(b.fcmp("uno", total, total), const(word.ty, nan), word)


def _add_f64(b: Builder, old: Value, addend: Value, flush: Value) -> Value:
    total = b.op("fadd", b.cast("bitcast", old, "double"), b.cast("bitcast", addend, "double"))
    return b.cast("bitcast", total, "i64")


def _add_f16(b: Builder, old: Value, addend: Value, flush: Value) -> Value:
    # An f32 sum of two halves (or bfloats) rounds to the same half as the exact sum: 24 >= 2 * 11 + 2 bits.
    x, y = (b.cast("fpext", b.cast("bitcast", v, "half"), "float") for v in (old, addend))
    total = b.op("fadd", x, y)
    return _canonical(b, total, b.cast("bitcast", b.cast("fptrunc", total, "half"), "i16"), 0x7FFF)


def _add_bf16(b: Builder, old: Value, addend: Value, flush: Value) -> Value:
    wide = (b.op("shl", b.cast("zext", v, "i32"), const("i32", 16)) for v in (old, addend))
    x, y = (b.cast("bitcast", v, "float") for v in wide)
    total = b.op("fadd", x, y)
    word = b.cast("bitcast", total, "i32")
    odd = b.op("and", b.op("lshr", word, const("i32", 16)), const("i32", 1))
    rounded = b.op("add", word, b.op("add", odd, const("i32", 0x7FFF)))
    return _canonical(b, total, b.cast("trunc", b.op("lshr", rounded, const("i32", 16)), "i16"), 0x7FFF)


_Add = Callable[[Builder, Value, Value, Value], Value]


def _pairwise(add: _Add) -> _Add:
    """Apply it to both halves of a word."""

    def run(b: Builder, old: Value, addend: Value, flush: Value) -> Value:
        parts = []
        for shift in (0, 16):
            x, y = (b.cast("trunc", b.op("lshr", v, const("i32", shift)), "i16") for v in (old, addend))
            parts.append(b.op("shl", b.cast("zext", add(b, x, y, flush), "i32"), const("i32", shift)))
        return b.op("or", *parts)

    return run


_FLOAT_ADD: dict[str, _Add] = {
    "f32": _add_f32, "f64": _add_f64, "f16": _add_f16, "bf16": _add_bf16, "f16x2": _pairwise(_add_f16),
    "bf16x2": _pairwise(_add_bf16),
}  # fmt: skip
