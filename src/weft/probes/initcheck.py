"""initcheck: reads of memory that nobody has written: shared and local since the CTA began, global since it was given.

Shadow byte: 0 = never written, 255 = written. Stores, asynchronous copies when they arrive, and atomics set it; loads,
ldmatrix, wmma loads and atomics look at it. An atomic exchange only sets: its result may go unused. Bytes of global
memory are only ever set while a launch runs, so workers that write neighbours do not disturb each other.

A read is not yet a fault: compilers widen loads over padding. `review` follows the values that were read in a second
run (`taint.py`) and keeps the reads that matter.
"""

from collections.abc import Sequence
from dataclasses import replace

from weft.core.records import Finding
from weft.vm.context import (
    WARP_WORKER,
    WORKER_LOCAL_BYTES,
    WORKER_LOCAL_WRITTEN,
    WORKER_WRITTEN,
)
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import GLOBAL_BASE, LOCAL_BASE, SHARED_START, WINDOW_BYTES
from weft.vm.runtime.shape import bits, get, symbol, when
from weft.vm.runtime.watch import Access, Scene

from .initcheck_local import LOCAL_SIZES, local_function, local_name
from .initcheck_registers import unset_variables
from .initcheck_reports import CODES, TABLE_BYTES, UNWRITTEN_GLOBAL, UNWRITTEN_SHARED, report_function
from .initcheck_review import review
from .shadow import Piece, any_of, either, read_rows, read_shadow
from .shared_probe import SharedProbe, Touch, shadow_bytes, shadow_size, touch_of, verb_of

_REPORT = "probe.init.report"
_WRITTEN = const("i8", 0xFF)
_GLOBAL_LIMIT = WINDOW_BYTES << 12


class InitCheck(SharedProbe):
    """Finds I201 (shared), I202 (global) and I203 (local)."""

    name = "init"
    codes = CODES
    keeps_written = True

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return shadow_bytes(shared_limit) + TABLE_BYTES

    def review(self, findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
        return review(findings, scene)

    # -- events --------------------------------------------------------------------------------------------------

    def cta(self, b: Builder, worker: Value) -> None:
        local = get(b, worker, WORKER_LOCAL_WRITTEN), get(b, worker, WORKER_LOCAL_BYTES)
        for memory, size in ((self.memory(b, worker), shadow_size(b, worker)), local):
            b.intrinsic("memset", "void", [memory, const("i8", 0), size, const("i1", 0)], overloads=["ptr", "i64"])

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
                b.call(symbol(local_name(verb, event.bytes)), "void", args)

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
        sizes = [(verb, size) for verb in ("load", "store") for size in LOCAL_SIZES]
        return [
            report_function(self, _REPORT, local=False),
            report_function(self, f"{_REPORT}.local", local=True),
            *(local_function(verb, size, f"{_REPORT}.local") for verb, size in sizes),
        ]


class DebugInitCheck(InitCheck):
    """InitCheck for -G builds: there a variable that no path has set is a register that no path has set."""

    reviews_always = True

    def review(self, findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
        return review(findings, scene) + unset_variables(scene)


def _unwritten(b: Builder, pieces: Sequence[Piece]) -> Value:
    """Whether any byte is still 0. Bytes are 0 or 255, so pieces of one size can be joined by `and` first."""
    whole = either(b, [piece.value for piece in pieces], "and")
    return any_of(b, b.icmp("ne", whole, const(whole.ty, 0xFF)))


def _mark(b: Builder, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece.put(const(piece.value.ty, 0xFF))
