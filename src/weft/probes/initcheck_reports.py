"""Reports of initcheck: which lanes read unwritten bytes, the first such address, and which bytes of a lane's access.

A padded loop would report in every iteration of every CTA, so a table of 4096 entries behind the probe's shadow holds
what an instruction has reported: it reports again in another CTA, up to a limit, and for bytes not reported before.
"""

from collections.abc import Mapping

from weft.vm.context import (
    FIRST_PROBE_CODE,
    REPORT_BYTES,
    WARP_WORKER,
    WORKER_CTA,
    WORKER_REPORT_CAPACITY,
    WORKER_REPORT_COUNT,
    WORKER_REPORTS,
    Field,
)
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.runtime.shape import Variable, count_range, each_lane, function, get, put, symbol, when

from .shared_probe import SharedProbe, shadow_size

UNWRITTEN_SHARED = FIRST_PROBE_CODE
UNWRITTEN_GLOBAL, UNWRITTEN_LOCAL = FIRST_PROBE_CODE + 64, FIRST_PROBE_CODE + 65
CODES: Mapping[int, tuple[str, str]] = {
    UNWRITTEN_SHARED: ("I201", "read of uninitialised shared memory at {address:#x}"),
    UNWRITTEN_GLOBAL: ("I202", "read of uninitialised global memory, {where}"),
    UNWRITTEN_LOCAL: ("I203", "read of uninitialised local memory at {address:#x}"),
}
CTAS_REPORTED = 16
"""The number of CTAs in which a worker reports one instruction."""

_ENTRIES, _ENTRY_BYTES = 4096, 16
TABLE_BYTES = _ENTRIES * _ENTRY_BYTES
_KEY, _CTA, _COUNT, _BYTES = (Field(at, "i32") for at in (0, 4, 8, 12))
_DETAIL = 28


def report_function(probe: SharedProbe, name: str, *, local: bool) -> Builder:
    """`void name(warp, site, code, shadow, i64 base, <32 x i32> offsets, i32 bytes, i32 lanes)`."""
    params = [("ptr", "warp"), ("i32", "site"), ("i32", "code"), ("ptr", "shadow"), ("i64", "base")]
    b = function(name, "void", [*params, (vec("i32"), "offsets"), ("i32", "bytes"), ("i32", "lanes")])
    hit, first, mask = (Variable(b, const("i32", 0)) for _ in range(3))
    with each_lane(b, b.param("lanes")) as lane, count_range(b, b.param("bytes")) as i:
        offset = b.op("add", b.extract(b.param("offsets"), lane), i)
        place = interleaved(b, offset, lane) if local else offset
        state = b.load("i8", b.offset(b.param("shadow"), b.cast("zext", place, "i64")))
        with when(b, b.icmp("eq", state, const("i8", 0))):
            with when(b, b.icmp("eq", hit.get(), const("i32", 0))):
                first.set(offset)
            hit.set(b.op("or", hit.get(), b.op("shl", const("i32", 1), lane)))
            mask.set(b.op("or", mask.get(), b.op("shl", const("i32", 1), b.op("and", i, const("i32", 31)))))
    with when(b, _news(b, probe, mask.get())):
        address = b.op("add", b.cast("zext", first.get(), "i64"), b.param("base"))
        args = [b.param("warp"), b.param("code"), b.param("site"), hit.get(), address]
        b.call(symbol("report"), "void", args)
        _add_detail(b, mask.get())
    b.ret()
    return b


def interleaved(b: Builder, offset: Value, lane: Value) -> Value:
    """The position of a byte of a lane's local memory in the warp's local memory."""
    word = b.op("shl", b.op("lshr", offset, const(offset.ty, 2)), const(offset.ty, 7))
    place = b.op("add", word, b.op("and", offset, const(offset.ty, 3)))
    return b.op("add", place, b.op("shl", lane, const(lane.ty, 2)))


def _news(b: Builder, probe: SharedProbe, mask: Value) -> Value:
    """Whether the table does not contain this report yet; adds it."""
    worker = get(b, b.param("warp"), WARP_WORKER)
    table = b.offset(probe.memory(b, worker), shadow_size(b, worker))
    key = b.op("add", b.op("mul", b.param("site"), const("i32", 67)), b.param("code"))
    slot = b.op("and", key, const("i32", _ENTRIES - 1))
    entry = b.offset(table, b.op("mul", b.cast("zext", slot, "i64"), const("i64", _ENTRY_BYTES)))
    same = b.icmp("eq", get(b, entry, _KEY), key)
    known = b.select(same, get(b, entry, _BYTES), const("i32", 0))
    count = b.select(same, get(b, entry, _COUNT), const("i32", 0))
    cta = b.op("add", get(b, worker, WORKER_CTA), const("i32", 1))
    elsewhere = b.op("or", b.icmp("ne", get(b, entry, _CTA), cta), b.op("xor", same, const("i1", 1)))
    put(b, entry, _KEY, key)
    put(b, entry, _CTA, cta)
    put(b, entry, _COUNT, b.op("add", count, b.cast("zext", elsewhere, "i32")))
    put(b, entry, _BYTES, b.op("or", known, mask))
    more = b.icmp("ne", b.op("and", mask, b.op("xor", known, const("i32", -1))), const("i32", 0))
    early = b.icmp("ult", count, const("i32", CTAS_REPORTED))
    return b.op("or", more, b.op("and", elsewhere, early))


def _add_detail(b: Builder, mask: Value) -> None:
    """Store the mask of bytes in the detail field of the last report."""
    worker = get(b, b.param("warp"), WARP_WORKER)
    last = b.op("sub", get(b, worker, WORKER_REPORT_COUNT), const("i32", 1))
    with when(b, b.icmp("ult", last, get(b, worker, WORKER_REPORT_CAPACITY))):
        at = b.op("mul", b.cast("zext", last, "i64"), const("i64", REPORT_BYTES))
        b.store(mask, b.offset(b.offset(get(b, worker, WORKER_REPORTS), at), _DETAIL), align=4)
