"""Loads and stores of an entire warp: `ld.<space>.b<bits>.v<n>`, `st…`, and `ldu…` for one address in all lanes.

    <32 x iN> ld.S.bN.v1 (warp, <32 x iA> address, i32 mask, i32 site)
    void      ld.S.bN.vK (warp, <32 x iA> address, i32 mask, i32 site, ptr out)      K vectors, one after the other
    void      st.S.bN.v1 (warp, <32 x iA> address, i32 mask, i32 site, <32 x iN> value)
    void      st.S.bN.vK (warp, <32 x iA> address, i32 mask, i32 site, ptr in)
    iN        ldu.S.bN.v1 (warp, iA address, i32 mask, i32 site)                     void with `ptr out` for K > 1
In the place of `b32`, `w32` is a load that may take the rest of a buffer's last word (`last_word.py`). In the place of
`v4`, `v4r3` is a load of which only the first three members are read (`discard_unread.py`): the others may be behind
the end of an object, and `out` does not get them.
iA is i64 for global and generic, i32 for shared and local. Lanes that are off, out of bounds or misaligned read 0
and write nothing; the last two are reported. `site` is the number of the PTX instruction.
"""

from ..context import (
    MISALIGNED,
    OUT_OF_BOUNDS,
    WARP_GLOBAL,
    WARP_GLOBAL_BYTES,
    WARP_LOCAL,
    WARP_LOCAL_LIMIT,
    WARP_PARAM_BYTES,
    WARP_PARAMS,
    WARP_SHARED,
    WARP_SHARED_LIMIT,
)
from ..ir import LANES, Builder, Value, const, vec, vector
from ..memory import GLOBAL_BASE, LOCAL_BASE, LOCAL_START, PARAM_BASE, SHARED_BASE, SHARED_START, WINDOW_BYTES
from .access_name import Shape, parse_name
from .bounds import object_at, owned, report_lanes, straight, without
from .moves import gather, move_lanes, move_row, scatter, widened
from .shape import LANE_NUMBERS, bits, function, get, symbol, unbits, when
from .watch import Access, Instrumentation


