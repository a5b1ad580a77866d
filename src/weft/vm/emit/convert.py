"""cvt and cvt.pack (PTX ISA 9.7.9.21, 9.7.9.22)."""

from collections.abc import Callable

from weft.ptx.module import WIDTH, Instruction

from ..ir import Value, element
from .emitter import Emitter
from .rounding import canonical, flush, is_nan, narrow, quiet_f64, relu, saturate, step, to_odd, widen

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_LARGEST = {"f16": (0x7C00, 0x7BFF), "bf16": (0x7F80, 0x7F7F), "tf32": (0x7F800000, 0x7F7FE000)}
"""Bits of infinity and of the largest finite number."""
_CODES = {
    "e4m3": (3, 7, 0x7E, 7, 0x7F), "e5m2": (2, 15, 0x7B, 7, 0x7F), "e3m2": (2, 3, 0x1F, 5, 0x1F),
    "e2m3": (3, 1, 0x1F, 5, 0x1F), "e2m1": (1, 1, 0x07, 3, 0x07),
}  # fmt: skip
"""Bits of the fraction, bias, code of the largest number, place of the sign, code of NaN: types of 4 and 6 bits have
none, and give their largest number."""


def _is_integer(ptx_type: str) -> bool:
    return ptx_type[0] in "us"


def _bounds(ptx_type: str) -> tuple[int, int]:
    """Return the least and the largest value of u8, s32, u4 and so on."""
    width = int(ptx_type[1:])
    return (0, (1 << width) - 1) if ptx_type[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)


def _clamp(e: Emitter, x: Value, source: str, target: str) -> Value:
    """Return an integer of type `source` clamped to the range of `target`."""
    (least, largest), (low, high) = _bounds(source), _bounds(target)
    sign, scalar = source[0], element(x.ty)
    if low > least:
        x = e.b.intrinsic(f"{sign}max", x.ty, [x, e.const(scalar, low)])
    if high < largest:
        x = e.b.intrinsic(f"{sign}min", x.ty, [x, e.const(scalar, high)])
    return x


def _integer_to_integer(e: Emitter, ins: Instruction) -> Value:
    dtype, atype = ins.mods["dtype"], ins.mods["atype"]
    x = e.src(ins, "a")
    if ins.has("sat"):
        x = _clamp(e, x, atype, dtype)
    if WIDTH[dtype] < WIDTH[atype]:
        return e.b.cast("trunc", x, e.ty(f"i{WIDTH[dtype]}"))
    return e.b.cast("sext" if atype[0] == "s" else "zext", x, e.ty(f"i{WIDTH[dtype]}"))


def _float_source(e: Emitter, ins: Instruction) -> Value:
    """Return operand a as float (f16, bf16, f32) or double, flushed and made integral according to the modifiers."""
    atype = ins.mods["atype"]
    x = e.src(ins, "a")
    if atype in ("f16", "bf16"):
        x = widen(e, x, atype)
    elif atype == "f32" and ins.has("ftz"):
        x = flush(e, x)
    if ins.has("irnd"):
        x = e.b.intrinsic(_INTEGRAL[ins.mods["irnd"]], x.ty, [x])
    return x


def _float_to_integer(e: Emitter, ins: Instruction) -> Value:
    """Convert, clamped to the range. NaN is 0, but the top bit alone if either type is 64 bits wide."""
    dtype, atype = ins.mods["dtype"], ins.mods["atype"]
    x = _float_source(e, ins)
    result = e.ty(f"i{WIDTH[dtype]}")
    value = e.b.intrinsic(f"fpto{dtype[0]}i.sat", result, [x], overloads=[result, x.ty])
    if WIDTH[dtype] == 64 or atype == "f64":
        top = e.const(element(result), 1 << (WIDTH[dtype] - 1))
        value = e.b.select(is_nan(e, x), top, value)
    return value


