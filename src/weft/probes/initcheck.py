"""initcheck: reads of memory that was never written: shared and local since the CTA began, global since it was given.

Shadow byte: 0 = never written, 255 = written. Stores, asynchronous copies when they arrive, and atomics set it; loads,
ldmatrix, wmma loads and atomics check it. An atomic exchange only sets it: its result may be unused. Bytes of global
memory are only ever set while a launch runs, so workers that write neighbouring bytes do not disturb each other. The
system's part of shared memory (`RESERVED` in `vm/layout.py`) counts as written.

A read alone is not an error: compilers widen loads over padding. `review` follows the values that were read in a
second run (`taint.py`) and keeps the reads that have an effect.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.core.records import Finding
from weft.vm.context import (
    WARP_LOCAL_WRITTEN,
    WARP_WORKER,
    WORKER_LOCAL_BYTES,
    WORKER_LOCAL_WRITTEN,
    WORKER_RESERVED,
    WORKER_RESERVED_BYTES,
    WORKER_WRITTEN,
)
from weft.vm.ir import LANES, Builder, Value, const, vec
from weft.vm.memory import GLOBAL_BASE, LOCAL_BASE, SHARED_START, WINDOW_BYTES
from weft.vm.runtime.shape import LANE_NUMBERS, bits, function, get, symbol, unbits, when
from weft.vm.runtime.watch import Access, Scene

from .initcheck_reports import (
    CODES,
    TABLE_BYTES,
    UNWRITTEN_GLOBAL,
    UNWRITTEN_LOCAL,
    UNWRITTEN_SHARED,
    interleaved,
    report_function,
)
from .initcheck_review import review, review_debug_build
from .shadow import Piece, any_of, either, gather, read_rows, read_shadow, scatter
from .shared_probe import ROW_BYTES, SharedProbe, Touch, shadow_bytes, shadow_size, touch_of, verb_of

_REPORT = "probe.init.report"
_LOCAL_SIZES = (1, 2, 4, 8, 16, 32)
_WORDS = vec("i32")
_LINE_BYTES = 4 * LANES
_WRITTEN = const("i8", 0xFF)
_GLOBAL_LIMIT = WINDOW_BYTES << 12


class InitCheck(SharedProbe):
    """Finds I201 (shared), I202 (global) and I203 (local)."""

    name = "init"
    codes = CODES
    keeps_written = True
    sees_bulk = True
    sees_peers = True

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return shadow_bytes(shared_limit) + TABLE_BYTES

    def review(self, findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
        return review(findings, scene)

    # -- events --------------------------------------------------------------------------------------------------

    def cta(self, b: Builder, worker: Value) -> None:
        local = get(b, worker, WORKER_LOCAL_WRITTEN), get(b, worker, WORKER_LOCAL_BYTES)
        for memory, size in ((self.memory(b, worker), shadow_size(b, worker)), local):
            b.intrinsic("memset", "void", [memory, const("i8", 0), size, const("i1", 0)], overloads=["ptr", "i64"])
        size = get(b, worker, WORKER_RESERVED_BYTES)
        with when(b, b.icmp("ne", size, const("i64", 0)), likely=False):
            offset = b.op("sub", get(b, worker, WORKER_RESERVED), const("i64", SHARED_START))
            args = [b.offset(self.memory(b, worker), offset), _WRITTEN, size, const("i1", 0)]
            b.intrinsic("memset", "void", args, overloads=["ptr", "i64"])

    def access(self, b: Builder, event: Access) -> None:
        super().access(b, event)
        verb = verb_of(event)
        if event.space == "global":
            self._global(b, replace(touch_of(event, verb), offsets=b.cast("trunc", event.offsets, vec("i32"))))
        elif event.space == "generic":
            self._generic_global(b, event, verb)
        if event.space in ("local", "generic") and not event.atomic and event.lines is None:
            into = b.op("sub", event.offsets, const(vec("i64"), LOCAL_BASE))
            near = b.op("and", bits(b, b.icmp("ult", into, const(vec("i64"), WINDOW_BYTES))), event.lanes)
            with when(b, b.icmp("ne", near, const("i32", 0))):
                args = [b.param("warp"), b.param("site"), b.cast("trunc", into, vec("i32")), near]
                b.call(symbol(_local_name(verb, event.bytes)), "void", args)

    def _generic_global(self, b: Builder, event: Access, verb: str) -> None:
        into = b.op("sub", event.offsets, const(vec("i64"), GLOBAL_BASE))
        near = b.op("and", bits(b, b.icmp("ult", into, const(vec("i64"), _GLOBAL_LIMIT))), event.lanes)
        with when(b, b.icmp("ne", near, const("i32", 0))):
            lines = event.lines
            if lines is not None:
                lines = replace(lines, start=b.op("sub", lines.start, const("i64", GLOBAL_BASE)))
            self._global(b, Touch(verb, event.bytes, b.cast("trunc", into, vec("i32")), near, lines=lines))

    def _global(self, b: Builder, touch: Touch) -> None:
        shadow = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_WRITTEN)
        self._apply(b, touch, shadow, UNWRITTEN_GLOBAL)

    def touch(self, b: Builder, touch: Touch) -> None:
        if touch.verb != "copy":
            self._apply(b, touch, self.memory_of_warp(b), UNWRITTEN_SHARED)

    # -- the check -----------------------------------------------------------------------------------------------

    def _apply(self, b: Builder, touch: Touch, shadow: Value, code: int) -> None:
        if touch.rows:
            self._rows(b, shadow, touch)
            return
        pieces = read_shadow(b, shadow, touch, _WRITTEN)
        if touch.verb in ("load", "atomic"):
            self._check(b, touch, pieces, shadow, code)
        if touch.verb != "load":
            # A scatter costs more than the check that may avoid it; a contiguous run does not.
            if touch.contiguous or touch.lines is not None:
                _mark(b, pieces)
            else:
                with when(b, _unwritten(b, pieces)):
                    _mark(b, pieces)

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        """Padding need not be written."""
        if used == ROW_BYTES:
            super().tile_rows(b, offsets, lanes, rows, used)
            return
        self.touch(b, Touch("load", 8, offsets, lanes))
        if used == 12:
            self.touch(b, Touch("load", 4, b.op("add", offsets, const(offsets.ty, 8)), lanes))

    def _rows(self, b: Builder, shadow: Value, touch: Touch) -> None:
        """ldmatrix: without a loop over lanes if all its rows are given."""
        whole = b.icmp("eq", touch.lanes, const("i32", (1 << touch.rows) - 1))
        all_rows, some_rows, after = b.label("init.all"), b.label("init.some"), b.label("init.after")
        b.cbr(whole, all_rows, some_rows, likely=True)
        b.place(all_rows)
        self._check(b, touch, read_rows(b, shadow, touch), shadow, UNWRITTEN_SHARED)
        b.br(after)
        b.place(some_rows)
        self._check(b, touch, read_shadow(b, shadow, touch, _WRITTEN), shadow, UNWRITTEN_SHARED)
        b.place(after)

    def _check(self, b: Builder, touch: Touch, pieces: Sequence[Piece], shadow: Value, code: int) -> None:
        with when(b, _unwritten(b, pieces), likely=False):
            base = GLOBAL_BASE if code == UNWRITTEN_GLOBAL else SHARED_START
            where = [shadow, const("i64", base), touch.offsets, const("i32", touch.bytes), touch.lanes]
            b.call(symbol(_REPORT), "void", [b.param("warp"), b.param("site"), const("i32", code), *where])

    def functions(self) -> Sequence[Builder]:
        sizes = [(verb, size) for verb in ("load", "store") for size in _LOCAL_SIZES]
        return [
            report_function(self, _REPORT, local=False),
            report_function(self, f"{_REPORT}.local", local=True),
            *(_local_function(verb, size, f"{_REPORT}.local") for verb, size in sizes),
        ]


class DebugInitCheck(InitCheck):
    """InitCheck for -G builds: there a variable that no path has set is a register that no path has set."""

    reviews_always = True

    def review(self, findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
        return review_debug_build(findings, scene)


def _unwritten(b: Builder, pieces: Sequence[Piece]) -> Value:
    """i1: whether any byte is still 0. Bytes are 0 or 255, so pieces of one size can be joined by `and` first."""
    whole = either(b, [piece.value for piece in pieces], "and")
    return any_of(b, b.icmp("ne", whole, const(whole.ty, 0xFF)))


def _mark(b: Builder, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece.put(const(piece.value.ty, 0xFF))


def _local_name(verb: str, size: int) -> str:
    """Return the name of the runtime function for an access of `size` bytes per lane."""
    return f"probe.init.local.{verb}.{size}"


def _local_function(verb: str, size: int, report: str) -> Builder:
    """Check or mark the bytes of the active lanes; `report` is called for those that were not written.

    Local memory is interleaved by lane, so its shadow is checked word by word.
    """
    params = [("ptr", "warp"), ("i32", "site"), (_WORDS, "offsets"), ("i32", "lanes")]
    b = function(_local_name(verb, size), "void", params)
    offsets, lanes = b.param("offsets"), b.param("lanes")
    shadow = get(b, b.param("warp"), WARP_LOCAL_WRITTEN)
    aligned = b.op("and", offsets, const(_WORDS, -4))
    first = b.cast("zext", interleaved(b, aligned, LANE_NUMBERS), vec("i64"))
    on = unbits(b, lanes)
    # The bytes of each word that the access covers, as bits; a wide access covers all bytes of its words.
    covered = const(_WORDS, -1)
    if size < 4:
        shift = b.op("shl", b.op("and", offsets, const(_WORDS, 3)), const(_WORDS, 3))
        covered = b.op("shl", const(_WORDS, (1 << 8 * size) - 1), shift)
    missing = const("i32", 0)
    for word in range(max(size // 4, 1)):
        places = b.offset(b.offset(shadow, word * _LINE_BYTES), first)
        known = gather(b, places, on, const(_WORDS, -1))
        if verb == "store":
            scatter(b, b.op("or", known, covered), places, on)
        else:
            missing = b.op("or", missing, bits(b, b.icmp("ne", b.op("and", known, covered), covered)))
    if verb == "load":
        _report(b, b.op("and", missing, lanes), size, report, shadow)
    b.ret()
    return b


def _report(b: Builder, missing: Value, size: int, report: str, shadow: Value) -> None:
    with when(b, b.icmp("ne", missing, const("i32", 0)), likely=False):
        where = [shadow, const("i64", LOCAL_BASE), b.param("offsets"), const("i32", size), missing]
        b.call(symbol(report), "void", [b.param("warp"), b.param("site"), const("i32", UNWRITTEN_LOCAL), *where])
