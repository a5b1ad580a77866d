"""Barriers in shared memory: one lane after the other counts down a 64-bit word (`vm/mbarrier_word.py`).

    void        mbarrier.init             (warp, <32 x i32> address, i32 mask, i32 site, <32 x i32> count)
    void        mbarrier.inval            (warp, <32 x i32> address, i32 mask, i32 site)
    <32 x i64>  mbarrier.arrive           (warp, <32 x i32> address, i32 mask, i32 site, <32 x i32> count)
    <32 x i64>  mbarrier.arrive.keep      the same, and the phase may not end by it (.noComplete)
    <32 x i64>  mbarrier.drop[.keep]      the same, and later phases expect that many fewer
    i32         mbarrier.test.state       (warp, <32 x i32> address, i32 mask, i32 site, <32 x i64> state)
    i32         mbarrier.test.parity      (warp, <32 x i32> address, i32 mask, i32 site, <32 x i64> parity)
    void        mbarrier.expect           (warp, <32 x i32> address, i32 mask, i32 site)  one more arrival each
    void        mbarrier.expect_tx        (warp, <32 x i32> address, i32 mask, i32 site, <32 x i32> bytes)
    void        mbarrier.complete_tx      the same
    void        mbarrier.land             (warp, ptr entry, i32 lanes, i32 site)
    i32         mbarrier.landed           (warp, i32 address, i32 bytes, i32 lane, i32 site)  whether the phase ends
A test returns the lanes whose phase is over. Before it, the asynchronous copies whose arrival this mbarrier awaits
are carried out (`cp.settle`), and bulk loads whose bytes it counts, one by one until the phase is over
(`bulk.deliver`): their bytes are not there earlier. A warp whose phase is not over yields to others at its next
backward branch.

Watchers see an arrival, bytes that complete, and a test that succeeds as atomic accesses: the first two release, the
test acquires.
"""

from weft.core.errors import Unsupported

from ..context import (
    BAD_MBARRIER,
    EARLY_PHASE,
    GIVEN_UP,
    MISALIGNED,
    OUT_OF_BOUNDS,
    WARP_POLLED,
    WARP_SHARED,
    WARP_SHARED_LIMIT,
    WARP_SLICE,
    WARP_WORKER,
    WORKER_BULK_COUNT,
    WORKER_FRUITLESS,
)
from ..ir import Builder, Value, const, vec
from ..mbarrier_word import (
    COUNT_BITS,
    COUNT_MASK,
    INVALID,
    MARK,
    MARK_SHIFT,
    MOST_BYTES,
    MOST_COUNT,
    NEXT_SHIFT,
    PHASE_MASK,
    PHASE_SHIFT,
)
from ..memory import SHARED_BASE, SHARED_START
from .bounds import owned, report_lanes, straight, without
from .copies import ENTRY_DST, SETTLE
from .shape import Variable, bits, each_lane, function, get, loop, put, report, symbol, when
from .watch import Access, Instrumentation

_LANES32, _LANES64 = vec("i32"), vec("i64")
_PLACE = [("ptr", "warp"), (_LANES32, "address"), ("i32", "mask"), ("i32", "site")]
_ARRIVALS = ("mbarrier.arrive", "mbarrier.arrive.keep", "mbarrier.drop", "mbarrier.drop.keep")