def _integer_to_float(e: Emitter, ins: Instruction) -> Value:
    dtype, atype, rounding = ins.mods["dtype"], ins.mods["atype"], ins.mods["rnd"]
    x = e.src(ins, "a")
    if ins.has("sat"):
        x = _clamp(e, x, atype, "u1")
    cast = "sitofp" if atype[0] == "s" else "uitofp"
    if rounding == "rn" and dtype in ("f32", "f64"):
        return e.b.cast(cast, x, e.ty("float" if dtype == "f32" else "double"))
    if WIDTH[atype] < 64:
        exact = e.b.cast(cast, x, e.ty("double"))
        return exact if dtype == "f64" else narrow(e, exact, dtype, rounding)
    op = e.b.op
    upper = op("ashr" if atype[0] == "s" else "lshr", x, e.const("i64", 32))
    high = op("fmul", e.b.cast(cast, upper, e.ty("double")), e.const("double", 2.0**32))
    low = e.b.cast("uitofp", op("and", x, e.const("i64", 0xFFFFFFFF)), e.ty("double"))
    total = op("fadd", high, low)
    # Exact, since high is zero or at least as large as low (Dekker).
    error = op("fsub", low, op("fsub", total, high))
    zero, no = e.const("double", 0.0), e.const("i1", 0)
    above, below = e.b.fcmp("ogt", error, zero), e.b.fcmp("olt", error, zero)
    if dtype != "f64":
        return narrow(e, to_odd(e, total, above, below), dtype, rounding)
    if rounding == "rz":
        negative = e.b.fcmp("olt", total, zero)
        positive = op("xor", negative, e.const("i1", 1))
        return step(e, total, op("and", above, negative), op("and", below, positive))
    return step(e, total, above if rounding == "rp" else no, below if rounding == "rm" else no)


def _shape(e: Emitter, ins: Instruction, x: Value) -> Value:
    """Apply .sat and .relu; before the rounding is equally correct, because 0 and 1 are exact in every type."""
    if ins.has("sat"):
        return saturate(e, x)
    return relu(e, x) if ins.has("relu") else x


def _float_to_float(e: Emitter, ins: Instruction) -> Value:
    dtype, atype = ins.mods["dtype"], ins.mods["atype"]
    x = _float_source(e, ins)
    if dtype == "f64":
        wide = e.b.cast("fpext", x, e.ty("double"))
        return _shape(e, ins, quiet_f64(e, wide, [wide]))
    if dtype == "f32":
        result = narrow(e, x, "f32", ins.mods["rnd"]) if atype == "f64" else x
        result = flush(e, result) if ins.has("ftz") else result
        return canonical(e, _shape(e, ins, result))
    return _narrow_half(e, ins, x, dtype)


def _narrow_half(e: Emitter, ins: Instruction, x: Value, dtype: str) -> Value:
    """Return a float or double as f16 or bf16, as i16 bits."""
    result = narrow(e, _shape(e, ins, x), dtype, ins.mods.get("rnd", "rn"))
    bits = e.bits(canonical(e, result) if dtype == "f16" else result)
    return _finite(e, bits, dtype) if ins.has("satfinite") else bits


def _finite(e: Emitter, bits: Value, ptx_type: str) -> Value:
    """Return infinities as the largest finite number of the same sign."""
    scalar = element(bits.ty)
    infinity, largest = _LARGEST[ptx_type]
    sign = 1 << (WIDTH[ptx_type] - 1)
    magnitude = e.b.op("and", bits, e.const(scalar, sign - 1))
    is_infinite = e.b.icmp("eq", magnitude, e.const(scalar, infinity))
    return e.b.select(is_infinite, e.b.op("sub", bits, e.const(scalar, infinity - largest)), bits)


def _pack(e: Emitter, high: Value, low: Value, scalar: str) -> Value:
    """Return two unsigned fields of half the width of `scalar`."""
    ty, shift = e.ty(scalar), int(scalar[1:]) // 2
    upper = e.b.op("shl", e.b.cast("zext", high, ty), e.const(scalar, shift))
    return e.b.op("or", upper, e.b.cast("zext", low, ty))


def _halves(e: Emitter, ins: Instruction) -> Value:
    base = ins.mods["dtype"].removesuffix("x2")
    a, b = (_narrow_half(e, ins, e.src(ins, name), base) for name in "ab")
    return _pack(e, a, b, "i32")


def _tf32(e: Emitter, ins: Instruction) -> Value:
    """Return the upper 19 bits of an f32, rounded in integers; the rest is zero. NaN is 0x7fffffff."""
    x = _shape(e, ins, e.src(ins, "a"))
    op, bits = e.b.op, e.bits(x)
    if ins.mods["rnd"] == "rna":
        bits = op("add", bits, e.const("i32", 0x1000))
    elif ins.mods["rnd"] == "rn":
        last = op("and", op("lshr", bits, e.const("i32", 13)), e.const("i32", 1))
        bits = op("add", bits, op("add", last, e.const("i32", 0xFFF)))
    bits = op("and", bits, e.const("i32", 0xFFFFE000))
    bits = _finite(e, bits, "tf32") if ins.has("satfinite") else bits
    return e.b.select(is_nan(e, x), e.const("i32", 0x7FFFFFFF), bits)


