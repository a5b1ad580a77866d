"""A tensor-core function does `count` instructions that share A: B, C and D hold one operand set after the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.vm.emit.tensorcore_operands import repeat, scaled
from weft.vm.ir import Builder, Value
from weft.vm.mma_kind import FORMATS, MmaKind


@dataclass(frozen=True)
class Set:
    """One instruction's operands."""

    number: Value
    d: Value
    b: Value
    c: Value


def operand_bytes(rows: int, columns: int, type_name: str) -> int:
    """Size of a matrix in registers; they hold it without gaps."""
    bits = FORMATS[type_name].storage_bits if type_name in FORMATS else int(type_name[1:])
    return rows * columns * bits // 8


@contextmanager
def each_set(b: Builder, kind: MmaKind, count: int) -> Iterator[Set]:
    """The loop over the operand sets; what comes before it is done once, for the shared A."""
    with each_sets(b, kind, count, 1) as sets:
        yield sets[0]


@contextmanager
def each_sets(b: Builder, kind: MmaKind, count: int, together: int) -> Iterator[list[Set]]:
    """`each_set` with so many sets in a turn."""
    sizes = {
        "d": operand_bytes(kind.m, kind.n, kind.d_type),
        "b": operand_bytes(kind.k, kind.n, kind.b_type),
        "c": operand_bytes(kind.m, kind.n, kind.c_type),
    }
    with repeat(b, count // together) as number:
        first = {name: scaled(b, b.param(name), number, together * size) for name, size in sizes.items()}
        yield [
            Set(number, **{name: b.offset(first[name], place * size) for name, size in sizes.items()})
            for place in range(together)
        ]


__all__ = ["Set", "each_set", "each_sets", "operand_bytes"]
