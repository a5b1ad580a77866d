"""initcheck: reads of shared memory that nobody has written since the CTA began.

Shadow byte: 0 = never written, 255 = written. Stores, asynchronous copies when they arrive, and atomics set it; loads,
ldmatrix, wmma loads and atomics look at it. An atomic exchange only sets: its result may go unused.
"""

from collections.abc import Sequence

from weft.vm.context import FIRST_PROBE_CODE, WARP_WORKER
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import SHARED_START
from weft.vm.runtime.shape import Variable, count_range, each_lane, function, get, symbol, when

from .shadow import Piece, any_of, either, read_rows, read_shadow
from .shared_probe import SharedProbe, Touch, shadow_bytes, shadow_size

UNWRITTEN = FIRST_PROBE_CODE
_REPORT = "probe.init.report"
_WRITTEN = const("i8", 0xFF)


class InitCheck(SharedProbe):
    """Finds I201."""

    name = "init"
    codes = {  # noqa: RUF012
        UNWRITTEN: (
            "I201",
            "uninitialised shared memory read at {address:#x} · cure: write it, or wait for its copy, before",
        )
    }

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return shadow_bytes(shared_limit)

    def cta(self, b: Builder, worker: Value) -> None:
        args = [self.memory(b, worker), const("i8", 0), shadow_size(b, worker), const("i1", 0)]
        b.intrinsic("memset", "void", args, overloads=["ptr", "i64"])

    def touch(self, b: Builder, touch: Touch) -> None:
        if touch.verb == "copy":
            return
        shadow = self.memory_of_warp(b)
        if touch.rows:
            self._rows(b, shadow, touch)
            return
        pieces = read_shadow(b, shadow, touch, _WRITTEN)
        if touch.verb in ("load", "atomic"):
            self._check(b, touch, pieces)
        if touch.verb != "load":
            # A scatter costs more than the look that may save it; a run does not.
            if touch.contiguous or touch.lines is not None:
                _mark(b, pieces)
            else:
                with when(b, _unwritten(b, pieces)):
                    _mark(b, pieces)

    def _rows(self, b: Builder, shadow: Value, touch: Touch) -> None:
        """ldmatrix: straight over its rows if all are named."""
        whole = b.icmp("eq", touch.lanes, const("i32", (1 << touch.rows) - 1))
        all_rows, some_rows, after = b.label("init.all"), b.label("init.some"), b.label("init.after")
        b.cbr(whole, all_rows, some_rows, likely=True)
        b.place(all_rows)
        self._check(b, touch, read_rows(b, shadow, touch))
        b.br(after)
        b.place(some_rows)
        self._check(b, touch, read_shadow(b, shadow, touch, _WRITTEN))
        b.place(after)

    def _check(self, b: Builder, touch: Touch, pieces: Sequence[Piece]) -> None:
        with when(b, _unwritten(b, pieces), likely=False):
            args = [b.param("warp"), b.param("site"), touch.offsets, const("i32", touch.bytes), touch.lanes]
            b.call(symbol(_REPORT), "void", args)

    def functions(self) -> Sequence[Builder]:
        return [self._report()]

    def _report(self) -> Builder:
        """Which lanes read an unwritten byte, and the first such address."""
        params = [("ptr", "warp"), ("i32", "site"), (vec("i32"), "offsets"), ("i32", "bytes"), ("i32", "lanes")]
        b = function(_REPORT, "void", params)
        shadow = self.memory(b, get(b, b.param("warp"), WARP_WORKER))
        hit, first = Variable(b, const("i32", 0)), Variable(b, const("i32", 0))
        with each_lane(b, b.param("lanes")) as lane, count_range(b, b.param("bytes")) as i:
            offset = b.op("add", b.extract(b.param("offsets"), lane), i)
            state = b.load("i8", b.offset(shadow, b.cast("zext", offset, "i64")))
            with when(b, b.icmp("eq", state, const("i8", 0))):
                with when(b, b.icmp("eq", hit.get(), const("i32", 0))):
                    first.set(offset)
                hit.set(b.op("or", hit.get(), b.op("shl", const("i32", 1), lane)))
        address = b.op("add", b.cast("zext", first.get(), "i64"), const("i64", SHARED_START))
        args = [b.param("warp"), const("i32", UNWRITTEN), b.param("site"), hit.get(), address]
        b.call(symbol("report"), "void", args)
        b.ret()
        return b


def _unwritten(b: Builder, pieces: Sequence[Piece]) -> Value:
    """Whether any byte is still 0. Bytes are 0 or 255, so pieces of one size can be joined by `and` first."""
    whole = either(b, [piece.value for piece in pieces], "and")
    return any_of(b, b.icmp("ne", whole, const(whole.ty, 0xFF)))


def _mark(b: Builder, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece.put(const(piece.value.ty, 0xFF))