def build_mbarrier(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    if name in _ARRIVALS:
        return [_arrive(name, watch)]
    match name:
        case "mbarrier.init":
            return [_init(name, watch)]
        case "mbarrier.inval":
            return [_inval(name, watch)]
        case "mbarrier.test.state" | "mbarrier.test.parity":
            return [_test(name, watch)]
        case "mbarrier.expect":
            return [_expect(name, watch)]
        case "mbarrier.expect_tx" | "mbarrier.complete_tx":
            return [_bytes(name, watch)]
        case "mbarrier.land":
            return [_land(name, watch)]
        case "mbarrier.landed":
            return [_landed(name)]
    raise Unsupported(f"runtime function {name}")


# -- words --------------------------------------------------------------------------------------------------------


def _valid(b: Builder) -> Value:
    """Return the lanes whose address can hold an mbarrier; the others are reported."""
    address, mask = b.param("address"), b.param("mask")
    offsets = b.op("sub", address, const(_LANES32, SHARED_START))
    inside, aligned = owned(b, "shared", offsets, mask, 8), straight(b, offsets, 8)
    generic = _generic(b, address)
    report_lanes(b, OUT_OF_BOUNDS, without(b, mask, inside), generic)
    report_lanes(b, MISALIGNED, without(b, b.op("and", mask, inside), aligned), generic)
    return b.op("and", mask, b.op("and", inside, aligned))


def _generic(b: Builder, address: Value) -> Value:
    return b.op("add", b.cast("zext", address, _LANES64), const(_LANES64, SHARED_BASE))


def _written(b: Builder, watch: Instrumentation, lanes: Value) -> None:
    offsets = b.op("sub", b.param("address"), const(_LANES32, SHARED_START))
    watch.access(b, Access(True, "shared", 8, offsets, lanes, contiguous=False))


def _used(b: Builder, watch: Instrumentation, address: Value, lanes: Value, words: Value) -> None:
    offsets = b.op("sub", address, const(_LANES32, SHARED_START))
    watch.access(b, Access(False, "shared", 8, offsets, lanes, contiguous=False, atomic=True, words=words))


def _slot(b: Builder, words: Value, lane: Value) -> Value:
    return b.offset(words, b.op("shl", b.cast("zext", lane, "i64"), const("i64", 3)))


def _words(b: Builder) -> Value:
    """Return memory for a word per lane."""
    room = b.alloca(_LANES64)
    b.store(const(_LANES64, 0), room, align=64)
    return room


def _word(b: Builder, address: Value, lane: Value) -> Value:
    """Return the host address of the word of one lane."""
    at = b.cast("zext", b.extract(address, lane), "i64")
    return b.offset(get(b, b.param("warp"), WARP_SHARED), at)


def _pending(b: Builder, address: Value, lane: Value) -> Value:
    """Return the host address of the pending bytes (i32) of one lane's mbarrier."""
    return pending_at(b, b.param("warp"), b.extract(address, lane))


def pending_at(b: Builder, warp: Value, address: Value) -> Value:
    """Return the host address of the pending bytes of the mbarrier at an address: they follow shared memory."""
    limit = b.op("add", get(b, warp, WARP_SHARED_LIMIT), const("i64", 63))
    half = b.op("lshr", b.cast("zext", address, "i64"), const("i64", 1))
    return b.offset(get(b, warp, WARP_SHARED), b.op("add", b.op("and", limit, const("i64", -64)), half))


def _changes(b: Builder) -> None:
    """Note that an mbarrier changes: the threads that wait for one may go on."""
    put(b, get(b, b.param("warp"), WARP_WORKER), WORKER_FRUITLESS, const("i32", 0))


def _field(b: Builder, word: Value, shift: int, mask: int) -> Value:
    moved = b.op("lshr", word, const("i64", shift)) if shift else word
    return b.op("and", moved, const("i64", mask))


def _is_mbarrier(b: Builder, word: Value) -> Value:
    return b.icmp("eq", b.op("lshr", word, const("i64", MARK_SHIFT)), const("i64", MARK))


def _counted(b: Builder, word: Value, arrivals: Value, pending: Value) -> Value:
    """Return the word after some of the missing arrivals; the last one begins the next phase if no byte is pending."""
    left = b.op("sub", word, arrivals)
    following = _field(b, word, NEXT_SHIFT, COUNT_MASK)
    phase = b.op("add", _field(b, word, PHASE_SHIFT, PHASE_MASK), const("i64", 1))
    phase = b.op("shl", b.op("and", phase, const("i64", PHASE_MASK)), const("i64", PHASE_SHIFT))
    counts = b.op("or", following, b.op("shl", following, const("i64", NEXT_SHIFT)))
    begun = b.op("or", b.op("or", counts, phase), const("i64", MARK << MARK_SHIFT))
    last = b.icmp("eq", _field(b, left, 0, COUNT_MASK), const("i64", 0))
    return b.select(b.op("and", last, b.icmp("eq", pending, const("i32", 0))), begun, left)


def _report(b: Builder, bad: Variable) -> None:
    report_lanes(b, BAD_MBARRIER, bad.get(), _generic(b, b.param("address")))


def _mark(b: Builder, lanes: Variable, lane: Value) -> None:
    lanes.set(b.op("or", lanes.get(), b.op("shl", const("i32", 1), lane)))


# -- instructions --------------------------------------------------------------------------------------------------


def _init(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", [*_PLACE, (_LANES32, "count")])
    valid, bad = _valid(b), Variable(b, const("i32", 0))
    _written(b, watch, valid)
    with each_lane(b, valid) as lane:
        count = b.cast("zext", b.extract(b.param("count"), lane), "i64")
        fits = b.icmp("ult", b.op("sub", count, const("i64", 1)), const("i64", MOST_COUNT))
        word = b.op("or", count, b.op("shl", count, const("i64", NEXT_SHIFT)))
        word = b.op("or", word, const("i64", MARK << MARK_SHIFT))
        b.store(b.select(fits, word, const("i64", INVALID)), _word(b, b.param("address"), lane), align=8)
        b.store(const("i32", 0), _pending(b, b.param("address"), lane), align=4)
        with when(b, b.op("xor", fits, const("i1", 1)), likely=False):
            _mark(b, bad, lane)
    _report(b, bad)
    b.ret()
    return b


def _inval(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", _PLACE)
    valid, early = _valid(b), Variable(b, const("i32", 0))
    _written(b, watch, valid)
    with each_lane(b, valid) as lane:
        pending = b.load("i32", _pending(b, b.param("address"), lane), align=4)
        known = _is_mbarrier(b, b.load("i64", _word(b, b.param("address"), lane), align=8))
        with when(b, b.op("and", known, b.icmp("ne", pending, const("i32", 0))), likely=False):
            _mark(b, early, lane)
        b.store(const("i64", INVALID), _word(b, b.param("address"), lane), align=8)
    report_lanes(b, GIVEN_UP, early.get(), _generic(b, b.param("address")))
    b.ret()
    return b


def _arrive(name: str, watch: Instrumentation) -> Builder:
    b = function(name, _LANES64, [*_PLACE, (_LANES32, "count")])
    _changes(b)
    valid, bad = _valid(b), Variable(b, const("i32", 0))
    early = Variable(b, const("i32", 0))
    found = _words(b)
    with each_lane(b, valid) as lane:
        place = _word(b, b.param("address"), lane)
        word = b.load("i64", place, align=8)
        count = b.cast("zext", b.extract(b.param("count"), lane), "i64")
        missing = _field(b, word, 0, COUNT_MASK)
        possible = b.icmp("ult" if name.endswith("keep") else "ule", count, missing)
        possible = b.op("and", possible, b.op("and", _is_mbarrier(b, word), b.icmp("ne", count, const("i64", 0))))
        fewer = const("i64", 0)
        if "drop" in name:
            fewer = b.op("shl", count, const("i64", NEXT_SHIFT))
            possible = b.op("and", possible, b.icmp("ule", count, _field(b, word, NEXT_SHIFT, COUNT_MASK)))
        pending = b.load("i32", _pending(b, b.param("address"), lane), align=4)
        after = _counted(b, b.op("sub", word, fewer), count, pending)
        b.store(b.select(possible, after, word), place, align=8)
        b.store(word, _slot(b, found, lane), align=8)
        ended = b.op("and", possible, _differ(b, word, after))
        with when(b, b.op("and", ended, _has_bulk(b))):
            left = b.call(symbol("bulk.pending"), "i32", [b.param("warp"), b.extract(b.param("address"), lane)])
            with when(b, b.icmp("ne", left, const("i32", 0)), likely=False):
                _mark(b, early, lane)
        with when(b, b.op("xor", possible, const("i1", 1)), likely=False):
            _mark(b, bad, lane)
    _report(b, bad)
    report_lanes(b, EARLY_PHASE, early.get(), _generic(b, b.param("address")))
    _used(b, watch, b.param("address"), valid, found)
    b.ret(b.load(_LANES64, found, align=64))
    return b


def _test(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "i32", [*_PLACE, (_LANES64, "state")])
    valid = _valid(b)
    done, bad = Variable(b, const("i32", 0)), Variable(b, const("i32", 0))
    ended = _words(b)
    _settle(b, name, valid)
    with each_lane(b, valid) as lane:
        word = b.load("i64", _word(b, b.param("address"), lane), align=8)
        state = b.extract(b.param("state"), lane)
        over = _is_over(b, name, word, state)
        known = _is_mbarrier(b, word)
        b.store(b.op("sub", word, const("i64", 1 << PHASE_SHIFT)), _slot(b, ended, lane), align=8)
        with when(b, b.op("and", over, known)):
            _mark(b, done, lane)
        with when(b, b.op("xor", known, const("i1", 1)), likely=False):
            _mark(b, bad, lane)
    _report(b, bad)
    _used(b, watch, b.param("address"), done.get(), ended)
    with when(b, b.icmp("ne", done.get(), const("i32", 0))):
        _changes(b)
    with when(b, b.icmp("ne", done.get(), b.param("mask"))):
        put(b, b.param("warp"), WARP_SLICE, const("i64", 0))
        first = b.intrinsic("cttz", "i32", [without(b, b.param("mask"), done.get()), const("i1", 1)])
        put(b, b.param("warp"), WARP_POLLED, b.extract(b.param("address"), first))
    b.ret(done.get())
    return b


def _is_over(b: Builder, name: str, word: Value, state: Value) -> Value:
    """Return whether the phase that a state or a parity means is over."""
    phase = _field(b, word, PHASE_SHIFT, PHASE_MASK)
    if name.endswith("parity"):
        return b.icmp("ne", b.op("and", phase, const("i64", 1)), b.op("and", state, const("i64", 1)))
    return b.icmp("ne", phase, _field(b, state, PHASE_SHIFT, PHASE_MASK))


def _differ(b: Builder, word: Value, after: Value) -> Value:
    """Return whether two words have different phases."""
    return b.icmp("ne", _field(b, word, PHASE_SHIFT, PHASE_MASK), _field(b, after, PHASE_SHIFT, PHASE_MASK))


def _has_bulk(b: Builder) -> Value:
    """Return whether the CTA has bulk copies that are not carried out."""
    count = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BULK_COUNT)
    return b.icmp("ne", count, const("i32", 0))


def _settle(b: Builder, name: str, lanes: Value) -> None:
    """Carry out the copies that the lanes' mbarriers wait for, once for each mbarrier."""
    left = Variable(b, lanes)
    address = b.param("address")
    again, after = b.label("again"), b.label("settled")
    body = b.label("settle")
    b.place(again)
    b.cbr(b.icmp("eq", left.get(), const("i32", 0)), after, body)
    b.place(body)
    lane = b.intrinsic("cttz", "i32", [left.get(), const("i1", 1)])
    first = b.extract(address, lane)
    same = bits(b, b.icmp("eq", address, b.splat(first)))
    left.set(without(b, left.get(), same))
    b.call(symbol(SETTLE), "void", [b.param("warp"), first])
    more = Variable(b, const("i32", 1))
    with loop(b, lambda: b.op("and", _has_bulk(b), b.icmp("ne", more.get(), const("i32", 0)))):
        word = b.load("i64", _word(b, address, lane), align=8)
        over = _is_over(b, name, word, b.extract(b.param("state"), lane))
        more.set(const("i32", 0))
        with when(b, b.op("and", _is_mbarrier(b, word), b.op("xor", over, const("i1", 1)))):
            more.set(b.call(symbol("bulk.deliver"), "i32", [b.param("warp"), first]))
    b.br(again)
    b.place(after)


def _expect(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", _PLACE)
    valid, bad = _valid(b), Variable(b, const("i32", 0))
    with each_lane(b, valid) as lane:
        place = _word(b, b.param("address"), lane)
        word = b.load("i64", place, align=8)
        room = b.icmp("ult", _field(b, word, 0, COUNT_MASK), const("i64", MOST_COUNT))
        possible = b.op("and", room, _is_mbarrier(b, word))
        b.store(b.select(possible, b.op("add", word, const("i64", 1)), word), place, align=8)
        with when(b, b.op("xor", possible, const("i1", 1)), likely=False):
            _mark(b, bad, lane)
    _report(b, bad)
    b.ret()
    return b


def _bytes(name: str, watch: Instrumentation) -> Builder:
    """Add to the pending bytes, or subtract from them; the last byte begins the next phase if no arrival is missing."""
    b = function(name, "void", [*_PLACE, (_LANES32, "bytes")])
    _changes(b)
    valid, bad, words = _valid(b), Variable(b, const("i32", 0)), _words(b)
    with each_lane(b, valid) as lane:
        place, counter = _word(b, b.param("address"), lane), _pending(b, b.param("address"), lane)
        word, before = b.load("i64", place, align=8), b.load("i32", counter, align=4)
        b.store(word, _slot(b, words, lane), align=8)
        given = b.extract(b.param("bytes"), lane)
        after = b.op("add" if name.endswith("expect_tx") else "sub", before, given)
        size = b.intrinsic("abs", "i32", [after, const("i1", 0)])
        possible = b.op("and", _is_mbarrier(b, word), b.icmp("ule", size, const("i32", MOST_BYTES)))
        possible = b.op("and", possible, b.icmp("ule", given, const("i32", MOST_BYTES)))
        b.store(b.select(possible, after, before), counter, align=4)
        if name.endswith("complete_tx"):
            b.store(b.select(possible, _counted(b, word, const("i64", 0), after), word), place, align=8)
        with when(b, b.op("xor", possible, const("i1", 1)), likely=False):
            _mark(b, bad, lane)
    _report(b, bad)
    if name.endswith("complete_tx"):
        _used(b, watch, b.param("address"), without(b, valid, bad.get()), words)
    b.ret()
    return b


def _landed(name: str) -> Builder:
    """Subtract the bytes of a bulk load; return whether the phase ends by them."""
    params = [("ptr", "warp"), *(("i32", given) for given in ("address", "bytes", "lane", "site"))]
    b = function(name, "i32", params)
    _changes(b)
    wide = b.cast("zext", b.param("address"), "i64")
    place = b.offset(get(b, b.param("warp"), WARP_SHARED), wide)
    counter = pending_at(b, b.param("warp"), b.param("address"))
    word = b.load("i64", place, align=8)
    after = b.op("sub", b.load("i32", counter, align=4), b.param("bytes"))
    size = b.intrinsic("abs", "i32", [after, const("i1", 0)])
    possible = b.op("and", _is_mbarrier(b, word), b.icmp("ule", size, const("i32", MOST_BYTES)))
    with when(b, b.op("xor", possible, const("i1", 1)), likely=False):
        report(b, BAD_MBARRIER, b.param("lane"), b.op("add", wide, const("i64", SHARED_BASE)))
        b.ret(const("i32", 0))
    b.store(after, counter, align=4)
    counted = _counted(b, word, const("i64", 0), after)
    b.store(counted, place, align=8)
    b.ret(b.cast("zext", _differ(b, word, counted), "i32"))
    return b


def _land(name: str, watch: Instrumentation) -> Builder:
    """Count the arrivals that `lanes` of a queue entry announced, because their copies are complete."""
    b = function(name, "void", [("ptr", "warp"), ("ptr", "record"), ("i32", "lanes"), ("i32", "site")])
    _changes(b)
    address = b.load(_LANES32, b.offset(b.param("record"), ENTRY_DST.at), align=4)
    bad, found = Variable(b, const("i32", 0)), _words(b)
    with each_lane(b, b.param("lanes")) as lane:
        place = _word(b, address, lane)
        word = b.load("i64", place, align=8)
        b.store(word, _slot(b, found, lane), align=8)
        missing = b.icmp("ne", _field(b, word, 0, COUNT_MASK), const("i64", 0))
        possible = b.op("and", missing, _is_mbarrier(b, word))
        pending = b.load("i32", _pending(b, address, lane), align=4)
        b.store(b.select(possible, _counted(b, word, const("i64", 1), pending), word), place, align=8)
        with when(b, b.op("xor", possible, const("i1", 1)), likely=False):
            _mark(b, bad, lane)
    report_lanes(b, BAD_MBARRIER, bad.get(), _generic(b, address))
    _used(b, watch, address, b.param("lanes"), found)
    b.ret()
    return b


assert NEXT_SHIFT == COUNT_BITS
