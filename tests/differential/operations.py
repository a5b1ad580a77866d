"""The operations of generated expressions: one row per operation, with the types it takes.

A row is (template, types of its operands); `{0}` is the first operand. No row has undefined behaviour for any operands:
arithmetic is unsigned and at least 32 bits wide, shifts are masked, conversions to integers go through `prelude.h`.
"""

INTEGERS = ("int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t")
FLOATS = ("float", "double")
NARROW = ("__half", "__nv_bfloat16")
TYPES = (*INTEGERS, *FLOATS, *NARROW)

Row = tuple[str, tuple[str, ...]]


def width(integer: str) -> int:
    """Bits of an integer type."""
    return int("".join(filter(str.isdigit, integer)))


def _integer_rows(own: str) -> list[Row]:
    bits = width(own)
    wide = "uint64_t" if bits == 64 else "uint32_t"
    unsigned = own if own.startswith("u") else f"u{own}"
    rows: list[Row] = [(f"({own})(({wide}){{0}} {op} ({wide}){{1}})", (own, own)) for op in "+-*&|^"]
    rows += [
        (f"({own})(~{{0}})", (own,)),
        (f"({own})(({wide})0 - ({wide}){{0}})", (own,)),
        (f"({own})(({wide}){{0}} << ({{1}} & {bits - 1}))", (own, "uint32_t")),
        (f"({own})(({unsigned}){{0}} >> ({{1}} & {bits - 1}))", (own, "uint32_t")),
        (f"({own})({{0}} >> ({{1}} & {bits - 1}))", (own, "uint32_t")),
        (f"quotient<{own}>({{0}}, {{1}})", (own, own)),
        (f"remainder_of<{own}>({{0}}, {{1}})", (own, own)),
        ("({0} < {1} ? {2} : {3})", (own, own, own, own)),
        (f"({own})(({wide}){{0}} * ({wide}){{1}} + ({wide}){{2}})", (own, own, own)),
        (f"({own})whole32({{0}})", ("float",)),
        (f"({own})whole64({{0}})", ("double",)),
        (f"({own})natural32({{0}})", ("float",)),
        (f"({own})natural64({{0}})", ("double",)),
        (f"({own})whole32({{0}})", ("__half",)),
        (f"({own})whole32({{0}})", ("__nv_bfloat16",)),
        (f"({own})bits({{0}})", ("float",)),
        (f"({own})bits({{0}})", ("__half",)),
    ]
    rows += [(f"({own}){{0}}", (other,)) for other in INTEGERS if other != own]
    return rows


def _float_rows(own: str, suffix: str) -> list[Row]:
    pair = (own, own)
    rows: list[Row] = [(f"({{0}} {op} {{1}})", pair) for op in "+-*/"]
    rows += [(f"{name}{suffix}({{0}})", (own,)) for name in ("sqrt", "fabs", "floor", "ceil", "trunc", "rint")]
    rows += [
        ("(-{0})", (own,)),
        (f"fma{suffix}({{0}}, {{1}}, {{2}})", (own, own, own)),
        ("lesser({0}, {1})", pair),
        ("greater({0}, {1})", pair),
        ("with_sign({0}, {1})", pair),
        ("({0} < {1} ? {2} : {3})", (own, own, own, own)),
        ("({0} * {1} + {2})", (own, own, own)),
    ]
    rows += [(f"({own}){{0}}", (other,)) for other in (*INTEGERS, *FLOATS) if other != own]
    rows += [(f"({own})__half2float({{0}})", ("__half",)), (f"({own})__bfloat162float({{0}})", ("__nv_bfloat16",))]
    return rows


def _narrow_rows(own: str, spelled: str) -> list[Row]:
    pair = (own, own)
    rows: list[Row] = [(f"{name}({{0}}, {{1}})", pair) for name in ("__hadd", "__hsub", "__hmul", "__hmin", "__hmax")]
    rows += [
        ("__hfma({0}, {1}, {2})", (own, own, own)),
        ("__hneg({0})", (own,)),
        ("__habs({0})", (own,)),
        ("(__hlt({0}, {1}) ? {2} : {3})", (own, own, own, own)),
        (f"__float2{spelled}_rn({{0}})", ("float",)),
        (f"__double2{spelled}({{0}})", ("double",)),
        (f"__int2{spelled}_rn({{0}})", ("int32_t",)),
        (f"__ushort_as_{spelled}({{0}})", ("uint16_t",)),
    ]
    return rows


