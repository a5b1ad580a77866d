"""LLVM IR of the tensor-core instructions: one out-of-line function per kind, mode and architecture.

    void @NAME(ptr d, ptr a, ptr b, ptr c)

Each pointer names consecutive warp registers (32 x i32 each, f64: 32 x i64, 64-byte aligned); d may be c.
The meaning is that of weft.vm.reference.tensorcore. The work is laid out for 16-lane vectors: a lane is a row
of A, b is broadcast from memory, one vector holds one column of C. `hardware` mode computes, per column
and step,
    E = max exponent, S = sum over k of trunc(a b 2^(F - E)) + trunc(c 2^(F - E)), d = round(S) 2^(E - F)
in f32 and i32, where every product and scaling is exact. Tiles this cannot do (infinity, NaN, exponents
near the ends of f32's range) are found by a few running vector tests and go to a scalar integer loop
(tensorcore_exact.py).
"""

from weft.core.errors import UsageError
from weft.vm.emit.ir_text import IrText, function, splat
from weft.vm.emit.tensorcore_exact import exact_function
from weft.vm.emit.tensorcore_integer import f64_body, integer_body
from weft.vm.emit.tensorcore_operands import (
    F32,
    I32,
    OperandCode,
    Operands,
    any_lane,
    load_accumulators,
    store_results,
)
from weft.vm.mma_kind import FusedRule, MmaKind, check_kind, fused_rule

PARAMETERS = "ptr %d, ptr %a, ptr %b, ptr %c"
# Without these two attributes LLVM prefers 256-bit vectors on CPUs that have 512-bit ones.
ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'
EXPONENT_MASK = 0x7F800000
LOWEST = 127 - 90  # biased; a larger E is kept: below it 2^(F - E) nears the end of f32's range
HIGHEST = 127 + 125  # biased; from here on a b may overflow f32


def tensorcore_ir(kind: MmaKind, mode: str, arch: str) -> tuple[str, str]:
    """The function's name and the text of an LLVM module that defines it."""
    check_kind(kind)
    if mode not in ("hardware", "ieee"):
        raise UsageError(f"tensor-core mode {mode!r}; use 'hardware' or 'ieee'")
    name = f"weft.mma.{kind.label}"
    ir = IrText()
    ir.label("entry")
    functions: list[str] = []
    declarations: dict[str, str] = {}
    if kind.is_integer:
        integer_body(ir, kind)
    elif kind.a_type == "f64":
        f64_body(ir, kind)
    elif mode == "ieee":
        name += ".ieee"
        _ieee_body(ir, kind)
    else:
        name += f".{arch}"
        rule = fused_rule(kind, arch)
        text, declarations = exact_function(f"{name}.exact", kind, rule)
        functions.append(text)
        if _sums_fit_i32(rule):
            _fused_body(ir, kind, rule, f"{name}.exact")
        else:
            ir.line(f"call void @{name}.exact(ptr %d, ptr %a, ptr %b, ptr %c)")
    ir.line("ret void")
    functions.append(function(f"void @{name}({PARAMETERS})", ir.lines, attributes=ATTRIBUTES))
    declarations = {**declarations, **ir.declarations}
    return name, "\n".join([*(declarations[x] for x in sorted(declarations)), "", *functions])


def _sums_fit_i32(rule: FusedRule) -> bool:
    return rule.step_k * (4 << rule.fraction_bits) + (2 << rule.fraction_bits) < 1 << 31


