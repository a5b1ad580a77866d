"""How a warp waits by a test in a loop (`ptx/passes/give_way.py`): it lets others run, and then tests again."""

from ..context import WARP_MISSING, WARP_POLLED, WARP_REPEATS, WARP_SLICE
from ..ir import Builder, Value, const
from .shape import put


def give_way(b: Builder, awaited: int, first: Value, second: Value) -> None:
    """End the warp's turn; a deadlock tells what it awaits (POOL, CLUSTER or GROUP) and two numbers (i32) of it."""
    warp = b.param("warp")
    wide = [b.cast("zext", value, "i64") for value in (first, second)]
    put(b, warp, WARP_MISSING, b.op("or", b.op("shl", wide[0], const("i64", 32)), wide[1]))
    put(b, warp, WARP_SLICE, const("i64", 0))
    put(b, warp, WARP_POLLED, const("i32", awaited))
    put(b, warp, WARP_REPEATS, const("i32", 1))