def build_access(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    shape = parse_name(name)
    if name.startswith("ldu."):
        return _uniform_load(shape, watch)
    params = [("ptr", "warp"), (vec(shape.address), "address"), ("i32", "mask"), ("i32", "site")]
    single = shape.vector == 1
    if not single:
        params.append(("ptr", "data"))
    elif shape.store:
        params.append((vec(f"i{shape.bits}"), "data"))
    result = vec(f"i{shape.bits}") if single and not shape.store else "void"
    b = function(name, result, params)
    if shape.space in ("global", "shared"):
        return _linear(b, shape, watch)
    _windowed(b, shape, b.param("address"), b.param("mask"), watch)
    return [b]


# -- global and shared: one window, linear --------------------------------------------------------------------------


def _window(b: Builder, shape: Shape) -> tuple[Value, Value, Value]:
    """Return the host address of the window's first byte, its first device address, and its size in bytes."""
    warp = b.param("warp")
    if shape.space == "global":
        return get(b, warp, WARP_GLOBAL), const("i64", GLOBAL_BASE), get(b, warp, WARP_GLOBAL_BYTES)
    start = const("i64", SHARED_START)
    host = b.offset(get(b, warp, WARP_SHARED), SHARED_START)
    return host, start, b.op("sub", get(b, warp, WARP_SHARED_LIMIT), start)


def _linear(b: Builder, shape: Shape, watch: Instrumentation) -> list[Builder]:
    """Move a run of all lanes, the usual access, at once; return the function and the one for all other accesses."""
    host, offsets = _offsets(b, shape)
    scalar, mask = shape.address, b.param("mask")
    leader = b.extract(offsets, 0)
    row = b.op("sub", offsets, b.splat(leader))
    expected = vector(scalar, (lane * shape.bytes for lane in range(LANES)))
    in_row = b.icmp("eq", bits(b, b.icmp("eq", row, expected)), const("i32", -1))
    total = LANES * shape.bytes
    inside = _fits(b, shape, leader, total)
    aligned = b.icmp("eq", b.op("and", leader, const(scalar, shape.bytes - 1)), const(scalar, 0))
    whole = b.icmp("eq", mask, const("i32", -1))
    together = b.op("and", b.op("and", in_row, whole), b.op("and", inside, aligned))
    row_label, scattered = b.label("row"), b.label("scattered")
    b.cbr(together, row_label, scattered)
    b.place(row_label)
    watch.access(b, Access(shape.store, shape.space, shape.bytes, offsets, mask, contiguous=True))
    move_row(b, shape, b.offset(host, widened(b, leader)))
    b.place(scattered)
    others = _scattered(shape, b, watch)
    b.ret_call(others)
    return [b, others]


def _scattered(shape: Shape, b: Builder, watch: Instrumentation) -> Builder:
    """Return the function for accesses that are not a run of all lanes.

    It is separate so that the other one needs no room on the stack.
    """
    b = Builder(f"{b.name}.scattered", b.result, b.params, b.attributes)
    host, offsets = _offsets(b, shape)
    mask = b.param("mask")
    valid = _check(b, shape, offsets, mask)
    whole = owned(b, shape.space, offsets, valid, shape.bytes) if shape.read < shape.vector else valid
    _tell(b, shape, offsets, valid, whole, watch)
    move_lanes(b, shape, host, offsets, valid)
    return b


def _offsets(b: Builder, shape: Shape) -> tuple[Value, Value]:
    """Return the host address of the window, and the lanes' offsets in it."""
    host, first, _ = _window(b, shape)
    if shape.address == "i32":
        first = b.cast("trunc", first, "i32")
    return host, b.op("sub", b.param("address"), b.splat(first))


def _fits(b: Builder, shape: Shape, offset: Value, count: int) -> Value:
    """Return whether `count` bytes at `offset` (a scalar) are in one object."""
    at = widened(b, offset)
    start, size = object_at(b, shape.space, at)
    room = b.icmp("uge", size, const("i64", count))
    reach = b.icmp("ule", b.op("sub", at, start), b.op("sub", size, const("i64", count)))
    return b.op("and", room, reach)


def _check(b: Builder, shape: Shape, offsets: Value, mask: Value) -> Value:
    """Return the lanes of `mask` that may access; the others are reported."""
    return _settle(
        b, shape, offsets, mask, owned(b, shape.space, offsets, mask, shape.read_bytes, last_word=shape.last_word)
    )


def _tell(b: Builder, shape: Shape, offsets: Value, valid: Value, whole: Value, watch: Instrumentation) -> None:
    """Tell the probes of an access of the `valid` lanes; lanes that are not `whole` access only the members read."""
    if shape.read < shape.vector:
        rest, size = without(b, valid, whole), shape.bits // 8
        with when(b, b.icmp("ne", rest, const("i32", 0)), likely=False):
            for k in range(shape.read):
                at = b.op("add", offsets, const(offsets.ty, k * size))
                watch.access(b, Access(shape.store, shape.space, size, at, rest, contiguous=False))
    watch.access(b, Access(shape.store, shape.space, shape.bytes, offsets, whole, contiguous=False))


def _settle(b: Builder, shape: Shape, offsets: Value, mask: Value, inside: Value) -> Value:
    """Report lanes that are outside or misaligned; return the rest."""
    address = b.param("address")
    report_lanes(b, OUT_OF_BOUNDS, without(b, mask, inside), address)
    valid = b.op("and", mask, inside)
    if shape.bytes == 1:
        return valid
    crooked = without(b, valid, straight(b, offsets, shape.bytes))
    report_lanes(b, MISALIGNED, crooked, address)
    return without(b, valid, crooked)


# -- local and generic: words of a lane are apart, windows are mixed ------------------------------------------------


def _windowed(b: Builder, shape: Shape, address: Value, mask: Value, watch: Instrumentation) -> None:
    """Move data of several windows: local memory is interleaved by words; a generic address may be in any window."""
    if shape.space == "local":
        generic = b.op("add", b.cast("zext", address, vec("i64")), const(vec("i64"), LOCAL_BASE))
    else:
        generic = address
        _all_global(b, shape, address, mask)
    warp = b.param("warp")
    windows = (
        (GLOBAL_BASE, get(b, warp, WARP_GLOBAL), const("i64", 0), get(b, warp, WARP_GLOBAL_BYTES)),
        (SHARED_BASE, get(b, warp, WARP_SHARED), const("i64", SHARED_START), get(b, warp, WARP_SHARED_LIMIT)),
        (PARAM_BASE, get(b, warp, WARP_PARAMS), const("i64", 0), get(b, warp, WARP_PARAM_BYTES)),
        (LOCAL_BASE, get(b, warp, WARP_LOCAL), const("i64", LOCAL_START), get(b, warp, WARP_LOCAL_LIMIT)),
    )
    wide = vec("i64")
    inside = whole = const("i32", 0)
    linear = const(wide, 0)
    is_local = const("i32", 0)
    for base, host, first, limit in windows:
        if shape.space == "local" and base != LOCAL_BASE:
            continue
        if base == PARAM_BASE and shape.store:
            continue
        offset = b.op("sub", generic, const(wide, base))
        above = bits(b, b.icmp("uge", offset, b.splat(first)))
        here = _in_window(b, shape, base, offset, limit, b.op("and", mask, above), shape.read_bytes)
        if shape.read < shape.vector:
            whole = b.op("or", whole, _in_window(b, shape, base, offset, limit, here, shape.bytes))
        host_int = b.splat(b.emit("i64", f"ptrtoint ptr {host.ref} to i64"))
        if base == LOCAL_BASE:
            words = b.op("mul", b.op("lshr", offset, const(wide, 2)), const(wide, 128))
            place = b.op(
                "add",
                b.op("add", words, b.op("and", offset, const(wide, 3))),
                b.cast("zext", b.op("mul", LANE_NUMBERS, const(vec("i32"), 4)), wide),
            )
            is_local = here
        else:
            place = offset
        linear = b.select(unbits(b, here), b.op("add", host_int, place), linear)
        inside = b.op("or", inside, here)
    valid = _settle(b, shape, generic, mask, inside)
    _tell(b, shape, generic, valid, b.op("and", valid, whole) if shape.read < shape.vector else valid, watch)
    _move_words(b, shape, linear, is_local, valid)


def _in_window(b: Builder, shape: Shape, base: int, offset: Value, limit: Value, lanes: Value, count: int) -> Value:
    """Return the `lanes` whose `count` bytes at `offset` end below `limit`; they are in one object."""
    enough = b.icmp("uge", limit, const("i64", count))
    last = b.select(enough, b.op("sub", limit, const("i64", count)), const("i64", 0))
    below = bits(b, b.icmp("ule", offset, b.splat(last)))
    here = b.op("and", b.op("and", lanes, below), b.cast("sext", enough, "i32"))
    if base == GLOBAL_BASE:
        return owned(b, "global", offset, here, count, last_word=shape.last_word)
    if base == SHARED_BASE:
        return owned(b, "shared", b.op("sub", offset, const(vec("i64"), SHARED_START)), here, count)
    return here


def _all_global(b: Builder, shape: Shape, address: Value, mask: Value) -> None:
    """Use the function for global memory if all generic addresses are global."""
    off = b.op("sub", address, const(vec("i64"), GLOBAL_BASE))
    inside = bits(b, b.icmp("ult", off, const(vec("i64"), WINDOW_BYTES << 12)))
    rest = b.op("and", mask, b.op("xor", inside, const("i32", -1)))
    elsewhere, global_only = b.label("elsewhere"), b.label("global")
    b.cbr(b.icmp("eq", rest, const("i32", 0)), global_only, elsewhere)
    b.place(global_only)
    name = shape.name.replace("generic", "global")
    args = [b.param(given) for _, given in b.params]
    result = b.call(symbol(name), b.result, args)
    b.ret(None if b.result == "void" else result)
    b.place(elsewhere)


def _move_words(b: Builder, shape: Shape, linear: Value, is_local: Value, valid: Value) -> None:
    """Move each element as one piece, or as 32-bit words where it is wider (local words are 128 bytes apart)."""
    wide, lanes = vec("i64"), unbits(b, valid)
    step = b.select(unbits(b, is_local), const(wide, 128), const(wide, 4))
    piece = min(shape.bits, 32)
    per_element = shape.bits // piece
    ty, piece_type = vec(f"i{shape.bits}"), vec(f"i{piece}")
    stride = LANES * shape.bits // 8
    results = []
    for k in range(shape.read):
        value = None
        if shape.store:
            value = (
                b.param("data") if shape.vector == 1 else b.load(ty, b.offset(b.param("data"), k * stride), align=64)
            )
        whole = const(ty, 0)
        for part in range(per_element):
            at = k * shape.bits // 8 + part * 4
            # Elements narrower than a word stay inside it: alignment was checked.
            if at % 4 == 0:
                moved = b.op("add", linear, b.op("mul", step, const(wide, at // 4)))
            else:
                moved = b.op("add", b.op("add", linear, b.op("mul", step, const(wide, at // 4))), const(wide, at % 4))
            pointers = b.emit(vec("ptr"), f"inttoptr {wide} {moved.ref} to {vec('ptr')}")
            if value is not None:
                shifted = value if per_element == 1 else b.op("lshr", value, const(ty, 32 * part))
                scatter(b, b.cast("trunc", shifted, piece_type), pointers, lanes, piece // 8)
            else:
                loaded = b.cast("zext", gather(b, piece_type, pointers, lanes, piece // 8), ty)
                whole = loaded if per_element == 1 else b.op("or", whole, b.op("shl", loaded, const(ty, 32 * part)))
        results.append(whole)
    if shape.store:
        b.ret()
    elif shape.vector == 1:
        b.ret(results[0])
    else:
        for k, whole in enumerate(results):
            b.store(whole, b.offset(b.param("data"), k * stride), align=64)
        b.ret()


# -- one address for the entire warp -------------------------------------------------------------------------------


def _uniform_load(shape: Shape, watch: Instrumentation) -> list[Builder]:
    """Write `ldu`: the lanes agree on the address, so one load is enough for all; and the function for other cases."""
    scalar = f"i{shape.bits}"
    params = [("ptr", "warp"), (shape.address, "address"), ("i32", "mask"), ("i32", "site")]
    if shape.vector > 1:
        params.append(("ptr", "data"))
    b = function(shape.name, scalar if shape.vector == 1 else "void", params)
    host, first, _ = _window(b, shape)
    if shape.address == "i32":
        first = b.cast("trunc", first, "i32")
    offset = b.op("sub", b.param("address"), first)
    inside = _fits(b, shape, offset, shape.bytes)
    aligned = b.icmp("eq", b.op("and", offset, const(shape.address, shape.bytes - 1)), const(shape.address, 0))
    quick = b.op("and", b.op("and", inside, aligned), b.icmp("ne", b.param("mask"), const("i32", 0)))
    fast, slow = b.label("fast"), b.label("slow")
    b.cbr(quick, fast, slow, likely=True)
    b.place(fast)
    if watch.wants("access"):
        event = Access(
            False, shape.space, shape.bytes, b.splat(offset), b.param("mask"), contiguous=False, uniform=True
        )
        watch.access(b, event)
    pointer = b.offset(host, widened(b, offset))
    if shape.vector == 1:
        b.ret(b.load(scalar, pointer, align=shape.bytes))
    else:
        for k in range(shape.read):
            item = b.load(scalar, b.offset(pointer, k * shape.bits // 8), align=shape.bits // 8)
            b.store(item, b.offset(b.param("data"), k * shape.bits // 8), align=shape.bits // 8)
        b.ret()
    b.place(slow)
    others = _as_lanes(shape, b)
    b.ret_call(others)
    return [b, others]


def _as_lanes(shape: Shape, b: Builder) -> Builder:
    """Return the function that loads for each lane, with its reports, and returns the first lane's value."""
    b = Builder(f"{b.name}.lanes", b.result, b.params, b.attributes)
    scalar = f"i{shape.bits}"
    lanes = b.splat(b.param("address"))
    args = [b.param("warp"), lanes, b.param("mask"), b.param("site")]
    name = symbol(shape.name.replace("ldu.", "ld."))
    if shape.vector == 1:
        b.ret(b.extract(b.call(name, vec(scalar), args), 0))
        return b
    room_for = b.alloca(f"[{LANES * shape.bytes} x i8]")
    b.call(name, "void", [*args, room_for])
    for k in range(shape.read):
        item = b.load(scalar, b.offset(room_for, k * LANES * shape.bits // 8), align=shape.bits // 8)
        b.store(item, b.offset(b.param("data"), k * shape.bits // 8), align=shape.bits // 8)
    b.ret()
    return b