ROWS: dict[str, list[Row]] = {
    **{own: _integer_rows(own) for own in INTEGERS},
    "float": _float_rows("float", "f"),
    "double": _float_rows("double", ""),
    "__half": _narrow_rows("__half", "half"),
    "__nv_bfloat16": _narrow_rows("__nv_bfloat16", "bfloat16"),
}
"""Result type → the operations that make one."""
ROWS["int32_t"] += [
    ("__clz({0})", ("int32_t",)), ("__clzll({0})", ("int64_t",)), ("__popc({0})", ("uint32_t",)),
    ("__popcll({0})", ("uint64_t",)), ("__ffs({0})", ("int32_t",)), ("__ffsll({0})", ("int64_t",)),
    ("__mulhi({0}, {1})", ("int32_t", "int32_t")), ("__hadd({0}, {1})", ("int32_t", "int32_t")),
    ("__float2int_rn((float)({0}) * 0.37f)", ("int16_t",)), ("__float2int_rd((float)({0}) * 0.37f)", ("int32_t",)),
    ("__double2int_ru((double)({0}) * 0.37)", ("int32_t",)),
]  # fmt: skip
ROWS["uint32_t"] += [
    ("__brev({0})", ("uint32_t",)), ("__umulhi({0}, {1})", ("uint32_t", "uint32_t")),
    ("__urhadd({0}, {1})", ("uint32_t", "uint32_t")),
    ("__usad({0}, {1}, {2})", ("uint32_t", "uint32_t", "uint32_t")),
    ("__funnelshift_l({0}, {1}, {2})", ("uint32_t", "uint32_t", "uint32_t")),
    ("__funnelshift_rc({0}, {1}, {2})", ("uint32_t", "uint32_t", "uint32_t")),
    ("__byte_perm({0}, {1}, {2})", ("uint32_t", "uint32_t", "uint16_t")),
]  # fmt: skip
ROWS["int64_t"] += [
    ("(int64_t)__mul64hi({0}, {1})", ("int64_t", "int64_t")),
    ("((int64_t){0} * (int64_t){1})", ("int32_t", "int32_t")),
]
ROWS["uint64_t"] += [
    ("(uint64_t)__umul64hi({0}, {1})", ("uint64_t", "uint64_t")),
    ("(uint64_t)__brevll({0})", ("uint64_t",)),
    ("((uint64_t){0} * (uint64_t){1})", ("uint32_t", "uint32_t")),
]
ROWS["float"] += [("__saturatef({0} + 0.5f)", ("float",)), ("__int_as_float({0})", ("int32_t",))]
ROWS["double"] += [("__longlong_as_double({0})", ("int64_t",))]

CONDITIONS: list[Row] = [
    *((f"({{0}} {op} {{1}})", (own, own)) for own in (*INTEGERS, *FLOATS) for op in ("<", "<=", "==", "!=", ">=")),
    *((f"{name}({{0}}, {{1}})", (own, own)) for own in NARROW for name in ("__hlt", "__hge", "__heq", "__hneu")),
    *(("(({0} & 3) == 1)", (own,)) for own in ("uint8_t", "int32_t", "uint64_t") for _ in range(6)),
    *(("({0} == {0})", (own,)) for own in FLOATS),
]

_FLOAT_LITERALS = ("0.0", "-0.0", "1.5", "-0.25", "3.0e5", "1e-3", "-7.0", "1e-40", "3e38", "0.1", "16777217.0")
_INTEGER_LITERALS = (0, 1, 2, 3, 7, 31, 100, -1, -2, -128, 127, 128, 255, 256, 32767, -32768, 65535, 0x55555555)


def literals(own: str) -> list[str]:
    """Constants of a type."""
    if own in INTEGERS:
        return [f"(({own}){value})" for value in _INTEGER_LITERALS]
    if own in FLOATS:
        return [f"(({own}){text})" for text in _FLOAT_LITERALS]
    spelled = "half" if own == "__half" else "bfloat16"
    raw = ("0x0000", "0x8000", "0x3c00", "0x3f80", "0x0001", "0x7bff", "0xc2a0", "0x4248")
    return [f"__ushort_as_{spelled}((uint16_t){value})" for value in raw]