def _ieee_body(ir: IrText, kind: MmaKind) -> None:
    code = OperandCode(kind, exponents=False)
    columns = ir.alloca(64 * 8)
    operands = code.decode(ir)
    load_accumulators(ir, kind, columns)
    first = [ir.load(F32, columns, 64 * n, align=64) for n in range(8)]
    # A loop over words of B: its moving address keeps b in memory, where a broadcast is free; unrolled, LLVM
    # would keep b in registers and spend a shuffle on every broadcast.
    ir.line("br label %words")
    ir.label("words")
    words = kind.k // code.per_word
    ir.line("%word = phi i64 [ 0, %entry ], [ %word.next, %words ]")
    for n in range(8):
        ir.line(f"%acc{n} = phi {F32} [ {first[n]}, %entry ], [ %acc{n}.next, %words ]")
    a_base = ir.address(operands.a_floats, ir.op("mul", "i64", "%word", str(64 * code.per_word)))
    pair = ir.op("mul", "i64", ir.op("lshr", "i64", "%word", "2"), str(128 * code.per_word))
    column = ir.op("shl", "i64", ir.op("and", "i64", "%word", "3"), "2")
    b_base = ir.address(operands.b_floats, ir.op("add", "i64", pair, column))
    accumulators = [f"%acc{n}" for n in range(8)]
    for j in range(code.per_word):
        a = ir.load(F32, a_base, 64 * j, align=64)
        for n in range(8):
            b = _broadcast(ir, "float", b_base, 128 * j + 16 * n)
            accumulators[n] = ir.call(F32, "llvm.fma", a, b, accumulators[n])
    for n in range(8):
        ir.line(f"%acc{n}.next = select i1 true, {F32} {accumulators[n]}, {F32} poison")
    ir.line("%word.next = add i64 %word, 1")
    ir.line(f"%again = icmp ult i64 %word.next, {words}")
    ir.line("br i1 %again, label %words, label %store")
    ir.label("store")
    accumulators = [f"%acc{n}.next" for n in range(8)]
    for n, value in enumerate(accumulators):
        is_nan = ir.op("fcmp uno", F32, value, value)
        if kind.d_type == "f16":
            half = ir.cast("fptrunc", F32, value, "<16 x half>")
            bits = ir.cast("zext", "<16 x i16>", ir.cast("bitcast", "<16 x half>", half, "<16 x i16>"), I32)
        else:
            bits = ir.cast("bitcast", F32, value, I32)
        canonical = 0x7FFF if kind.d_type == "f16" else 0x7FFFFFFF
        ir.store(I32, ir.select(I32, is_nan, splat("i32", canonical), bits), columns, 64 * n, align=64)
    store_results(ir, kind, columns)


def _broadcast(ir: IrText, element: str, base: str, offset: int) -> str:
    return ir.broadcast(element, ir.load(element, base, offset, align=4), 16)


