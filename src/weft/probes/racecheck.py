"""racecheck, first pass: accesses of two warps to the same byte of shared memory with no barrier in between.

One shadow byte per byte says who touched it since the last barrier of the whole CTA; w is a warp's number plus one:

    0           nobody                      0x40 | w   written by w, perhaps read by w
    w           read by w alone             0x80 | w   changed atomically by w alone (0xBF: by several warps)
    0x3F        read by several warps       0xC0 | w   a copy issued by w is on its way

A conflict shows at its second access, so one byte is enough to miss none: whoever comes second meets the first. Only
the copy's mark outlives a barrier: until its wait, nobody may touch the bytes, not even the warp that asked. Barriers
of a part of the CTA, locks and fences are not understood here: they may leave a false alarm, never hide a race
between warps. Races inside a warp are not looked for. Threads that have exited need not come to a barrier, as on the
hardware: it also ends what they did.
"""

from collections.abc import Sequence

from weft.vm.context import FIRST_PROBE_CODE, WARP_ID, WORKER_WARP_COUNT
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import SHARED_START
from weft.vm.runtime.shape import Variable, count_range, each_lane, function, get, loop, symbol, when

from .shadow import Piece, any_of, either, read_rows, read_shadow
from .shared_probe import SharedProbe, Touch, shadow_bytes, shadow_size

WRITE_WRITE, READ_AFTER_WRITE, WRITE_AFTER_READ, IN_FLIGHT = range(FIRST_PROBE_CODE + 1, FIRST_PROBE_CODE + 5)
_READERS, _WRITTEN, _ATOMIC, _ATOMICS, _FLIGHT = 0x3F, 0x40, 0x80, 0xBF, 0xC0
_REPORT = "probe.race.report"
_LINE = "<64 x i8>"


class RaceCheck(SharedProbe):
    """Finds R101 to R104."""

    name = "race"
    codes = {  # noqa: RUF012
        WRITE_WRITE: (
            "R101",
            "write-write race: another warp wrote {address:#x} too · cure: a barrier between the two",
        ),
        READ_AFTER_WRITE: (
            "R102",
            "read-after-write race: another warp wrote {address:#x} · cure: a barrier before this read",
        ),
        WRITE_AFTER_READ: (
            "R103",
            "write-after-read race: another warp read {address:#x} · cure: a barrier before this write",
        ),
        IN_FLIGHT: (
            "R104",
            "access at {address:#x} while an asynchronous copy to it is in flight · cure: wait for the copy first",
        ),
    }

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return shadow_bytes(shared_limit)

    def cta(self, b: Builder, worker: Value) -> None:
        args = [self.memory(b, worker), const("i8", 0), shadow_size(b, worker), const("i1", 0)]
        b.intrinsic("memset", "void", args, overloads=["ptr", "i64"])

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        """Forget all but copies on their way. One warp alone cannot race with another."""
        several = b.icmp("ugt", get(b, worker, WORKER_WARP_COUNT), const("i32", 1))
        with when(b, b.op("and", everyone, several)):
            shadow, size = self.memory(b, worker), shadow_size(b, worker)
            at = Variable(b, const("i64", 0))
            with loop(b, lambda: b.icmp("ult", at.get(), size)):
                place = b.offset(shadow, at.get())
                old = b.load(_LINE, place, align=64)
                flying = b.icmp("uge", old, const(_LINE, _FLIGHT))
                b.store(b.select(flying, old, const(_LINE, 0)), place, align=64)
                at.set(b.op("add", at.get(), const("i64", 64)))

    def touch(self, b: Builder, touch: Touch) -> None:
        shadow = self.memory_of_warp(b)
        number = b.cast("trunc", get(b, b.param("warp"), WARP_ID), "i8")
        me = b.op("add", number, const("i8", 1))
        if not touch.rows:
            # Lanes that are off look like bytes that are already as this access leaves them.
            neutral = b.op("or", me, const("i8", _WRITTEN))
            _apply(b, touch, read_shadow(b, shadow, touch, neutral), me)
            return
        whole = b.icmp("eq", touch.lanes, const("i32", (1 << touch.rows) - 1))
        all_rows, some_rows, after = b.label("race.all"), b.label("race.some"), b.label("race.after")
        b.cbr(whole, all_rows, some_rows, likely=True)
        b.place(all_rows)
        _apply(b, touch, read_rows(b, shadow, touch), me)
        b.br(after)
        b.place(some_rows)
        _apply(b, touch, read_shadow(b, shadow, touch, b.op("or", me, const("i8", _WRITTEN))), me)
        b.place(after)

    def functions(self) -> Sequence[Builder]:
        return [self._report()]

    def _report(self) -> Builder:
        """Go over the bytes again and name, for each kind of conflict, the lanes and the first address."""
        params = [("ptr", "warp"), ("i32", "site"), (vec("i32"), "offsets"), ("i32", "bytes"), ("i32", "lanes")]
        b = function(_REPORT, "void", [*params, ("i32", "verb")])
        shadow = self.memory_of_warp(b)
        me = b.op("add", b.cast("trunc", get(b, b.param("warp"), WARP_ID), "i8"), const("i8", 1))
        kinds = (WRITE_WRITE, READ_AFTER_WRITE, WRITE_AFTER_READ, IN_FLIGHT)
        hit = {kind: Variable(b, const("i32", 0)) for kind in kinds}
        first = {kind: Variable(b, const("i32", 0)) for kind in kinds}
        with each_lane(b, b.param("lanes")) as lane, count_range(b, b.param("bytes")) as i:
            offset = b.op("add", b.extract(b.param("offsets"), lane), i)
            state = b.load("i8", b.offset(shadow, b.cast("zext", offset, "i64")))
            kind = _classify(b, state, me, b.param("verb"))
            for number in kinds:
                with when(b, b.icmp("eq", kind, const("i32", number))):
                    with when(b, b.icmp("eq", hit[number].get(), const("i32", 0))):
                        first[number].set(offset)
                    hit[number].set(b.op("or", hit[number].get(), b.op("shl", const("i32", 1), lane)))
        for number in kinds:
            with when(b, b.icmp("ne", hit[number].get(), const("i32", 0))):
                address = b.op("add", b.cast("zext", first[number].get(), "i64"), const("i64", SHARED_START))
                args = [b.param("warp"), const("i32", number), b.param("site"), hit[number].get(), address]
                b.call(symbol("report"), "void", args)
        b.ret()
        return b


