"""The four warps of a warpgroup execute the same products and changes of registers: compared step by step.

    void warpgroup.step  (warp, i64 key, i32 lanes, i32 site)   `key`: what must be the same in all four warps
    i32  warpgroup.together(warp)                               whether the others have taken as many steps
    void warpgroup.finish(worker)                               the CTA ends

Warps run one after the other, so the first that takes a step writes it down, and the others compare. A warp has the
number of its steps and a hash of all of them. A ring of the last steps of a warpgroup tells where warps differ; steps
that are no longer there, and steps that a warp did not take, show in the numbers and hashes at the end of the CTA.

On a GPU the four warps multiply together: after its `wgmma.wait_group`, one thread may release the operands for all of
them. So a wait is over when no warp of the group is behind; those that have exited or were reported never are.
"""

from ..context import (
    FEWER_STEPS,
    GROUP,
    INCOMPLETE_GROUP,
    OTHER_DESCRIPTOR,
    OTHER_STEP,
    WARP_HASH,
    WARP_ID,
    WARP_LAST_STEP,
    WARP_LIVE,
    WARP_STEPS,
    WARP_WORKER,
    WORKER_WARP_COUNT,
    WORKER_WARPGROUPS,
    Field,
)
from ..ir import Builder, Value, const
from ..wgmma_kind import WARPS
from .barriers import warp_of
from .shape import Variable, count_range, function, get, put, report, symbol, when
from .waiting import give_way
from .watch import Instrumentation

RING = 1024
"""Steps that are kept."""
STEP_BYTES = 32
_NUMBER, _HASH, _SITE = Field(0, "i32"), Field(8, "i64"), Field(16, "i32")
_FACTOR = 0x9E3779B97F4A7C15
_REPORTED = -1
"""In place of the number of steps of a warp that differs, which was reported."""


def build_warpgroups(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    parts = {"warpgroup.step": _step, "warpgroup.together": _together, "warpgroup.finish": _finish}
    return [parts[name](name)]


def ring_bytes(warps: int) -> int:
    """Return the size of the rings of a CTA."""
    return -(-warps // WARPS) * RING * STEP_BYTES


def _step(name: str) -> Builder:
    b = function(name, "void", [("ptr", "warp"), ("i64", "key"), ("i32", "lanes"), ("i32", "site")])
    warp, site = b.param("warp"), b.param("site")
    worker, number = get(b, warp, WARP_WORKER), get(b, warp, WARP_ID)
    before = get(b, warp, WARP_STEPS)
    idle = b.icmp("eq", b.param("lanes"), const("i32", 0))
    with when(b, b.op("or", idle, b.icmp("eq", before, const("i32", _REPORTED))), likely=False):
        b.ret()
    last = b.op("or", number, const("i32", WARPS - 1))
    with when(b, b.icmp("uge", last, get(b, worker, WORKER_WARP_COUNT)), likely=False):
        _differs(b, INCOMPLETE_GROUP, const("i64", 0))
    place = b.cast("zext", site, "i64")
    mixed = b.op("mul", b.op("xor", get(b, warp, WARP_HASH), b.param("key")), const("i64", _FACTOR))
    hashed = b.op("add", b.op("xor", mixed, b.op("lshr", mixed, const("i64", 32))), const("i64", 1))
    steps = b.op("add", before, const("i32", 1))
    for field, value in ((WARP_STEPS, steps), (WARP_LAST_STEP, site), (WARP_HASH, hashed)):
        put(b, warp, field, value)
    group = b.op("lshr", number, const("i32", WARPS.bit_length() - 1))
    index = b.op("add", b.op("mul", group, const("i32", RING)), b.op("and", steps, const("i32", RING - 1)))
    at = b.op("mul", b.cast("zext", index, "i64"), const("i64", STEP_BYTES))
    entry = b.offset(get(b, worker, WORKER_WARPGROUPS), at)
    with when(b, b.icmp("ult", get(b, entry, _NUMBER), steps)):
        for field, value in ((_NUMBER, steps), (_HASH, hashed), (_SITE, site)):
            put(b, entry, field, value)
        b.ret()
    same_step = b.icmp("eq", get(b, entry, _NUMBER), steps)
    with when(b, b.op("and", same_step, b.icmp("ne", get(b, entry, _HASH), hashed)), likely=False):
        elsewhere = b.cast("zext", get(b, entry, _SITE), "i64")
        with when(b, b.icmp("eq", elsewhere, place)):
            _differs(b, OTHER_DESCRIPTOR, elsewhere)
        _differs(b, OTHER_STEP, elsewhere)
    b.ret()
    return b


def _differs(b: Builder, code: int, other: Value) -> None:
    """Report a step once for a warp, and return."""
    report(b, code, b.param("lanes"), other)
    put(b, b.param("warp"), WARP_STEPS, const("i32", _REPORTED))
    b.ret()


def _together(name: str) -> Builder:
    b = function(name, "i32", [("ptr", "warp")])
    warp = b.param("warp")
    worker, steps = get(b, warp, WARP_WORKER), get(b, warp, WARP_STEPS)
    reported = b.icmp("eq", steps, const("i32", _REPORTED))
    first = b.op("and", get(b, warp, WARP_ID), const("i32", -WARPS))
    others = b.op("sub", get(b, worker, WORKER_WARP_COUNT), first)
    count = b.select(b.icmp("ult", others, const("i32", WARPS)), others, const("i32", WARPS))
    with when(b, b.op("xor", reported, const("i1", 1))), count_range(b, count) as index:
        number = b.op("add", first, index)
        other = warp_of(b, worker, number)
        taken = get(b, other, WARP_STEPS)
        live = b.icmp("ne", get(b, other, WARP_LIVE), const("i32", 0))
        with when(b, b.op("and", live, b.icmp("ult", taken, steps)), likely=False):
            give_way(b, GROUP, number, taken)
            b.ret(const("i32", 0))
    b.ret(const("i32", -1))
    return b


def _finish(name: str) -> Builder:
    """Compare the warps of each group with its first one; a difference that was not reported is reported now."""
    b = function(name, "void", [("ptr", "worker")])
    worker = b.param("worker")
    count = get(b, worker, WORKER_WARP_COUNT)
    reported = Variable(b, const("i32", 0))
    with count_range(b, count) as number:
        warp = warp_of(b, worker, number)
        first = warp_of(b, worker, b.op("and", number, const("i32", -WARPS)))
        steps, expected = get(b, warp, WARP_STEPS), get(b, first, WARP_STEPS)
        is_first = b.icmp("eq", b.op("and", number, const("i32", WARPS - 1)), const("i32", 0))
        with when(b, is_first):
            reported.set(const("i32", 0))
        for known in (steps, expected):
            with when(b, b.icmp("eq", known, const("i32", _REPORTED))):
                reported.set(const("i32", 1))
        differ = b.icmp("ne", get(b, warp, WARP_HASH), get(b, first, WARP_HASH))
        with when(b, b.op("and", differ, b.icmp("eq", reported.get(), const("i32", 0))), likely=False):
            reported.set(const("i32", 1))
            more = b.icmp("ugt", steps, expected)
            longer, shorter = b.select(more, warp, first), b.select(more, first, warp)
            missing = b.op("shl", b.cast("zext", get(b, shorter, WARP_ID), "i64"), const("i64", 32))
            taken = b.cast("zext", get(b, shorter, WARP_STEPS), "i64")
            args = [const("i32", FEWER_STEPS), get(b, longer, WARP_LAST_STEP), const("i32", -1)]
            b.call(symbol("report"), "void", [longer, *args, b.op("or", missing, taken)])
    b.ret()
    return b
