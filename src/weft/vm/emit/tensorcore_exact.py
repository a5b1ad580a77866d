"""The exact path of a fused kind: a scalar loop in 64-bit integers that covers every bit pattern.

It is taken for the rare tiles that the vector path cannot do, so it is written to be short, not fast.
"""

from weft.vm.emit.ir_text import IrText, function
from weft.vm.mma_kind import FORMATS, ZERO_EXPONENT, FloatFormat, FusedRule, MmaKind

DECODED = "{ i64, i64, double }"  # signed significand, exponent, and a stand-in with the operand's class


def exact_function(name: str, kind: MmaKind, rule: FusedRule) -> tuple[str, dict[str, str]]:
    """`void @name(d, a, b, c)` with its decoders, and the intrinsics they declare."""
    texts = []
    for type_name in sorted({kind.a_type, kind.b_type, kind.c_type}):
        texts.append(_decoder(f"{name}.{type_name}", FORMATS[type_name]))
    ir = IrText()
    _loops(ir, name, kind, rule)
    signature = f"internal void @{name}(ptr %d, ptr %a, ptr %b, ptr %c)"
    texts.append(function(signature, ir.lines, attributes="cold noinline nounwind"))
    return "\n".join(texts), ir.declarations


def _decoder(name: str, fmt: FloatFormat) -> str:
    """Raw bits -> DECODED. The stand-in is 0, +-1, +-infinity or NaN: sums of products show the class."""
    ir = IrText()
    ir.label("entry")
    bits = "%bits"
    if fmt.name == "tf32":
        bits = ir.op("lshr", "i64", bits, "13")
    mantissa = ir.op("and", "i64", bits, str((1 << fmt.mantissa_bits) - 1))
    top = (1 << fmt.exponent_bits) - 1
    field = ir.op("and", "i64", ir.op("lshr", "i64", bits, str(fmt.mantissa_bits)), str(top))
    sign_place = str(fmt.mantissa_bits + fmt.exponent_bits)
    negative = ir.value(f"trunc i64 {ir.op('lshr', 'i64', bits, sign_place)} to i1")
    denormal = ir.op("icmp eq", "i64", field, "0")
    leading = ir.select("i64", denormal, "0", str(1 << fmt.mantissa_bits))
    significand = ir.op("or", "i64", mantissa, leading)
    field_or_one = ir.select("i64", denormal, "1", field)
    is_zero = ir.op("icmp eq", "i64", significand, "0")
    exponent = ir.select("i64", is_zero, str(ZERO_EXPONENT), ir.op("sub", "i64", field_or_one, str(fmt.bias)))
    at_top = ir.op("icmp eq", "i64", field, str(top))
    stand_in = ir.select("double", is_zero, "0.0", "1.0")
    if fmt.has_infinity:
        no_mantissa = ir.op("icmp eq", "i64", mantissa, "0")
        special = ir.select("double", no_mantissa, "0x7FF0000000000000", "0x7FF8000000000000")
        stand_in = ir.select("double", at_top, special, stand_in)
    else:
        full = ir.op("icmp eq", "i64", mantissa, str((1 << fmt.mantissa_bits) - 1))
        stand_in = ir.select("double", ir.op("and", "i1", at_top, full), "0x7FF8000000000000", stand_in)
    stand_in = ir.select("double", negative, ir.value(f"fneg double {stand_in}"), stand_in)
    signed = ir.select("i64", negative, ir.op("sub", "i64", "0", significand), significand)
    first = ir.value(f"insertvalue {DECODED} poison, i64 {signed}, 0")
    second = ir.value(f"insertvalue {DECODED} {first}, i64 {exponent}, 1")
    third = ir.value(f"insertvalue {DECODED} {second}, double {stand_in}, 2")
    ir.line(f"ret {DECODED} {third}")
    return function(f"internal {DECODED} @{name}(i64 %bits)", ir.lines, attributes="nounwind")


def _operand(ir: IrText, decoder: str, base: str, k: str, fmt: FloatFormat) -> list[str]:
    """Decode element (%m, k) of A or (k, %n) of B; see tensorcore_operands for the layout."""
    rows = base == "%a"
    major = "%m" if rows else "%n"
    per_word = 32 // fmt.storage_bits
    pair = ir.op("udiv", "i64", k, str(4 * per_word))
    column = ir.op("and", "i64", ir.op("udiv", "i64", k, str(per_word)), "3")
    element = ir.op("and", "i64", k, str(per_word - 1))
    if rows:  # two registers per pair: rows 0-7 and rows 8-15
        pair = ir.op("add", "i64", ir.op("shl", "i64", pair, "1"), ir.op("lshr", "i64", major, "3"))
    lane = ir.op("add", "i64", ir.op("shl", "i64", ir.op("and", "i64", major, "7"), "2"), column)
    word_index = ir.op("add", "i64", ir.op("shl", "i64", pair, "5"), lane)
    word = ir.load("i32", base, ir.op("shl", "i64", word_index, "2"), align=4)
    wide = ir.cast("zext", "i32", word, "i64")
    shifted = ir.op("lshr", "i64", wide, ir.op("mul", "i64", element, str(fmt.storage_bits)))
    bits = ir.op("and", "i64", shifted, str((1 << fmt.storage_bits) - 1))
    return _decoded(ir, f"{decoder}.{fmt.name}", bits)