_VERBS = ("load", "store", "atomic", "copy")


def _verb(touch: Touch) -> str:
    return "atomic" if touch.verb == "exchange" else touch.verb


def _apply(b: Builder, touch: Touch, pieces: Sequence[Piece], me: Value) -> None:
    """Report what conflicts, then write down who was here."""
    verb = _verb(touch)
    if verb == "land":  # judged when it was issued; whoever came in between was reported then
        for piece in pieces:
            piece.put(_all(b, piece, b.op("or", me, const("i8", _WRITTEN))))
        return
    with when(b, _any(b, [_restless(b, piece, me, verb) for piece in pieces])):
        with when(b, _any(b, [_conflict(b, piece.value, _all(b, piece, me), verb) for piece in pieces]), likely=False):
            args = [b.param("warp"), b.param("site"), touch.offsets, const("i32", touch.bytes), touch.lanes]
            b.call(symbol(_REPORT), "void", [*args, const("i32", _VERBS.index(verb))])
        for piece in pieces:
            piece.put(_after(b, piece.value, _all(b, piece, me), verb))


def _all(b: Builder, piece: Piece, scalar: Value) -> Value:
    return b.splat(scalar, int(piece.value.ty[1 : piece.value.ty.index(" ")]))


def _any(b: Builder, flags: list[Value]) -> Value:
    return any_of(b, either(b, flags, "or"))


def _mark(b: Builder, me: Value, bit: int) -> Value:
    return b.op("or", me, const(me.ty, bit))


def _is_none_of(b: Builder, state: Value, others: list[Value]) -> Value:
    return either(b, [b.icmp("ne", state, other) for other in others], "and")


def _restless(b: Builder, piece: Piece, me: Value, verb: str) -> Value:
    """<N x i1>: bytes that this access changes or conflicts with."""
    state, mine = piece.value, _all(b, piece, me)
    settled = [_mark(b, mine, _WRITTEN)]
    if verb == "load":
        settled += [mine, const(state.ty, _READERS)]
    elif verb == "copy":
        settled = [_mark(b, mine, _FLIGHT)]
    return _is_none_of(b, state, settled)


def _conflict(b: Builder, state: Value, me: Value, verb: str) -> Value:
    """<N x i1>, or i1 for one byte: somebody else was here in a way that this access may not meet."""
    if verb == "load":
        written = b.icmp("uge", state, const(state.ty, _WRITTEN))
        return b.op("and", written, _is_none_of(b, state, [_mark(b, me, _WRITTEN), _mark(b, me, _ATOMIC)]))
    peaceful = [const(state.ty, 0), me, _mark(b, me, _WRITTEN)]
    if verb == "atomic":
        kind = b.op("and", state, const(state.ty, 0xC0))
        foreign = b.icmp("ne", kind, const(state.ty, _ATOMIC))
        return b.op("and", foreign, _is_none_of(b, state, peaceful))
    peaceful.append(_mark(b, me, _ATOMIC))
    if verb == "copy":
        peaceful.append(_mark(b, me, _FLIGHT))
    return _is_none_of(b, state, peaceful)


def _after(b: Builder, state: Value, me: Value, verb: str) -> Value:
    """The state an access leaves. A load that conflicts changes nothing; whoever writes takes the byte."""
    nobody = b.icmp("eq", state, const(state.ty, 0))
    written, atomic = _mark(b, me, _WRITTEN), _mark(b, me, _ATOMIC)
    if verb == "store":
        return written
    if verb == "copy":
        return _mark(b, me, _FLIGHT)
    if verb == "load":
        # A plain read beside one's own atomic: others' atomics conflict with it from now on.
        own = b.select(b.icmp("eq", state, atomic), written, state)
        unwritten = b.icmp("ult", state, const(state.ty, _WRITTEN))
        alone = b.op("or", nobody, b.icmp("eq", state, me))
        return b.select(unwritten, b.select(alone, me, const(state.ty, _READERS)), own)
    atomics = b.icmp("eq", b.op("and", state, const(state.ty, 0xC0)), const(state.ty, _ATOMIC))
    several = b.select(b.icmp("eq", state, atomic), atomic, const(state.ty, _ATOMICS))
    return b.select(nobody, atomic, b.select(atomics, several, written))


def _classify(b: Builder, state: Value, me: Value, verb: Value) -> Value:
    """Report number of one byte's conflict, or 0."""

    def number(value: int) -> Value:
        return const("i32", value)

    result = number(0)
    flying = b.icmp("uge", state, const("i8", _FLIGHT))
    unwritten = b.icmp("ult", state, const("i8", _WRITTEN))
    for index, name in enumerate(_VERBS):
        plain = number(READ_AFTER_WRITE)
        if name != "load":
            plain = b.select(unwritten, number(WRITE_AFTER_READ), number(WRITE_WRITE))
        kind = b.select(_conflict(b, state, me, name), b.select(flying, number(IN_FLIGHT), plain), number(0))
        result = b.select(b.icmp("eq", verb, number(index)), kind, result)
    return result
