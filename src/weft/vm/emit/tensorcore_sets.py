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
    with repeat(b, count) as number:
        yield Set(
            number,
            scaled(b, b.param("d"), number, operand_bytes(kind.m, kind.n, kind.d_type)),
            scaled(b, b.param("b"), number, operand_bytes(kind.k, kind.n, kind.b_type)),
            scaled(b, b.param("c"), number, operand_bytes(kind.m, kind.n, kind.c_type)),
        )


__all__ = ["Set", "each_set", "operand_bytes"]