def _to_small(e: Emitter, x: Value, kind: str) -> Value:
    """Return a float as a code (i8) of 8 bits or less: nearest even, clamped to the largest finite number."""
    fraction, bias, largest, sign_bit, nan_code = _CODES[kind]
    op, dropped = e.b.op, 23 - fraction
    bits = e.bits(x)
    magnitude = op("and", bits, e.const("i32", 0x7FFFFFFF))
    last = op("and", op("lshr", magnitude, e.const("i32", dropped)), e.const("i32", 1))
    rounded = op("add", magnitude, op("add", last, e.const("i32", (1 << (dropped - 1)) - 1)))
    normal = op("sub", op("lshr", rounded, e.const("i32", dropped)), e.const("i32", (127 - bias) << fraction))
    # Subnormal codes count multiples of 2^(1 - bias - fraction): adding 2^23 of those rounds to one.
    anchor = e.const("float", 2.0 ** (23 + 1 - bias - fraction))
    small = op("sub", e.bits(op("fadd", e.as_float(magnitude, "float"), anchor)), e.bits(anchor))
    is_small = e.b.icmp("ult", magnitude, e.const("i32", (127 + 1 - bias) << 23))
    code = e.b.select(is_small, small, e.b.intrinsic("smin", normal.ty, [normal, e.const("i32", largest)]))
    sign = op("and", op("lshr", bits, e.const("i32", 31 - sign_bit)), e.const("i32", 1 << sign_bit))
    return e.b.cast("trunc", e.b.select(is_nan(e, x), e.const("i32", nan_code), op("or", code, sign)), e.ty("i8"))


def _unpack(e: Emitter, packed: Value, scalar: str) -> tuple[Value, Value]:
    """Return the upper and the lower field of `scalar` bits."""
    width = int(scalar[1:])
    upper = e.b.op("lshr", packed, e.const(element(packed.ty), width))
    return e.b.cast("trunc", upper, e.ty(scalar)), e.b.cast("trunc", packed, e.ty(scalar))


def _sources(e: Emitter, ins: Instruction) -> list[Value]:
    """Return the two numbers that become one register, as floats: two registers, or the halves of one."""
    atype = ins.mods["atype"]
    if atype == "f32":
        return [e.src(ins, "a"), e.src(ins, "b")]
    halves = _unpack(e, e.src(ins, "a"), "i16")
    if atype == "bf16x2":
        words = (e.b.op("shl", e.b.cast("zext", half, e.ty("i32")), e.const("i32", 16)) for half in halves)
        return [e.as_float(word, "float") for word in words]
    return [widen(e, e.as_float(half, "half"), "f16") for half in halves]


def _small_pair(e: Emitter, ins: Instruction) -> Value:
    kind = ins.mods["dtype"].removesuffix("x2")
    high, low = (_to_small(e, _shape(e, ins, x), kind) for x in _sources(e, ins))
    if kind == "e2m1":
        return e.b.op("or", e.b.op("shl", high, e.const("i8", 4)), low)
    return _pack(e, high, low, "i16")


def _powers_of_two(e: Emitter, ins: Instruction) -> Value:
    """Return ue8m0 codes: exponents with bias 127, rounded toward zero or up; 255 is NaN. The sign has no meaning."""
    op, up = e.b.op, ins.mods["rnd"] == "rp"
    codes = []
    for x in _sources(e, ins):
        magnitude = op("and", e.bits(x), e.const("i32", 0x7FFFFFFF))
        code = op("lshr", magnitude, e.const("i32", 23))
        if up:  # 2^-127, a denormal, is the number of code 0
            above = e.b.icmp("ne", op("and", magnitude, e.const("i32", 0x7FFFFF)), e.const("i32", 0))
            above = op("and", above, e.b.icmp("ugt", magnitude, e.const("i32", 1 << 22)))
            code = op("add", code, e.b.cast("zext", above, e.ty("i32")))
        code = e.b.intrinsic("umin", code.ty, [code, e.const("i32", 254 if ins.has("satfinite") else 255)])
        code = e.b.select(is_nan(e, x), e.const("i32", 255), code)
        codes.append(e.b.cast("trunc", code, e.ty("i8")))
    return _pack(e, codes[0], codes[1], "i16")