def _fused_body(ir: IrText, kind: MmaKind, rule: FusedRule, exact_name: str) -> None:
    """A loop over groups of columns whose exponents share a word, then the choice of the path."""
    code = OperandCode(kind, exponents=True)
    columns = ir.alloca(64 * 8)
    operands = code.decode(ir)
    load_accumulators(ir, kind, columns)
    per_group = code.columns_per_word
    ir.line("br label %columns")
    ir.label("columns")
    ir.line("%group = phi i64 [ 0, %entry ], [ %group.next, %columns ]")
    # Running tests: the largest and smallest E, the smallest non-zero accumulator (2|c| - 1 as an integer).
    ones = splat("i32", -1)
    for name, initial in (("largest", "zeroinitializer"), ("smallest", ones), ("smallest.c", ones)):
        ir.line(f"%{name} = phi {I32} [ {initial}, %entry ], [ %{name}.next, %columns ]")
    largest, smallest, smallest_c = "%largest", "%smallest", "%smallest.c"
    here = Operands(
        a_floats=operands.a_floats,
        b_floats=ir.address(operands.b_floats, ir.op("mul", "i64", "%group", str(16 * per_group))),
        a_exponents=operands.a_exponents,
        b_exponents=ir.address(operands.b_exponents, ir.op("mul", "i64", "%group", "16")),
    )
    base = ir.address(columns, ir.op("mul", "i64", "%group", str(64 * per_group)))
    values = [ir.load(I32, base, 64 * n, align=64) for n in range(per_group)]
    for start in range(0, kind.k, rule.step_k):
        step = range(start, start + rule.step_k)
        packed = _packed_largest_exponents(ir, code, here, step)
        for n in range(per_group):
            if kind.c_type == "f32" and (start == 0 or not code.narrow):
                doubled = ir.op("shl", I32, values[n], splat("i32", 1))
                smallest_c = _umin(ir, smallest_c, ir.op("add", I32, doubled, splat("i32", -1)))
            exponent = _step_exponent(ir, code, packed, n, values[n])
            largest = ir.call(I32, "llvm.umax", largest, exponent)
            if not code.narrow:
                smallest = _umin(ir, smallest, exponent)
            total = _aligned_sum(ir, code, here, n, values[n], exponent, step, rule)
            values[n] = _rounded(ir, kind, rule, total, exponent)
    for n in range(per_group):
        bits = values[n]
        if kind.d_type == "f16":
            half = ir.cast("fptrunc", F32, ir.cast("bitcast", I32, bits, F32), "<16 x half>")
            bits = ir.cast("zext", "<16 x i16>", ir.cast("bitcast", "<16 x half>", half, "<16 x i16>"), I32)
        ir.store(I32, bits, base, 64 * n, align=64)
    for name, value in (("largest", largest), ("smallest", smallest), ("smallest.c", smallest_c)):
        ir.line(f"%{name}.next = or {I32} {value}, zeroinitializer")
    ir.line("%group.next = add i64 %group, 1")
    ir.line(f"%again = icmp ult i64 %group.next, {8 // per_group}")
    ir.line("br i1 %again, label %columns, label %choose")
    ir.label("choose")
    hit = _needs_exact(ir, code, operands)
    ir.line(f"br i1 {hit}, label %exact, label %fast")
    ir.label("exact")
    ir.line(f"call void @{exact_name}(ptr %d, ptr %a, ptr %b, ptr %c)")
    ir.line("ret void")
    ir.label("fast")
    store_results(ir, kind, columns)


def _needs_exact(ir: IrText, code: OperandCode, operands: Operands) -> str:
    """The running tests of the column loop and of the operands, as one i1."""
    too_high = ir.op("icmp uge", I32, "%largest.next", splat("i32", HIGHEST << 23))
    tests = [*operands.tests, any_lane(ir, too_high, I32)]
    if code.kind.c_type == "f32":
        below = ir.op("icmp ult", I32, "%smallest.c.next", splat("i32", (LOWEST << 24) - 1))
        tests.append(any_lane(ir, below, I32))
    if not code.narrow:
        # E at the lower clamp is harmless if every term is zero, which is certain without tiny operands.
        clamped = any_lane(ir, ir.op("icmp ule", I32, "%smallest.next", splat("i32", LOWEST << 23)), I32)
        tiny = ir.op("or", "i1", operands.tiny[0], operands.tiny[1])
        tests.append(ir.op("and", "i1", clamped, tiny))
    hit = tests[0]
    for test in tests[1:]:
        hit = ir.op("or", "i1", hit, test)
    return hit


def _umin(ir: IrText, left: str, right: str) -> str:
    return ir.call(I32, "llvm.umin", left, right)


def _packed_largest_exponents(ir: IrText, code: OperandCode, here: Operands, step: range) -> str:
    """Words of biased max over k of e_a + e_b, one field per column of the group, never below LOWEST."""
    lanes, element = (64, "i8") if code.narrow else (32, "i16")
    ty = f"<{lanes} x {element}>"
    bias = 0 if code.narrow else 127  # 8-bit sums are true exponents: only those fit a signed byte
    largest = splat(element, LOWEST - 127 + bias)
    for k in step:
        a = ir.load(ty, here.a_exponents, 64 * k, align=64)
        b = ir.cast("bitcast", I32, _broadcast(ir, "i32", here.b_exponents, code.b_exponent_offset(k)), ty)
        # Saturation keeps zero times zero (-252) in a byte; nothing below -126 can be the maximum.
        both = ir.call(ty, "llvm.sadd.sat", a, b) if code.narrow else ir.op("add", ty, a, b)
        largest = ir.call(ty, "llvm.smax", largest, both)
    if code.narrow:
        largest = ir.op("add", ty, largest, splat("i8", 127))
    else:
        largest = ir.call(ty, "llvm.smin", largest, splat("i16", HIGHEST + 1))
    return ir.cast("bitcast", ty, largest, I32)


