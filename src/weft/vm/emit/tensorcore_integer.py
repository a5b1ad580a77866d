"""The exact kinds: 8-bit integers into s32, and f64 as a chain of fused multiply-adds."""

from contextlib import AbstractContextManager
from math import nan

from weft.vm.emit.tensorcore_operands import (
    I16,
    I32,
    a_registers,
    for_four_columns,
    load_a,
    load_accumulators,
    load_b,
    multiply_words,
    pick,
    store_results,
)
from weft.vm.emit.tensorcore_sets import Set
from weft.vm.ir import Builder, Value, const, lanes_of, vec
from weft.vm.mma_kind import MmaKind

PRODUCTS = vec("i32", 32)
F64 = vec("double", 8)


def _byte_pairs(b: Builder, words: Value, name: str) -> list[Value]:
    """Words of 4 bytes -> words of two i16, bytes 0 and 2, and bytes 1 and 3, extended by the type's sign."""
    halves = b.cast("bitcast", words, vec("i16", 2 * lanes_of(words.ty)))
    shift, eight = "ashr" if name == "s8" else "lshr", const(halves.ty, 8)
    pairs = b.op(shift, b.op("shl", halves, eight), eight), b.op(shift, halves, eight)
    return [b.cast("bitcast", value, words.ty) for value in pairs]


def integer_body(b: Builder, kind: MmaKind, sets: AbstractContextManager[Set]) -> None:
    """Pairs of products are added in i32 (vpmaddwd); a whole row of products stays below 2^21."""
    words = kind.k // 4
    a_pairs = b.alloca(f"[{512 * words} x i8]")
    b_pairs = b.alloca(f"[{64 * words} x i8]")
    for h, top in a_registers(kind):
        for half, value in enumerate(load_a(b, b.param("a"), h, top)):
            for s, pairs in enumerate(_byte_pairs(b, value, kind.a_type)):
                for t in range(4):
                    at = 256 * (2 * (4 * h + t) + s) + 64 * (2 * top + half)
                    b.store(for_four_columns(b, pairs, t), b.offset(a_pairs, at), align=64)

    def add(x: Value, y: Value, total: Value) -> Value:
        wide = [b.cast("sext", b.cast("bitcast", value, I16), PRODUCTS) for value in (x, y)]
        product = b.op("mul", *wide)
        return b.op("add", total, b.op("add", pick(b, product, range(0, 32, 2)), pick(b, product, range(1, 32, 2))))

    with sets as here:
        for h in range(words // 4):
            for s, pairs in enumerate(_byte_pairs(b, load_b(b, here.b, h), kind.b_type)):
                b.store(pairs, b.offset(b_pairs, 128 * (2 * h + s)), align=64)
        zeros = [const(I32, 0)] * 8
        sums = multiply_words(b, a_pairs, [b_pairs], I32, zeros, words=words, per_word=2, add=add)
        accumulators = load_accumulators(b, kind, here.c, count=8)
        results = []
        for c, value in zip(accumulators, sums, strict=True):
            results.append(b.intrinsic("sadd.sat", I32, [c, value]) if kind.satfinite else b.op("add", c, value))
        store_results(b, kind, results, here.d)


def f64_body(b: Builder, kind: MmaKind, sets: AbstractContextManager[Set]) -> None:
    """m8n8k4: a lane of the vectors is a row; registers are 32 x i64, lane 4 g + t."""
    a = b.load(vec("double"), b.param("a"), align=64)
    a_columns = [pick(b, a, range(k, 32, 4)) for k in range(kind.k)]
    with sets as here:
        c = [b.load(vec("double"), b.offset(here.c, 256 * i), align=64) for i in range(2)]
        results: list[list[Value]] = [[], []]
        for n in range(8):
            value = pick(b, c[n % 2], range(n // 2, 32, 4))
            for k in range(kind.k):
                factor = b.splat(b.load("double", b.offset(here.b, 8 * (4 * n + k)), align=8), 8)
                value = b.intrinsic("fma", F64, [a_columns[k], factor, value])
            is_nan = b.fcmp("uno", value, value)
            results[n % 2].append(b.select(is_nan, const(F64, -nan), value))
        for i, parts in enumerate(results):
            low, high = b.shuffle(parts[0], parts[1], range(16)), b.shuffle(parts[2], parts[3], range(16))
            order = [8 * t + row for row in range(8) for t in range(4)]
            b.store(b.shuffle(low, high, order), b.offset(here.d, 256 * i), align=64)


__all__ = ["f64_body", "integer_body"]