def _decoded(ir: IrText, decoder: str, bits: str) -> list[str]:
    value = ir.value(f"call {DECODED} @{decoder}(i64 {bits})")
    return [ir.value(f"extractvalue {DECODED} {value}, {i}") for i in range(3)]


def _aligned(ir: IrText, significand: str, exponent: str, largest: str, left: int) -> str:
    """significand * 2^(left + exponent - largest), truncated toward zero."""
    magnitude = ir.call("i64", "llvm.abs", significand)
    distance = ir.op("sub", "i64", largest, exponent)
    if left >= 0:
        magnitude = ir.op("shl", "i64", magnitude, str(left))
    else:
        distance = ir.op("add", "i64", distance, str(-left))
    shifted = ir.op("lshr", "i64", magnitude, ir.call("i64", "llvm.umin", distance, "63"))
    negative = ir.op("icmp slt", "i64", significand, "0")
    return ir.select("i64", negative, ir.op("sub", "i64", "0", shifted), shifted)


def _loops(ir: IrText, name: str, kind: MmaKind, rule: FusedRule) -> None:
    a_format, b_format = FORMATS[kind.a_type], FORMATS[kind.b_type]
    product_left = rule.fraction_bits - a_format.mantissa_bits - b_format.mantissa_bits
    c_left = rule.fraction_bits - FORMATS[kind.c_type].mantissa_bits

    ir.label("entry")
    ir.line("br label %element")
    ir.label("element")
    ir.line("%index = phi i64 [ 0, %entry ], [ %index.next, %element.end ]")
    ir.line("%m = lshr i64 %index, 3")
    ir.line("%n = and i64 %index, 7")
    # accumulator (m, n): lane 4 (m mod 8) + n / 2 of register m / 8 (f16) or 2 (m / 8) + n mod 2 (f32)
    group = ir.op("shl", "i64", ir.op("and", "i64", "%m", "7"), "2")
    lane = ir.op("add", "i64", group, ir.op("lshr", "i64", "%n", "1"))
    parity = ir.op("and", "i64", "%n", "1")
    register = ir.op("lshr", "i64", "%m", "3")
    if kind.c_type == "f32":
        register = ir.op("add", "i64", ir.op("shl", "i64", register, "1"), parity)
    offset = ir.op("shl", "i64", ir.op("add", "i64", ir.op("shl", "i64", register, "5"), lane), "2")
    element = "i32"
    if kind.c_type == "f16":
        element, offset = "i16", ir.op("add", "i64", offset, ir.op("shl", "i64", parity, "1"))
    first_c = ir.cast("zext", element, ir.load(element, "%c", offset, align=2), "i64")
    ir.line("br label %step")

    ir.label("step")
    ir.line("%start = phi i64 [ 0, %element ], [ %stop, %step.end ]")
    ir.line(f"%c.bits = phi i64 [ {first_c}, %element ], [ %result, %step.end ]")
    ir.line(f"%stop = add i64 %start, {rule.step_k}")
    c_significand, c_exponent, c_class = _decoded(ir, f"{name}.{kind.c_type}", "%c.bits")
    ir.line("br label %first")

    # First pass: the largest exponent, and the class of the exact sum.
    ir.label("first")
    ir.line("%k = phi i64 [ %start, %step ], [ %k.next, %first ]")
    ir.line(f"%largest = phi i64 [ {c_exponent}, %step ], [ %largest.next, %first ]")
    ir.line(f"%class = phi double [ {c_class}, %step ], [ %class.next, %first ]")
    _, a_exponent, a_class = _operand(ir, name, "%a", "%k", a_format)
    _, b_exponent, b_class = _operand(ir, name, "%b", "%k", b_format)
    bigger = ir.call("i64", "llvm.smax", "%largest", ir.op("add", "i64", a_exponent, b_exponent))
    ir.line(f"%largest.next = add i64 {bigger}, 0")
    ir.line(f"%class.next = fadd double %class, {ir.op('fmul', 'double', a_class, b_class)}")
    ir.line("%k.next = add i64 %k, 1")
    ir.line("%first.more = icmp ult i64 %k.next, %stop")
    ir.line("br i1 %first.more, label %first, label %align")

    ir.label("align")
    c_term = _aligned(ir, c_significand, c_exponent, "%largest.next", c_left)
    ir.line("br label %second")

    # Second pass: add the aligned, truncated terms.
    ir.label("second")
    ir.line("%k2 = phi i64 [ %start, %align ], [ %k2.next, %second ]")
    ir.line(f"%total = phi i64 [ {c_term}, %align ], [ %total.next, %second ]")
    a_significand, a_exponent, _ = _operand(ir, name, "%a", "%k2", a_format)
    b_significand, b_exponent, _ = _operand(ir, name, "%b", "%k2", b_format)
    product = ir.op("mul", "i64", a_significand, b_significand)
    exponent = ir.op("add", "i64", a_exponent, b_exponent)
    term = _aligned(ir, product, exponent, "%largest.next", product_left)
    ir.line(f"%total.next = add i64 %total, {term}")
    ir.line("%k2.next = add i64 %k2, 1")
    ir.line("%second.more = icmp ult i64 %k2.next, %stop")
    ir.line("br i1 %second.more, label %second, label %step.end")

    ir.label("step.end")
    ir.line(f"%result = add i64 {_encoded(ir, kind, rule)}, 0")
    ir.line(f"%step.more = icmp ult i64 %stop, {kind.k}")
    ir.line("br i1 %step.more, label %step, label %element.end")

    ir.label("element.end")
    ir.store(element, ir.cast("trunc", "i64", "%result", element), "%d", offset, align=2)
    ir.line("%index.next = add i64 %index, 1")
    ir.line("%more = icmp ult i64 %index.next, 128")
    ir.line("br i1 %more, label %element, label %done")
    ir.label("done")
    ir.line("ret void")


