"""The base of the probes of shared memory: every event that accesses it becomes one `Touch`.

Generic accesses are reduced to the lanes that are in shared memory; ldmatrix is a load of 16 bytes per lane. A
probe defines what to do at a `Touch`; it need not distinguish instructions.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self

from weft.vm.context import WARP_WORKER, WORKER_PROBE, WORKER_SHARED_BYTES
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import SHARED_BASE, SHARED_START, WINDOW_BYTES
from weft.vm.runtime.shape import bits, get, when
from weft.vm.runtime.watch import Access, Instrumentation, Lines

ALIGN = 64
ROW_BYTES = 16
"""A row of a matrix of ldmatrix."""


@dataclass(frozen=True)
class Touch:
    """A warp's access to shared memory; offsets count from SHARED_START."""

    verb: str
    """`load`, `store`, `atomic`, `exchange`, `copy` (issued) or `land` (its bytes arrive)."""
    bytes: int
    """Per lane."""
    offsets: Value
    """<32 x i32>."""
    lanes: Value
    """i32 mask; may be empty at run time."""
    contiguous: bool = False
    uniform: bool = False
    lines: Lines | None = None
    """Where known: the same bytes as lines. Start and step are i64."""
    rows: int = 0
    """ldmatrix: how many lanes, from the first on, should give a row; never contiguous or uniform."""


def touch_of(event: Access, verb: str) -> Touch:
    """Return the Touch of an access to the shared window itself."""
    return Touch(verb, event.bytes, event.offsets, event.lanes, event.contiguous, event.uniform, event.lines)


def verb_of(event: Access) -> str:
    """Return the verb of the Touch that an access becomes."""
    if event.copied:
        return "land"
    if event.atomic:
        return "exchange" if event.store else "atomic"
    return "store" if event.store else "load"


class SharedProbe(Instrumentation):
    """A probe that receives the accesses to shared memory as `Touch` values."""

    name = ""
    slot: int | None = None
    """With several probes: the index of this probe's pointer at the head of the worker's probe memory."""

    def __init__(self) -> None:
        # The probe's own source is part of the key: compiled functions of another version are never loaded.
        self.key = f"{self.name}-{source_digest()}"

    def at_slot(self, slot: int) -> Self:
        """Return this probe with its memory at pointer `slot`."""
        other = type(self)()
        other.slot = slot
        return other

    def touch(self, b: Builder, touch: Touch) -> None:
        """Build the code for one access; the function being built has `warp` and `site` parameters."""
        raise NotImplementedError

    def access(self, b: Builder, event: Access) -> None:
        verb = verb_of(event)
        if event.space == "shared":
            self.touch(b, touch_of(event, verb))
        elif event.space == "generic":
            _generic(b, self, event, verb)

    def copy(self, b: Builder, event: Access) -> None:
        self.touch(b, touch_of(event, "copy"))

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        self.touch(b, Touch("load", ROW_BYTES, offsets, lanes, rows=rows))

    def memory(self, b: Builder, worker: Value) -> Value:
        """The probe's memory."""
        start = get(b, worker, WORKER_PROBE)
        return start if self.slot is None else b.load("ptr", b.offset(start, 8 * self.slot), align=8)

    def memory_of_warp(self, b: Builder) -> Value:
        """The same where there is a `warp` parameter."""
        return self.memory(b, get(b, b.param("warp"), WARP_WORKER))


def _generic(b: Builder, probe: SharedProbe, event: Access, verb: str) -> None:
    """Handle the lanes of a generic access that are in shared memory; a tile is entirely in one window."""
    into = b.op("sub", event.offsets, const(vec("i64"), SHARED_BASE))
    near = b.op("and", bits(b, b.icmp("ult", into, const(vec("i64"), WINDOW_BYTES))), event.lanes)
    with when(b, b.icmp("ne", near, const("i32", 0))):
        offsets = b.op("sub", b.cast("trunc", into, vec("i32")), const(vec("i32"), SHARED_START))
        lines = event.lines
        if lines is not None:
            start = b.op("sub", lines.start, const("i64", SHARED_BASE + SHARED_START))
            lines = replace(lines, start=start)
        probe.touch(b, Touch(verb, event.bytes, offsets, near, lines=lines))


def shadow_bytes(shared_limit: int) -> int:
    """Return the size of a shadow with a byte for each byte of shared memory; a word may be read across the end."""
    return -(-(shared_limit - SHARED_START + 4) // ALIGN) * ALIGN


def shadow_size(b: Builder, worker: Value) -> Value:
    """The same in compiled code, as i64."""
    limit = get(b, worker, WORKER_SHARED_BYTES)
    grown = b.op("add", limit, const("i64", 4 + ALIGN - 1 - SHARED_START))
    return b.op("and", grown, const("i64", -ALIGN))


@cache
def source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
