"""racecheck, first pass: which CTAs may have a race in shared memory. It may suspect too much, never too little.

Global memory has a separate first pass (`global_race.py`).

One shadow byte per byte holds who accessed it since the last barrier of the entire CTA; w is a warp's number plus one:

    0           no access                   0x40 | w   written by w, perhaps read by w
    w           read by w alone             0x80 | w   changed atomically by w alone (0xBF: by several warps)
    0x3F        read by several warps       0xC0 | w   a copy issued by w is in flight
                                            0x7F       the same value written by several warps (second look only)

A second shadow (`lane_shadow.py`) holds which lane of w it was since the warp's last synchronisation. A conflict is
detected at its second access, so none is missed. Only the mark of a copy outlives a barrier: until its wait, no lane
may access the bytes, not even the lane that issued the copy. Barriers of a part of the CTA or of a warp, locks and
fences are not modelled here. A CTA with a suspicious access is run again: `SecondLook` drops those in which threads
only stored the same value, the rest is judged exactly (`race_review.py`), and only what that finds is a finding.
A CTA with bulk copies or products of a warpgroup is judged exactly, too, or like one that did the same
(`race_streams.py`): the shadows do not follow these. So is a cluster whose CTAs access each other's shared memory, as a
whole.
Threads that have exited need not reach a barrier, as on the hardware: it also orders what they did.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import FINDING_CODES
from weft.core.records import Finding
from weft.vm.context import (
    FIRST_PROBE_CODE,
    WARP_BYTES,
    WARP_COPY_COUNT,
    WARP_ID,
    WARP_LIVE,
    WARP_WORKER,
    WORKER_BOARD,
    WORKER_CTA,
    WORKER_WARP_COUNT,
    WORKER_WARPS,
)
from weft.vm.ir import LANES, Builder, Value, const, lanes_of, vec
from weft.vm.memory import GlobalMemory
from weft.vm.runtime.access_name import parse_name
from weft.vm.runtime.shape import (
    PREFIX,
    Variable,
    bits,
    count_range,
    each_lane,
    function,
    get,
    loop,
    report,
    symbol,
    unbits,
    when,
)
from weft.vm.runtime.watch import Access, BulkCopy, Instrumentation, Scene

from . import global_race
from .combine import Probes
from .global_race import note
from .lane_shadow import EPOCH_SHIFT, LAST_EPOCH, SEVERAL, Entries, lanes_with, read_entries
from .race_alike import TAG_BYTES, forget_tags, leave_tags, only_alike
from .race_review import AT_THE_END, judge_buffers, judge_read_only, judge_suspects, unchecked_copies
from .race_step import IN_FLIGHT, READERS, STORED, Step
from .race_streams import Streams
from .shadow import any_of, either, read_rows, read_shadow
from .shared_probe import SharedProbe, Touch, shadow_bytes, shadow_size
from .stream import MOST_CTAS, Stream

if TYPE_CHECKING:
    from weft.vm.program import Plan

SUSPECT, AGENTS = FIRST_PROBE_CODE + 1, FIRST_PROBE_CODE + 2
_SUSPECT, _MEET = "probe.race.suspect", "probe.race.meet"
_LINE = "<64 x i8>"
_EPOCHS, _SUSPICIONS, _AGENTS, _SOURCES, _HEAD_BYTES = 0, 128, 132, 136, 192
_COPY_BYTES = 16
"""The largest copy of one lane."""
_REPORTS_PER_CTA = 16


class RaceCheck(SharedProbe):
    """Finds R101 to R109, S312, S313 and S316."""

    name = "race"
    codes = {SUSPECT: ("R102", "possible race"), AGENTS: ("R104", "asynchronous accesses")}  # noqa: RUF012
    keeps_before = True
    notices_writes = True
    reviews_always = True
    sees_peers = True

    def __init__(self, stream: Stream | None = None) -> None:
        super().__init__()
        self.stream = stream
        """The streams of the same run, if the kernel has agents: its CTAs are all judged exactly, or like another."""

    def at_slot(self, slot: int) -> Self:
        other = super().at_slot(slot)
        other.stream = self.stream
        return other

    def for_launch(self, plan: "Plan", ctas: int) -> Instrumentation:
        if not plan.has_agents or ctas > MOST_CTAS:
            return self
        stream = Stream(ctas)
        return Probes(RaceCheck(stream), stream)

    def review(self, findings: tuple[Finding, ...], scene: Scene) -> tuple[Finding, ...]:
        global_race.require_copies(scene)
        mine = {code for code, _ in self.codes.values()}
        streams = Streams(scene, self.stream.read()) if self.stream is not None else None
        in_ctas = judge_suspects(scene, (SUSPECT, AGENTS), still_suspicious, streams)
        others = [found for found in findings if found.code not in mine]
        if any(FINDING_CODES[found.code].ends_launch or found.code == "S309" for found in others):
            # Waits may have been cut off, or the run itself has found it.
            in_ctas = tuple(found for found in in_ctas if found.code not in AT_THE_END)
        buffers = judge_buffers(scene, in_ctas)
        return (*others, *in_ctas, *buffers, *judge_read_only(scene), *unchecked_copies(scene))

    # -- memory: the warps' epochs, how often this CTA was suspected, and the two shadows --------------------------

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return _HEAD_BYTES + 3 * shadow_bytes(shared_limit)

    def board_bytes(self, memory: GlobalMemory) -> int:
        return global_race.board_bytes(memory)

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        global_race.prepare_board(board, memory)

    def cta(self, b: Builder, worker: Value) -> None:
        head, size = self.memory(b, worker), shadow_size(b, worker)
        args = [b.offset(head, _HEAD_BYTES), const("i8", 0), size, const("i1", 0)]
        b.intrinsic("memset", "void", args, overloads=["ptr", "i64"])
        for at in range(_EPOCHS, _SUSPICIONS, 64):
            b.store(const("<16 x i32>", 1), b.offset(head, at), align=64)
        b.store(const("i32", 0), b.offset(head, _SUSPICIONS), align=4)
        b.store(const("i32", 0), b.offset(head, _AGENTS), align=4)
        _no_sources(b, head)

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        """Forget all but copies in flight. A single warp cannot race with another; its lanes have synchronised."""
        several = b.icmp("ugt", get(b, worker, WORKER_WARP_COUNT), const("i32", 1))
        head = self.memory(b, worker)
        with when(b, everyone):
            pending = Variable(b, const("i32", 0))
            with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as index:
                place = b.op("mul", b.cast("zext", index, "i64"), const("i64", WARP_BYTES))
                waiting = get(b, b.offset(get(b, worker, WORKER_WARPS), place), WARP_COPY_COUNT)
                pending.set(b.op("or", pending.get(), waiting))
            with when(b, b.icmp("eq", pending.get(), const("i32", 0))):
                _no_sources(b, head)
        with when(b, b.op("and", everyone, several)):
            size = shadow_size(b, worker)
            at = Variable(b, const("i64", 0))
            with loop(b, lambda: b.icmp("ult", at.get(), size)):
                line = b.offset(b.offset(head, _HEAD_BYTES), at.get())
                old = b.load(_LINE, line, align=64)
                flying = b.icmp("uge", old, const(_LINE, IN_FLIGHT))
                b.store(b.select(flying, old, const(_LINE, 0)), line, align=64)
                at.set(b.op("add", at.get(), const("i64", 64)))
        with when(b, b.op("and", everyone, b.op("xor", several, const("i1", 1)))):
            b.call(symbol(_MEET), "void", [head, const("i32", 0), shadow_size(b, worker)])

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        """Start a new epoch of the warp if all its lanes take part."""
        warp = b.param("warp")
        live = get(b, warp, WARP_LIVE)
        with when(b, b.icmp("eq", b.op("and", live, lanes), live), likely=True):
            worker = get(b, warp, WARP_WORKER)
            args = [self.memory(b, worker), get(b, warp, WARP_ID), shadow_size(b, worker)]
            b.call(symbol(_MEET), "void", args)

    def functions(self) -> Sequence[Builder]:
        return [self._suspect(), _meet()]

    def _suspect(self) -> Builder:
        """Report a suspicious access, a few per CTA."""
        b = function(_SUSPECT, "void", [("ptr", "warp"), ("i32", "site"), ("i32", "lanes")])
        place = b.offset(self.memory_of_warp(b), _SUSPICIONS)
        count = b.load("i32", place, align=4)
        b.store(b.op("add", count, const("i32", 1)), place, align=4)
        with when(b, b.icmp("ult", count, const("i32", _REPORTS_PER_CTA))):
            report(b, SUSPECT, b.param("lanes"), const("i64", 0))
        b.ret()
        return b

    # -- agents: the exact judge follows them ----------------------------------------------------------------------

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        self.note_agent(b, copy.lanes)
        self.note_bulk(b, copy)

    def agent_group(self, b: Builder, queue: str, lanes: Value) -> None:
        if queue == "wgmma":
            self.note_agent(b, lanes)

    def note_agent(self, b: Builder, lanes: Value) -> None:
        """Report the first agent of a CTA, or the first access to another CTA."""
        place = b.offset(self.memory_of_warp(b), _AGENTS)
        with when(b, b.icmp("eq", b.load("i32", place, align=4), const("i32", 0)), likely=False):
            b.store(const("i32", 1), place, align=4)
            report(b, AGENTS, lanes, const("i64", 0))

    # -- sources of copies ---------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        if event.peer:
            self.note_agent(b, event.lanes)
            return
        super().access(b, event)
        self.note_global(b, event)
        if b.name == f"{PREFIX}mbarrier.land":
            # Copies have landed because a warp tested the mbarrier; their own thread may still not access them.
            b.call(symbol(_SUSPECT), "void", [b.param("warp"), b.param("site"), event.lanes])
        if event.space != "global" or event.atomic:
            return
        if b.name.startswith(f"{PREFIX}cp."):
            self._widen(b, event)
        elif event.store:
            self._guard_sources(b, event)

    def note_global(self, b: Builder, event: Access) -> None:
        """Record an access for the check of global memory."""
        note(b, event)

    def note_bulk(self, b: Builder, copy: BulkCopy) -> None:
        """Record a bulk copy for the check of global memory."""
        global_race.note_bulk(b, copy)

    def _widen(self, b: Builder, event: Access) -> None:
        """Widen the bounds between which the sources of copies in flight are."""
        place, on = b.offset(self.memory_of_warp(b), _SOURCES), unbits(b, event.lanes)
        for at, name, off in ((0, "umin", -1), (8, "umax", 0)):
            lanes = b.select(on, event.offsets, const(vec("i64"), off))
            bound = b.intrinsic(f"vector.reduce.{name}", "i64", [lanes], overloads=[lanes.ty])
            old = b.load("i64", b.offset(place, at), align=8)
            b.store(b.intrinsic(name, "i64", [old, bound]), b.offset(place, at), align=8)

    def _guard_sources(self, b: Builder, event: Access) -> None:
        """Suspect a store between the bounds: it may overwrite a source."""
        place, wide = b.offset(self.memory_of_warp(b), _SOURCES), vec("i64")
        low, high = (b.load("i64", b.offset(place, at), align=8) for at in (0, 8))
        with when(b, b.icmp("ule", low, high), likely=False):
            behind = b.op("add", event.offsets, const(wide, event.bytes))
            above = b.icmp("ugt", behind, b.splat(low))
            below = b.icmp("ult", event.offsets, b.splat(b.op("add", high, const("i64", _COPY_BYTES))))
            near = b.op("and", event.lanes, b.op("and", bits(b, above), bits(b, below)))
            with when(b, b.icmp("ne", near, const("i32", 0)), likely=False):
                b.call(symbol(_SUSPECT), "void", [b.param("warp"), b.param("site"), near])

    # -- an access -------------------------------------------------------------------------------------------------

    def touch(self, b: Builder, touch: Touch) -> None:
        self.meet(b, touch, None)

    def meet(self, b: Builder, touch: Touch, alike: Value | None) -> None:
        """Suspect what conflicts, except for stores with stores if `alike` (i1): they store the same value."""
        if not touch.rows:
            self._apply(b, touch, alike, whole=True)
            return
        whole = b.icmp("eq", touch.lanes, const("i32", (1 << touch.rows) - 1))
        all_rows, some_rows, after = b.label("race.all"), b.label("race.some"), b.label("race.after")
        b.cbr(whole, all_rows, some_rows, likely=True)
        b.place(all_rows)
        self._apply(b, touch, alike, whole=True)
        b.br(after)
        b.place(some_rows)
        self._apply(b, touch, alike, whole=False)
        b.place(after)

    def _apply(self, b: Builder, touch: Touch, alike: Value | None, *, whole: bool) -> None:
        """Suspect what conflicts, then record this access."""
        warp = b.param("warp")
        worker = get(b, warp, WARP_WORKER)
        head = self.memory(b, worker)
        shadow = b.offset(head, _HEAD_BYTES)
        number = get(b, warp, WARP_ID)
        me = b.op("add", b.cast("trunc", number, "i8"), const("i8", 1))
        place = b.offset(head, b.op("shl", b.cast("zext", number, "i64"), const("i64", 2)))
        epoch = b.cast("trunc", b.op("shl", b.load("i32", place, align=4), const("i32", EPOCH_SHIFT)), "i16")
        # Inactive lanes look like bytes that are already in the state this access leaves.
        neutral = b.op("or", me, const("i8", STORED))
        rows = touch.rows and whole
        pieces = read_rows(b, shadow, touch) if rows else read_shadow(b, shadow, touch, neutral)
        lane_shadow = b.offset(shadow, shadow_size(b, worker))
        entries = read_entries(b, lane_shadow, touch, epoch, whole=whole)
        verb = "atomic" if touch.verb == "exchange" else touch.verb
        steps = [Step(b, piece, entry, me, epoch) for piece, entry in zip(pieces, entries, strict=True)]
        args = [warp, b.param("site"), touch.lanes]
        if verb == "land":  # checked when it was issued; an access in between was suspected then
            for step in steps:
                step.piece.put(step.splat(neutral))
                step.entries.put(step.lane_after(verb))
            return
        # A byte may be in the state this access leaves and yet hold another value.
        restless = _any(b, [step.restless(verb) for step in steps]) if alike is None else const("i1", 1)
        with when(b, restless):
            conflicts = [step.conflict(verb) for step in steps]
            wrong = _any(b, conflicts)
            if alike is not None:
                pairs = zip(steps, conflicts, strict=True)
                others = _any(b, [b.op("and", flags, step.not_stored()) for step, flags in pairs])
                wrong = b.op("and", wrong, b.op("or", others, b.op("xor", alike, const("i1", 1))))
            with when(b, wrong, likely=False):
                b.call(symbol(_SUSPECT), "void", args)
            joins = alike is not None and verb == "store"
            after = [
                (step.state_joined(), step.lane_after("atomic"))
                if joins
                else (step.state_after(verb), step.lane_after(verb))
                for step in steps
            ]
            for step, (state, lane) in zip(steps, after, strict=True):
                step.piece.put(state)
                step.entries.put(lane)
            if entries[0].put_lanes is not None:
                again = read_entries(b, lane_shadow, touch, epoch, whole=False)
                _same_place(b, touch, again, [lane for _, lane in after])
        if touch.lines is not None and verb == "store":
            overlap = b.icmp("ult", touch.lines.step, const("i64", touch.lines.bytes))
            with when(b, overlap, likely=False):
                b.call(symbol(_SUSPECT), "void", args)


class SecondLook(RaceCheck):
    """Marks the CTAs in which more than stores of the same value is suspicious. Slower: it follows every access."""

    name = "race-again"
    keeps_before = False
    notices_writes = False
    reviews_always = False

    def __init__(self, ctas: int = 0) -> None:
        super().__init__()
        self.ctas = ctas

    def board_bytes(self, memory: GlobalMemory) -> int:
        return self.ctas

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        self.suspects = board

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return super().probe_bytes(shared_limit, warps) + TAG_BYTES * shadow_bytes(shared_limit)

    def tags(self, b: Builder, worker: Value) -> Value:
        """The tags, which follow the two shadows."""
        before = b.op("mul", shadow_size(b, worker), const("i64", 3))
        return b.offset(b.offset(self.memory(b, worker), _HEAD_BYTES), before)

    def cta(self, b: Builder, worker: Value) -> None:
        super().cta(b, worker)
        forget_tags(b, self.tags(b, worker), worker)

    def barrier(self, b: Builder, worker: Value, everyone: Value) -> None:
        super().barrier(b, worker, everyone)
        with when(b, everyone):
            forget_tags(b, self.tags(b, worker), worker)

    def note_agent(self, b: Builder, lanes: Value) -> None:
        """Ignored: a CTA with agents is judged exactly, whatever else it does."""

    def note_global(self, b: Builder, event: Access) -> None:
        """Ignored: global memory has a separate second pass."""

    def note_bulk(self, b: Builder, copy: BulkCopy) -> None:
        """Ignored, too."""

    def touch(self, b: Builder, touch: Touch) -> None:
        tags = self.tags(b, get(b, b.param("warp"), WARP_WORKER))
        alike = only_alike(b, tags, touch)
        self.meet(b, touch, alike)
        leave_tags(b, tags, touch, alike)

    def _suspect(self) -> Builder:
        b = function(_SUSPECT, "void", [("ptr", "warp"), ("i32", "site"), ("i32", "lanes")])
        worker = get(b, b.param("warp"), WARP_WORKER)
        cta = b.cast("zext", get(b, worker, WORKER_CTA), "i64")
        b.store(const("i8", 1), b.offset(get(b, worker, WORKER_BOARD), cta), align=1)
        b.ret()
        return b


def still_suspicious(scene: Scene, ctas: Collection[int]) -> list[int]:
    """Return those of `ctas` that a second look does not clear."""
    if not ctas:
        return []
    x, y, z = scene.launch.grid
    look = SecondLook(x * y * z)
    scene.again(look, sorted(ctas))
    return [cta for cta in sorted(ctas) if look.suspects[cta]]


def _no_sources(b: Builder, head: Value) -> None:
    b.store(const("i64", -1), b.offset(head, _SOURCES), align=8)
    b.store(const("i64", 0), b.offset(head, _SOURCES + 8), align=8)


def _same_place(b: Builder, touch: Touch, again: Sequence[Entries], wrote: Sequence[Value]) -> None:
    """Suspect lanes of one instruction that access one byte: the shadow holds the last of them, the others see it."""
    lost = [b.icmp("ne", entry.value, lane) for entry, lane in zip(again, wrote, strict=True)]
    with when(b, _any(b, lost), likely=False):
        args = [b.param("warp"), b.param("site"), touch.lanes]
        if touch.verb == "copy":
            b.call(symbol(_SUSPECT), "void", args)
        elif touch.verb == "store":
            winner = b.op("and", again[0].value, const(again[0].value.ty, LANES - 1))
            width = lanes_of(winner.ty) // LANES
            winner = winner if width == 1 else b.shuffle(winner, None, range(0, LANES * width, width))
            same = _same_data(b, touch.bytes, touch.lanes, b.cast("zext", winner, vec("i32")))
            with when(b, b.icmp("ne", b.op("and", touch.lanes, same), touch.lanes)):
                b.call(symbol(_SUSPECT), "void", args)
        for entry, lane, flags in zip(again, wrote, lost, strict=True):
            assert entry.put_lanes is not None
            several = b.op("or", b.op("and", lane, const(lane.ty, -SEVERAL)), const(lane.ty, SEVERAL))
            entry.put_lanes(several, b.op("and", lanes_with(b, flags), touch.lanes))


def _same_data(b: Builder, size: int, lanes: Value, other: Value) -> Value:
    """i32 mask of `lanes` that store what the lanes `other` (<32 x i32>) store; the function being built is a store."""
    if not b.name.startswith(f"{PREFIX}st."):
        return const("i32", 0)
    width = parse_name(b.name.removeprefix(PREFIX)).bits // 8
    data, whose = b.param("data"), b.alloca(other.ty)
    b.store(other, whose, align=64)
    if data.ty != "ptr":
        slot = b.alloca(data.ty)
        b.store(data, slot, align=64)
        data = slot
    same = Variable(b, const("i32", 0))
    with each_lane(b, lanes) as lane:
        index = b.cast("zext", lane, "i64")
        theirs = b.load("i32", b.offset(whose, b.op("shl", index, const("i64", 2))), align=4)
        equal = const("i1", 1)
        for register in range(size // width):
            row = b.offset(data, register * LANES * width)
            pair = [
                b.load(f"i{8 * width}", b.offset(row, b.op("mul", at, const("i64", width))))
                for at in (index, b.cast("zext", theirs, "i64"))
            ]
            equal = b.op("and", equal, b.icmp("eq", *pair))
        same.set(b.op("or", same.get(), b.op("shl", b.cast("zext", equal, "i32"), lane)))
    return same.get()


def _meet() -> Builder:
    """Build the start of a warp's next epoch; when the numbers run out, the warp's entries are marked as over."""
    b = function(_MEET, "void", [("ptr", "head"), ("i32", "warp"), ("i64", "size")])
    head = b.param("head")
    place = b.offset(head, b.op("shl", b.cast("zext", b.param("warp"), "i64"), const("i64", 2)))
    epoch = b.load("i32", place, align=4)
    last = b.icmp("eq", epoch, const("i32", LAST_EPOCH))
    b.store(b.select(last, const("i32", 1), b.op("add", epoch, const("i32", 1))), place, align=4)
    with when(b, last, likely=False):
        me = b.op("add", b.cast("trunc", b.param("warp"), "i8"), const("i8", 1))
        shadow = b.offset(head, _HEAD_BYTES)
        lanes = b.offset(shadow, b.param("size"))
        with count_range(b, b.op("lshr", b.param("size"), const("i64", 6))) as line:
            at = b.op("shl", line, const("i64", 6))
            owner = b.op("and", b.load(_LINE, b.offset(shadow, at), align=64), const(_LINE, READERS))
            mine = b.icmp("eq", owner, b.splat(me, 64))
            entry = b.offset(lanes, b.op("shl", at, const("i64", 1)))
            old = b.load("<64 x i16>", entry, align=64)
            b.store(b.select(mine, const(old.ty, 0), old), entry, align=64)
    b.ret()
    return b


def _any(b: Builder, flags: list[Value]) -> Value:
    return any_of(b, either(b, flags, "or"))