def _encoded(ir: IrText, kind: MmaKind, rule: FusedRule) -> str:
    """Bits of %total.next * 2^(%largest.next - F), or of the class %class.next if that is not finite."""
    fmt = FORMATS[kind.d_type]
    kept_bits = 10 if kind.d_type == "f16" else rule.result_bits
    infinity = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
    magnitude = ir.call("i64", "llvm.abs", "%total.next")
    exponent = ir.op("sub", "i64", "%largest.next", str(rule.fraction_bits))
    length = ir.op("sub", "i64", "64", ir.call("i64", "llvm.ctlz", magnitude))
    leading = ir.op("add", "i64", ir.op("add", "i64", exponent, length), "-1")
    leading = ir.call("i64", "llvm.smax", leading, str(fmt.min_exponent))
    # Widen first so that only right shifts remain: the sum has at most 33 bits, the widening adds 24.
    drop = ir.op("add", "i64", ir.op("sub", "i64", leading, exponent), str(24 - kept_bits))
    drop = ir.call("i64", "llvm.umin", drop, "62")
    wide = ir.op("shl", "i64", magnitude, "24")
    kept = ir.op("lshr", "i64", wide, drop)
    if kind.d_type == "f16":  # nearest even: add half, less one unit when the kept part is even
        half = ir.op("lshr", "i64", ir.op("shl", "i64", "1", drop), "1")
        odd = ir.op("and", "i64", kept, "1")
        below_half = ir.op("add", "i64", ir.op("sub", "i64", half, "1"), odd)
        kept = ir.op("lshr", "i64", ir.op("add", "i64", wide, below_half), drop)
    kept = ir.op("shl", "i64", kept, str(fmt.mantissa_bits - kept_bits))
    # A normal `kept` carries its leading one, which adds one to the exponent field; a denormal does not.
    field = ir.op("sub", "i64", leading, str(fmt.min_exponent))
    bits = ir.op("add", "i64", ir.op("shl", "i64", field, str(fmt.mantissa_bits)), kept)
    bits = ir.call("i64", "llvm.umin", bits, str(infinity))
    sign_bit = str(1 << (fmt.storage_bits - 1))
    negative = ir.op("icmp slt", "i64", "%total.next", "0")
    bits = ir.select("i64", ir.op("icmp eq", "i64", kept, "0"), "0", bits)
    bits = ir.op("or", "i64", bits, ir.select("i64", negative, sign_bit, "0"))
    for predicate, constant, pattern in (
        ("fcmp oeq", "0x7FF0000000000000", infinity),
        ("fcmp oeq", "0xFFF0000000000000", infinity | 1 << (fmt.storage_bits - 1)),
        ("fcmp uno", "0.0", (1 << (fmt.storage_bits - 1)) - 1),
    ):
        bits = ir.select("i64", ir.op(predicate, "double", "%class.next", constant), str(pattern), bits)
    return bits


__all__ = ["exact_function"]
