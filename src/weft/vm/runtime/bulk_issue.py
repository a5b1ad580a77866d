"""Queues bulk and tensor copies: reads tensor maps, checks addresses, alignment and bounds (`runtime/bulk.py`)."""

from dataclasses import dataclass

from weft.core.errors import Unsupported

from ..context import (
    BAD_MAP,
    BAD_SIZE,
    BULK_AT_ISSUE,
    COPY_QUEUE_FULL,
    MISALIGNED,
    OUT_OF_BOUNDS,
    WARP_BULK_GROUP,
    WARP_GLOBAL,
    WARP_ID,
    WARP_PARAM_BYTES,
    WARP_PARAMS,
    WARP_WORKER,
    WORKER_BULK_CAPACITY,
    WORKER_BULK_COUNT,
    WORKER_BULK_WHEN,
)
from ..ir import LANES, Builder, Value, const, vec
from ..memory import GLOBAL_BASE, PARAM_BASE, SHARED_BASE, SHARED_START, WINDOW_BYTES
from ..tensor_map import (
    ADDRESS_ALIGN,
    BOX_ALIGN,
    BYTES,
    ELEMENT_BYTES,
    FIELDS,
    FILL_NAN,
    FLOATS,
    MAP_ALIGN,
    MOST_BOX,
    MOST_STEP,
    REDUCTIONS,
    REFUSED_TYPES,
    STRIDE_BITS,
    TYPES,
)
from .bounds import object_at, piece_at
from .bulk_record import (
    DIMS,
    ENTRY_AT,
    ENTRY_BYTES,
    ENTRY_COUNT,
    ENTRY_DIM,
    ENTRY_FILL,
    ENTRY_GATHERS,
    ENTRY_GROUP,
    ENTRY_ITEM,
    ENTRY_LANE,
    ENTRY_MBARRIER,
    ENTRY_MOVE,
    ENTRY_ORIGIN,
    ENTRY_ROWS,
    ENTRY_SHARED,
    ENTRY_SITE,
    ENTRY_SIZE,
    ENTRY_STATE,
    ENTRY_STEP,
    ENTRY_STRIDE,
    ENTRY_SWIZZLE,
    ENTRY_TYPE,
    ENTRY_WARP,
    NO_MBARRIER,
    entry_at,
)
from .shape import Variable, each_lane, function, get, put, report, symbol, when
from .watch import BulkCopy, Instrumentation

_I32, _I64 = vec("i32"), vec("i64")
_GATHER = "gather4"


@dataclass(frozen=True)
class _Kind:
    """What a function issues."""

    move: str
    """`load`, `store` or the operation of a reduction."""
    tile: bool
    rank: int = 1
    gathers: bool = False
    type: str = ""

    @property
    def loads(self) -> bool:
        return self.move == "load"

    @property
    def reduces(self) -> bool:
        return self.move not in ("load", "store")


def build_issue(name: str, watch: Instrumentation) -> Builder:
    """Return the function called `name`."""
    kind = _kind(name)
    what = [(_I64, "map"), ("ptr", "coordinates")] if kind.tile else [(_I64, "far"), (_I32, "bytes")]
    signal = [(_I32, "mbarrier")] if kind.loads else []
    b = function(name, "void", [("ptr", "warp"), (_I32, "near"), *what, *signal, ("i32", "mask"), ("i32", "site")])
    entry = b.alloca(f"[{ENTRY_BYTES} x i8]")
    with each_lane(b, b.param("mask")) as lane:
        _issue_lane(b, kind, entry, lane, watch)
    b.ret()
    return b


def _kind(name: str) -> _Kind:
    _, *parts = name.split(".")
    if parts[0] == "tile":
        gathers = parts[2] == _GATHER
        return _Kind(parts[1], True, 2 if gathers else int(parts[2]), gathers)
    if parts[0] not in ("load", "store", *REDUCTIONS):
        raise Unsupported(f"runtime function {name}")
    return _Kind(parts[0], False, type=parts[1] if len(parts) > 1 else "u8")


