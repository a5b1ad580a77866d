"""Chapter → opcode → the function that writes it. Mirrors `weft.ptx.isa`."""

from collections.abc import Callable, Mapping
from typing import Any

from weft.ptx.module import Instruction

from . import bits, compare, control, convert, floating, half, integer, matrix, mbarrier, memory, sync

EMIT: Mapping[str, Mapping[str, Callable[[Any, Instruction], None]]] = {
    "integer": integer.EMIT,
    "bits": bits.EMIT,
    "floating": floating.EMIT,
    "half": half.EMIT,
    "compare": compare.EMIT,
    "convert": convert.EMIT,
    "memory": memory.EMIT,
    "control": control.EMIT,
    "sync": sync.EMIT,
    "mbarrier": mbarrier.EMIT,
    "matrix": matrix.EMIT,
}
