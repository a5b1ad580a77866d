"""The exact kinds: 8-bit integers into s32, and f64 as a chain of fused multiply-adds."""

from weft.vm.emit.ir_text import IrText, splat
from weft.vm.emit.tensorcore_operands import I32, load_accumulators, store_results, tile_columns
from weft.vm.mma_kind import MmaKind

PAIRS = "<32 x i16>"
PRODUCTS = "<32 x i32>"
F64 = "<8 x double>"


def _byte_pairs(ir: IrText, words: str, lanes: int, name: str) -> list[str]:
    """Words of 4 bytes -> i16 pairs (bytes 0 and 2) and (bytes 1 and 3), extended by the type's sign."""
    ty = f"<{2 * lanes} x i16>"
    halves = ir.cast("bitcast", f"<{lanes} x i32>", words, ty)
    shift = "ashr" if name == "s8" else "lshr"
    low = ir.op(shift, ty, ir.op("shl", ty, halves, splat("i16", 8)), splat("i16", 8))
    return [low, ir.op(shift, ty, halves, splat("i16", 8))]


def integer_body(ir: IrText, kind: MmaKind) -> None:
    """Pairs of products are added in i32 (vpmaddwd); a whole row of products stays below 2^21."""
    register_pairs = kind.k // 16
    columns = ir.alloca(64 * 8)
    b_pairs = ir.alloca(256 * register_pairs)
    load_accumulators(ir, kind, columns)
    for h in range(register_pairs):
        words = ir.load("<32 x i32>", "%b", 128 * h, align=64)
        for s, pairs in enumerate(_byte_pairs(ir, words, 32, kind.b_type)):
            ir.store("<64 x i16>", pairs, b_pairs, 256 * h + 128 * s, align=64)
    sums = [""] * 8
    for h in range(register_pairs):
        for t, words in enumerate(tile_columns(ir, "%a", 2 * h, 2 * h + 1)):
            for s, pairs in enumerate(_byte_pairs(ir, words, 16, kind.a_type)):
                wide_a = ir.cast("sext", PAIRS, pairs, PRODUCTS)
                for n in range(8):
                    b_word = ir.load("i32", b_pairs, 256 * h + 128 * s + 16 * n + 4 * t, align=4)
                    b = ir.cast("bitcast", I32, ir.broadcast("i32", b_word, 16), PAIRS)
                    product = ir.op("mul", PRODUCTS, wide_a, ir.cast("sext", PAIRS, b, PRODUCTS))
                    even = ir.pick(PRODUCTS, product, range(0, 32, 2))
                    odd = ir.pick(PRODUCTS, product, range(1, 32, 2))
                    dot = ir.op("add", I32, even, odd)
                    sums[n] = ir.op("add", I32, sums[n], dot) if sums[n] else dot
    for n, value in enumerate(sums):
        c = ir.load(I32, columns, 64 * n, align=64)
        total = ir.call(I32, "llvm.sadd.sat", c, value) if kind.satfinite else ir.op("add", I32, c, value)
        ir.store(I32, total, columns, 64 * n, align=64)
    store_results(ir, kind, columns)


def f64_body(ir: IrText, kind: MmaKind) -> None:
    """m8n8k4: a lane of the vectors is a row; registers are 32 x i64, lane 4 g + t."""
    a = ir.load("<32 x double>", "%a", align=64)
    c = [ir.load("<32 x double>", "%c", 256 * i, align=64) for i in range(2)]
    a_columns = [ir.pick("<32 x double>", a, range(k, 32, 4)) for k in range(kind.k)]
    results = [["", "", "", ""], ["", "", "", ""]]
    for n in range(8):
        value = ir.pick("<32 x double>", c[n % 2], range(n // 2, 32, 4))
        for k in range(kind.k):
            b = ir.broadcast("double", ir.load("double", "%b", 8 * (4 * n + k), align=8), 8)
            value = ir.call(F64, "llvm.fma", a_columns[k], b, value)
        is_nan = ir.op("fcmp uno", F64, value, value)
        results[n % 2][n // 2] = ir.select(F64, is_nan, splat("double", "0xFFF8000000000000"), value)
    for i, parts in enumerate(results):
        low, high = (ir.shuffle(F64, x, y, range(16)) for x, y in (parts[:2], parts[2:]))
        order = [8 * t + row for row in range(8) for t in range(4)]
        ir.store("<32 x double>", ir.shuffle("<16 x double>", low, high, order), "%d", 256 * i, align=64)


__all__ = ["f64_body", "integer_body"]