class _Check:
    """Whether the copy of a lane is possible; the first problem is reported, and ends it."""

    def __init__(self, b: Builder, lane: Value) -> None:
        self.b = b
        self.lanes = b.op("shl", const("i32", 1), lane)
        self._good = Variable(b, const("i1", 1))

    def need(self, condition: Value, code: int, address: Value) -> None:
        b = self.b
        bad = b.op("and", self._good.get(), b.op("xor", condition, const("i1", 1)))
        with when(b, bad, likely=False):
            report(b, code, self.lanes, address)
            self._good.set(const("i1", 0))

    @property
    def good(self) -> Value:
        return self._good.get()


def _all(b: Builder, conditions: list[Value]) -> Value:
    found = conditions[0]
    for condition in conditions[1:]:
        found = b.op("and", found, condition)
    return found


def _issue_lane(b: Builder, kind: _Kind, entry: Value, lane: Value, watch: Instrumentation) -> None:
    check = _Check(b, lane)
    clear = [entry, const("i8", 0), const("i64", ENTRY_BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", clear, overloads=["ptr", "i64"])
    size = (_read_map if kind.tile else _read_run)(b, kind, entry, lane, check)
    near = b.extract(b.param("near"), lane)
    _check_shared(b, check, near, size, BOX_ALIGN if kind.tile else 16)
    mbarrier = const("i32", NO_MBARRIER)
    if kind.loads:
        mbarrier = b.extract(b.param("mbarrier"), lane)
        _check_shared(b, check, mbarrier, const("i64", 8), 8)
    with when(b, check.good, likely=True):
        for field, value in (
            (ENTRY_SHARED, near),
            (ENTRY_SIZE, b.cast("trunc", size, "i32")),
            (ENTRY_MBARRIER, mbarrier),
            (ENTRY_GROUP, _group(b, lane)),
            (ENTRY_WARP, get(b, b.param("warp"), WARP_ID)),
            (ENTRY_LANE, check.lanes),
            (ENTRY_SITE, b.param("site")),
            (ENTRY_STATE, const("i32", 1)),
        ):
            put(b, entry, field, value)
        move = symbol(f"bulk.move.{kind.move}")
        b.declarations.setdefault(move, f"declare void @{move}(ptr, ptr, i32, i32)")
        put(b, entry, ENTRY_MOVE, Value("ptr", f"@{move}"))
        with when(b, b.icmp("ne", size, const("i64", 0))):
            described = b.extract(b.param("map"), lane) if kind.tile else None
            length, far = b.cast("trunc", size, "i32"), get(b, entry, ENTRY_ORIGIN)
            watch.bulk(b, BulkCopy(near, length, mbarrier, check.lanes, kind.loads, far, described))
            _push(b, kind, entry, check, mbarrier)


def _group(b: Builder, lane: Value) -> Value:
    at = b.op("shl", b.cast("zext", lane, "i64"), const("i64", 2))
    return b.load("i32", b.offset(b.offset(b.param("warp"), WARP_BULK_GROUP.at), at), align=4)


def _push(b: Builder, kind: _Kind, entry: Value, check: _Check, mbarrier: Value) -> None:
    """Append the entry; carry it out at once if copies are carried out at issue."""
    worker = get(b, b.param("warp"), WARP_WORKER)
    count = get(b, worker, WORKER_BULK_COUNT)
    fits = b.icmp("ult", count, get(b, worker, WORKER_BULK_CAPACITY))
    with when(b, b.op("xor", fits, const("i1", 1)), likely=False):
        report(b, COPY_QUEUE_FULL, check.lanes, const("i64", 0))
    with when(b, fits, likely=True):
        to = entry_at(b, worker, count)
        args = [to, entry, const("i64", ENTRY_BYTES), const("i1", 0)]
        b.intrinsic("memcpy", "void", args, overloads=["ptr", "ptr", "i64"])
        put(b, worker, WORKER_BULK_COUNT, b.op("add", count, const("i32", 1)))
        now = b.icmp("eq", get(b, worker, WORKER_BULK_WHEN), const("i32", BULK_AT_ISSUE))
        with when(b, now, likely=False):
            if kind.loads:
                b.call(symbol("bulk.deliver"), "i32", [b.param("warp"), mbarrier])
            else:
                b.call(symbol("bulk.perform"), "void", [worker, to])
                b.call(symbol("bulk.compact"), "void", [worker])


def _check_shared(b: Builder, check: _Check, address: Value, size: Value, align: int) -> None:
    """Check that bytes are in one shared array, and aligned."""
    wide = b.cast("zext", address, "i64")
    offset = b.op("sub", wide, const("i64", SHARED_START))
    start, length = piece_at(b, offset, *object_at(b, "shared", offset))
    fits = b.icmp("ule", b.op("add", b.op("sub", offset, start), size), length)
    generic = b.op("add", wide, const("i64", SHARED_BASE))
    check.need(b.op("and", fits, b.icmp("ne", length, const("i64", 0))), OUT_OF_BOUNDS, generic)
    low = b.op("and", address, const("i32", align - 1))
    check.need(b.icmp("eq", low, const("i32", 0)), MISALIGNED, generic)


def _check_global(b: Builder, check: _Check, base: Value, end: Value, *, empty: Value) -> None:
    """Check that the bytes from the address `base` to `end` are in the allocation at `base`."""
    start, length = object_at(b, "global", b.op("sub", base, const("i64", GLOBAL_BASE)))
    limit = b.op("add", b.op("add", start, length), const("i64", GLOBAL_BASE))
    known = b.op("and", b.icmp("ne", length, const("i64", 0)), b.icmp("ult", base, limit))
    inside = b.op("and", known, b.icmp("ule", end, limit))
    check.need(b.op("or", empty, inside), OUT_OF_BOUNDS, b.op("sub", end, const("i64", 1)))


# -- a run of bytes -------------------------------------------------------------------------------------------------


def _read_run(b: Builder, kind: _Kind, entry: Value, lane: Value, check: _Check) -> Value:
    """Fill in a box of bytes in one dimension; return its size."""
    size32, far = b.extract(b.param("bytes"), lane), b.extract(b.param("far"), lane)
    size = b.cast("zext", size32, "i64")
    odd = b.op("and", size32, const("i32", 15))
    check.need(b.icmp("eq", odd, const("i32", 0)), BAD_SIZE, size)
    _check_global(b, check, far, b.op("add", far, size), empty=b.icmp("eq", size, const("i64", 0)))
    low = b.op("and", far, const("i64", ADDRESS_ALIGN - 1))
    check.need(b.icmp("eq", low, const("i64", 0)), MISALIGNED, far)
    number = TYPES.index({"b32": "u32", "b64": "u64"}.get(kind.type, kind.type))
    item = ELEMENT_BYTES[number]
    put(b, entry, ENTRY_ORIGIN, b.op("sub", far, const("i64", GLOBAL_BASE)))
    elements = b.op("udiv", size32, const("i32", item))
    for field in (ENTRY_DIM, ENTRY_COUNT):
        put(b, entry, field, elements)
        for dim in range(1, DIMS):
            put(b, entry, field, const("i32", 1), dim)
    put(b, entry, ENTRY_ITEM, const("i32", item))
    put(b, entry, ENTRY_TYPE, const("i32", number))
    return size


# -- a box of a tensor ----------------------------------------------------------------------------------------------


class _Map:
    """The fields of a tensor map."""

    def __init__(self, b: Builder, place: Value, rank: int) -> None:
        def member(field: str, number: int = 0) -> Value:
            offset, size = FIELDS[field]
            return b.load(f"i{8 * size}", b.offset(place, offset + size * number), align=4)

        self.address = member("global_address")
        self.strides = [member("global_stride", dim) for dim in range(rank - 1)]
        self.dims, self.box, self.steps = (
            [member(field, dim) for dim in range(rank)] for field in ("global_dim", "box_dim", "element_stride")
        )
        self.type, self.rank, self.swizzle = member("elemtype"), member("rank"), member("swizzle_mode")
        self.interleave, self.fill = member("interleave_layout"), member("fill_mode")
        sizes = sum((size.bit_length() - 1) << 2 * number for number, size in enumerate(ELEMENT_BYTES))
        twice = b.op("shl", b.op("and", self.type, const("i32", 15)), const("i32", 1))
        log = b.op("and", b.op("lshr", const("i32", sizes), twice), const("i32", 3))
        self.item = b.op("shl", const("i32", 1), log)


def _in_set(b: Builder, number: Value, members: list[int]) -> Value:
    """Return whether an i32 is one of some small numbers."""
    bits = sum(1 << member for member in members)
    small = b.icmp("ult", number, const("i32", 32))
    moved = b.op("lshr", const("i32", bits), b.op("and", number, const("i32", 31)))
    return b.op("and", small, b.cast("trunc", moved, "i1"))


def _is_valid(b: Builder, kind: _Kind, of: _Map) -> Value:
    """Return whether a map is valid, supported, and fits the instruction (`TensorMap.problem` and `refuse`)."""
    known = [number for number, name in enumerate(TYPES) if name not in REFUSED_TYPES]
    if kind.reduces:
        known = [TYPES.index(name) for name in REDUCTIONS[kind.move].split()]
    inner = b.op("mul", of.box[0], of.item)
    zero = const("i32", 0)
    plain = b.icmp("eq", of.swizzle, zero)
    wide = b.op("shl", const("i32", 16), b.op("and", of.swizzle, const("i32", 3)))
    nan = b.op("and", b.icmp("eq", of.fill, const("i32", FILL_NAN)), _in_set(b, of.type, list(FLOATS)))
    conditions = [
        b.icmp("eq", of.rank, const("i32", kind.rank - 1)),
        _in_set(b, of.type, known),
        b.icmp("eq", of.interleave, zero),
        b.icmp("ule", of.swizzle, const("i32", 3)),
        b.op("or", b.icmp("eq", of.fill, zero), nan),
        b.icmp("eq", b.op("and", of.address, const("i64", ADDRESS_ALIGN - 1)), const("i64", 0)),
        b.icmp("eq", b.op("and", inner, const("i32", 15)), zero),
        b.op("or", plain, b.icmp("eq", inner, wide)),
    ]
    for size in of.dims:
        conditions.append(b.icmp("ne", size, zero))
    for size, most in (*((size, MOST_BOX) for size in of.box), *((step, MOST_STEP) for step in of.steps)):
        conditions.append(b.icmp("ult", b.op("sub", size, const("i32", 1)), const("i32", most)))
    for stride in of.strides:
        low = b.icmp("eq", b.op("and", stride, const("i64", 15)), const("i64", 0))
        conditions.append(b.op("and", low, b.icmp("ult", stride, const("i64", 1 << STRIDE_BITS))))
    if kind.gathers:
        conditions.append(b.icmp("eq", of.box[1], const("i32", 1)))
    return _all(b, conditions)


def _read_map(b: Builder, kind: _Kind, entry: Value, lane: Value, check: _Check) -> Value:
    """Fill in the box of a tensor map at the lane's coordinates; return its size."""
    of = _Map(b, _map_place(b, lane, check), kind.rank)
    address = b.extract(b.param("map"), lane)
    check.need(_is_valid(b, kind, of), BAD_MAP, address)
    at = [_coordinate(b, lane, number) for number in range(5 if kind.gathers else kind.rank)]
    one = const("i32", 1)
    counts = [of.box[0]]
    for box, step in zip(of.box[1:], of.steps[1:], strict=True):
        safe = b.intrinsic("umax", "i32", [step, one])
        counts.append(b.op("udiv", b.op("sub", b.op("add", box, safe), one), safe))
    if kind.gathers:
        counts[1] = const("i32", 4)
        put(b, entry, ENTRY_GATHERS, one)
        for number, row in enumerate(at[1:]):
            put(b, entry, ENTRY_ROWS, row, number)
    put(b, entry, ENTRY_ORIGIN, b.op("sub", of.address, const("i64", GLOBAL_BASE)))
    for dim in range(DIMS):
        here = dim < kind.rank
        put(b, entry, ENTRY_DIM, of.dims[dim] if here else one, dim)
        put(b, entry, ENTRY_COUNT, counts[dim] if here else one, dim)
        put(b, entry, ENTRY_STEP, of.steps[dim] if here else one, dim)
        put(b, entry, ENTRY_AT, at[dim] if here and not (kind.gathers and dim) else const("i32", 0), dim)
    for number, stride in enumerate(of.strides):
        put(b, entry, ENTRY_STRIDE, stride, number)
    mask = b.op("sub", b.op("shl", one, b.op("and", of.swizzle, const("i32", 3))), one)
    for field, value in ((ENTRY_ITEM, of.item), (ENTRY_SWIZZLE, mask), (ENTRY_FILL, of.fill), (ENTRY_TYPE, of.type)):
        put(b, entry, field, value)
    end, empty = _reach(b, kind, of, at, counts)
    _check_global(b, check, of.address, end, empty=empty)
    size = of.item
    for count in counts:
        size = b.op("mul", size, count)
    return b.cast("zext", size, "i64")


def _coordinate(b: Builder, lane: Value, number: int) -> Value:
    at = b.op("shl", b.cast("zext", lane, "i64"), const("i64", 2))
    return b.load("i32", b.offset(b.offset(b.param("coordinates"), 4 * LANES * number), at), align=4)


def _map_place(b: Builder, lane: Value, check: _Check) -> Value:
    """Return where the 128 bytes of a lane's map are in the host's memory; zeros if they are nowhere."""
    warp, address = b.param("warp"), b.extract(b.param("map"), lane)
    nothing = b.alloca(f"[{BYTES} x i8]")
    clear = [nothing, const("i8", 0), const("i64", BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", clear, overloads=["ptr", "i64"])
    in_params = b.op("sub", address, const("i64", PARAM_BASE))
    is_param = b.icmp("ult", in_params, const("i64", WINDOW_BYTES))
    param_end = b.op("add", in_params, const("i64", BYTES))
    param_fits = b.op("and", is_param, b.icmp("ule", param_end, get(b, warp, WARP_PARAM_BYTES)))
    offset = b.op("sub", address, const("i64", GLOBAL_BASE))
    start, length = object_at(b, "global", offset)
    inside = b.icmp("ule", b.op("add", b.op("sub", offset, start), const("i64", BYTES)), length)
    known = b.op("and", b.icmp("ne", length, const("i64", 0)), inside)
    global_fits = b.op("and", b.op("xor", is_param, const("i1", 1)), known)
    check.need(b.op("or", param_fits, global_fits), OUT_OF_BOUNDS, address)
    low = b.op("and", address, const("i64", MAP_ALIGN - 1))
    check.need(b.icmp("eq", low, const("i64", 0)), MISALIGNED, address)
    place = b.select(global_fits, b.offset(get(b, warp, WARP_GLOBAL), offset), nothing)
    return b.select(param_fits, b.offset(get(b, warp, WARP_PARAMS), in_params), place)


def _reach(b: Builder, kind: _Kind, of: _Map, at: list[Value], counts: list[Value]) -> tuple[Value, Value]:
    """Return the address behind the last element of the box that is inside the tensor, and whether there is none."""
    zero, one = const("i64", 0), const("i64", 1)
    end = b.op("add", of.address, b.cast("zext", of.item, "i64"))
    empty = const("i1", 0)
    for dim in range(kind.rank):
        size = b.cast("zext", of.dims[dim], "i64")
        scale = b.cast("zext", of.item, "i64") if dim == 0 else of.strides[dim - 1]
        if kind.gathers and dim == 1:
            last = const("i64", -1)
            for row in at[1:]:
                wide = b.cast("sext", row, "i64")
                inside = b.op("and", b.icmp("sge", wide, zero), b.icmp("slt", wide, size))
                last = b.intrinsic("smax", "i64", [last, b.select(inside, wide, const("i64", -1))])
            nowhere = b.icmp("slt", last, zero)
        else:
            first = b.cast("sext", at[dim], "i64")
            step = b.cast("zext", of.steps[dim], "i64") if dim else one
            step = b.intrinsic("umax", "i64", [step, one])
            before = b.intrinsic("smax", "i64", [b.op("sub", zero, first), zero])
            low = b.op("udiv", b.op("sub", b.op("add", before, step), one), step)
            room = b.op("sub", b.op("sub", size, one), first)
            fitting = b.op("udiv", b.intrinsic("smax", "i64", [room, zero]), step)
            most = b.op("sub", b.cast("zext", counts[dim], "i64"), one)
            high = b.intrinsic("smin", "i64", [fitting, most])
            nowhere = b.op("or", b.icmp("slt", room, zero), b.icmp("sgt", low, high))
            last = b.op("add", first, b.op("mul", high, step))
        empty = b.op("or", empty, nowhere)
        end = b.op("add", end, b.op("mul", last, scale))
    return end, empty
