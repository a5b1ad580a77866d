"""Helper functions for runtime functions in LLVM IR: record fields, variables, loops, reports."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ..context import (
    GRID_STOP,
    REPORT_BYTES,
    WARP_CTAID,
    WARP_HOME,
    WARP_ID,
    WORKER_BUDGET,
    WORKER_CTA,
    WORKER_GRID,
    WORKER_REPORT_CAPACITY,
    WORKER_REPORT_COUNT,
    WORKER_REPORTS,
    WORKER_STOPS_AT,
    Field,
)
from ..ir import LANES, Builder, Value, const, vec, vector

ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'
"""Without these LLVM splits 512-bit vectors on CPUs that it expects to reduce their clock."""
PREFIX = "weft."
LANE_NUMBERS = vector("i32", range(LANES))


def function(name: str, result: str, params: Sequence[tuple[str, str]]) -> Builder:
    """Return a runtime function; `name` may have dots."""
    return Builder(symbol(name), result, params, ATTRIBUTES)


def symbol(name: str) -> str:
    """Return the linker's name of a runtime function."""
    return PREFIX + name


def transposed(b: Builder, halves: Value) -> Value:
    """Return the 8 x 8 halves of a register with rows and columns exchanged."""
    return b.shuffle(halves, None, [8 * (i % 8) + i // 8 for i in range(64)])


def joined(b: Builder, parts: list[Value]) -> Value:
    """Return vectors of one type, end to end (a power of two of them)."""
    while len(parts) > 1:
        width = 2 * int(parts[0].ty[1 : parts[0].ty.index(" ")])
        parts = [b.shuffle(parts[i], parts[i + 1], list(range(width))) for i in range(0, len(parts), 2)]
    return parts[0]


def get(b: Builder, record: Value, field: Field, index: int = 0, ty: str | None = None) -> Value:
    """Load a member of a record (element `index` of an array member)."""
    kind = ty or field.ty
    size = 8 if kind in ("ptr", "i64") else 4
    return b.load(kind, b.offset(record, field.at + index * size), align=4)


def put(b: Builder, record: Value, field: Field, value: Value, index: int = 0) -> None:
    """Store a member of a record."""
    size = 8 if value.ty in ("ptr", "i64") else 4
    b.store(value, b.offset(record, field.at + index * size), align=4)


class Variable:
    """A mutable local of the function being built."""

    def __init__(self, b: Builder, value: Value) -> None:
        self.b, self.ty = b, value.ty
        self.slot = b.alloca(value.ty)
        self.set(value)

    def get(self) -> Value:
        return self.b.load(self.ty, self.slot, align=4)

    def set(self, value: Value) -> None:
        self.b.store(value, self.slot, align=4)


@contextmanager
def when(b: Builder, condition: Value, *, likely: bool | None = None) -> Iterator[None]:
    """Write `if (condition) { … }`."""
    then, after = b.label("then"), b.label("after")
    b.cbr(condition, then, after, likely=likely)
    b.place(then)
    yield
    if not b.closed:
        b.br(after)
    b.place(after)


@contextmanager
def loop(b: Builder, condition: Callable[[], Value]) -> Iterator[str]:
    """Write `while (condition()) { … }`; yields the label after the loop."""
    head, body, after = b.label("head"), b.label("body"), b.label("after")
    b.place(head)
    b.cbr(condition(), body, after)
    b.place(body)
    yield after
    if not b.closed:
        b.br(head)
    b.place(after)


@contextmanager
def each_lane(b: Builder, mask: Value) -> Iterator[Value]:
    """Run the body once per set bit of an i32 mask, lowest lane first; yields the lane number."""
    rest = Variable(b, mask)
    with loop(b, lambda: b.icmp("ne", rest.get(), const("i32", 0))):
        now = rest.get()
        lane = b.intrinsic("cttz", "i32", [now, const("i1", 1)])
        rest.set(b.op("and", now, b.op("sub", now, const("i32", 1))))
        yield lane


def count_range(b: Builder, count: Value) -> AbstractContextManager[Value]:
    """Write `for (i = 0; i < count; ++i)`; yields i."""

    @contextmanager
    def run() -> Iterator[Value]:
        i = Variable(b, const(count.ty, 0))
        with loop(b, lambda: b.icmp("ult", i.get(), count)):
            now = i.get()
            yield now
            i.set(b.op("add", now, const(count.ty, 1)))

    return run()


def bits(b: Builder, predicate: Value) -> Value:
    """Return <32 x i1> as an i32 mask."""
    return b.cast("bitcast", predicate, "i32")


def unbits(b: Builder, mask: Value) -> Value:
    """Return an i32 mask as <32 x i1>."""
    return b.cast("bitcast", mask, vec("i1"))


REPORT = "report"
REPORT_PARAMS = (("ptr", "warp"), ("i32", "code"), ("i32", "site"), ("i32", "lanes"), ("i64", "address"))


def report(b: Builder, code: int, lanes: Value, address: Value) -> None:
    """Make a report; the function being built has parameters `warp` and `site`."""
    b.call(symbol(REPORT), "void", [b.param("warp"), const("i32", code), b.param("site"), lanes, address])


def build_report() -> Builder:
    """Append one record to the worker's reports; beyond the capacity they are only counted.

    At the report that stops the launch, no loop iterations are left and no other CTA starts.
    """
    b = function(REPORT, "void", REPORT_PARAMS)
    warp = b.param("warp")
    worker = get(b, warp, WARP_HOME)
    count = get(b, worker, WORKER_REPORT_COUNT)
    put(b, worker, WORKER_REPORT_COUNT, b.op("add", count, const("i32", 1)))
    with when(b, b.icmp("ult", count, get(b, worker, WORKER_REPORT_CAPACITY))):
        wide = b.cast("zext", count, "i64")
        record = b.offset(get(b, worker, WORKER_REPORTS), b.op("mul", wide, const("i64", REPORT_BYTES)))
        for at, value in (
            (0, b.param("code")),
            (4, b.param("site")),
            (8, b.param("lanes")),
            (12, get(b, warp, WARP_ID)),
            (16, b.param("address")),
            (24, get(b, worker, WORKER_CTA)),
            (28, get(b, warp, WARP_CTAID)),
        ):
            b.store(value, b.offset(record, at), align=4)
    now = get(b, worker, WORKER_REPORT_COUNT)
    with when(b, b.icmp("eq", now, get(b, worker, WORKER_STOPS_AT)), likely=False):
        b.store(const("i64", 0), get(b, worker, WORKER_BUDGET), align=8)
        put(b, get(b, worker, WORKER_GRID), GRID_STOP, const("i32", 1))
    b.ret()
    return b