def _step_exponent(ir: IrText, code: OperandCode, packed: str, n: int, c: str) -> str:
    """E of column n with c included, as the bits of 2^E."""
    left = 23 - (8 if code.narrow else 16) * n
    shifted = ir.op("shl" if left >= 0 else "lshr", I32, packed, splat("i32", abs(left)))
    products = ir.op("and", I32, shifted, splat("i32", EXPONENT_MASK))
    exponent = ir.op("and", I32, c, splat("i32", EXPONENT_MASK))
    if code.kind.c_type == "f16":  # an f16 denormal counts with -14, a zero not at all
        floor = ir.call(I32, "llvm.umax", exponent, splat("i32", (127 - 14) << 23))
        is_zero = ir.op("icmp eq", I32, exponent, "zeroinitializer")
        exponent = ir.select(I32, is_zero, "zeroinitializer", floor)
    return ir.call(I32, "llvm.umax", exponent, products)


def _aligned_sum(
    ir: IrText, code: OperandCode, here: Operands, n: int, c: str, exponent: str, step: range, rule: FusedRule
) -> str:
    """S: every term times 2^(F - E), truncated toward zero, added as integers."""
    bits = ir.op("sub", I32, splat("i32", (254 + rule.fraction_bits) << 23), exponent)
    scale = ir.cast("bitcast", I32, bits, F32)
    total = ir.cast("fptosi", F32, ir.op("fmul", F32, ir.cast("bitcast", I32, c, F32), scale), I32)
    for k in step:
        a = ir.load(F32, here.a_floats, 64 * k, align=64)
        b = _broadcast(ir, "float", here.b_floats, code.b_float_offset(k) + 16 * n)
        term = ir.op("fmul", F32, ir.op("fmul", F32, a, b), scale)
        total = ir.op("add", I32, total, ir.cast("fptosi", F32, term, I32))
    return total


def _rounded(ir: IrText, kind: MmaKind, rule: FusedRule, total: str, exponent: str) -> str:
    """S 2^(E - F) as f32 bits: truncated to the result's bits; f16 is rounded to nearest even and widened."""
    value = ir.cast("sitofp", I32, total, F32)
    bits = ir.cast("bitcast", F32, value, I32)
    if rule.fraction_bits > 13:  # the integer may have more than 24 bits: the conversion rounded to nearest
        back = ir.cast("fptosi", F32, value, I32)
        sizes = [ir.call(I32, "llvm.abs", x) for x in (back, total)]
        too_large = ir.op("icmp ugt", I32, sizes[0], sizes[1])
        less = ir.op("add", I32, bits, splat("i32", -1))  # one unit smaller in magnitude, for either sign
        bits = ir.select(I32, too_large, less, bits)
        if kind.d_type == "f16":  # round to odd: the dropped bits stay visible to the second rounding
            inexact = ir.op("icmp ne", I32, back, total)
            bits = ir.op("or", I32, bits, ir.cast("zext", "<16 x i1>", inexact, I32))
    elif kind.d_type == "f32":
        bits = ir.op("and", I32, bits, splat("i32", -(1 << (23 - rule.result_bits))))
    unit = ir.op("sub", I32, exponent, splat("i32", rule.fraction_bits << 23))
    result = ir.op("fmul", F32, ir.cast("bitcast", I32, bits, F32), ir.cast("bitcast", I32, unit, F32))
    if kind.d_type == "f16":
        result = ir.cast("fpext", "<16 x half>", ir.cast("fptrunc", F32, result, "<16 x half>"), F32)
    return ir.cast("bitcast", F32, result, I32)


__all__ = ["MmaKind", "tensorcore_ir"]