def _from_powers(e: Emitter, ins: Instruction) -> Value:
    """Return ue8m0 codes as bf16; that of code 0 is a denormal."""
    op, halves = e.b.op, []
    for code in _unpack(e, e.src(ins, "a"), "i8"):
        wide = e.b.cast("zext", code, e.ty("i16"))
        value = op("shl", wide, e.const("i16", 7))
        value = e.b.select(e.b.icmp("eq", wide, e.const("i16", 0)), e.const("i16", 0x40), value)
        halves.append(e.b.select(e.b.icmp("eq", wide, e.const("i16", 255)), e.const("i16", 0x7FFF), value))
    return _pack(e, halves[0], halves[1], "i32")


def _from_small(e: Emitter, code: Value, kind: str) -> Value:
    """Return a code (i8) as half, exactly; NaN is canonical."""
    op = e.b.op
    wide = e.b.cast("zext", code, e.ty("i16"))
    if kind == "e5m2":
        return canonical(e, e.as_float(op("shl", wide, e.const("i16", 8)), "half"))
    fraction, bias, _, sign_bit, _ = _CODES[kind]
    sign = op("shl", op("and", wide, e.const("i16", 1 << sign_bit)), e.const("i16", 15 - sign_bit))
    magnitude = op("and", wide, e.const("i16", (1 << sign_bit) - 1))
    # The same fields read in a format with more exponents: a number that is 2^(bias - 15) of the value.
    fields = e.as_float(op("or", sign, op("shl", magnitude, e.const("i16", 10 - fraction))), "half")
    scaled = op("fmul", e.b.cast("fpext", fields, e.ty("float")), e.const("float", 2.0 ** (15 - bias)))
    value = e.b.cast("fptrunc", scaled, e.ty("half"))
    if kind != "e4m3":
        return value
    is_special = e.b.icmp("eq", magnitude, e.const("i16", 0x7F))
    return e.as_float(e.b.select(is_special, e.const("i16", 0x7FFF), e.bits(value)), "half")


def _small_to_halves(e: Emitter, ins: Instruction) -> Value:
    kind, base = ins.mods["atype"].removesuffix("x2"), ins.mods["dtype"].removesuffix("x2")
    packed = e.src(ins, "a")
    if kind == "e2m1":
        codes = e.b.op("lshr", packed, e.const("i8", 4)), e.b.op("and", packed, e.const("i8", 15))
    else:
        codes = _unpack(e, packed, "i8")
    halves = [_from_small(e, code, kind) for code in codes]
    if base == "bf16":  # exact: bf16 has f32's range and more digits than an fp8
        high, low = (_narrow_half(e, ins, widen(e, half, "f16"), base) for half in halves)
    else:
        high, low = (e.bits(_shape(e, ins, half)) for half in halves)
    return _pack(e, high, low, "i32")


def _cvt_pack(e: Emitter, ins: Instruction) -> Value:
    """Pack a and b clamped to the small type: b in the lowest field, a above it, then the low bits of c."""
    kind = ins.mods["ctype"]
    width = int(kind[1:])
    mask, op = e.const("i32", (1 << width) - 1), e.b.op
    high, low = (op("and", _clamp(e, e.src(ins, name), "s32", kind), mask) for name in "ab")
    packed = op("or", op("shl", high, e.const("i32", width)), low)
    if ins.find("c") is None:
        return packed
    return op("or", op("shl", e.src(ins, "c"), e.const("i32", 2 * width)), packed)


def _choose(ins: Instruction) -> Callable[[Emitter, Instruction], Value]:
    if ins.has("pack"):
        return _cvt_pack
    dtype, atype = ins.mods["dtype"], ins.mods["atype"]
    if dtype == "tf32":
        return _tf32
    if dtype == "ue8m0x2":
        return _powers_of_two
    if dtype.removesuffix("x2") in _CODES:
        return _small_pair
    if dtype in ("f16x2", "bf16x2"):
        return _halves if atype == "f32" else _from_powers if atype == "ue8m0x2" else _small_to_halves
    if _is_integer(dtype):
        return _integer_to_integer if _is_integer(atype) else _float_to_integer
    return _integer_to_float if _is_integer(atype) else _float_to_float


def _cvt(e: Emitter, ins: Instruction) -> None:
    e.dst(ins, _choose(ins)(e, ins))


EMIT: dict[str, Callable[[Emitter, Instruction], None]] = {"cvt": _cvt}
