"""Every memory access and every synchronisation of a run as one kind of event, for watchers that keep all of them.

A watcher of this kind names a function, which compiled code calls for each event:

    void add(warp, worker, what, site, lanes, size, number, element, <32 x i64> addresses, value)
`value` points to what is stored, register after register of `element` bytes each, or to words of mbarriers; null: none.
"""

from enum import IntEnum
from typing import Self

from weft.vm.context import WARP_WORKER
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import GLOBAL_BASE, SHARED_BASE, SHARED_START
from weft.vm.runtime.access_name import parse_name
from weft.vm.runtime.shape import PREFIX, function, get, symbol, when
from weft.vm.runtime.watch import Access, BulkCopy

from .shared_probe import SharedProbe

NULL = Value("ptr", "null")


class What(IntEnum):
    """Kinds of events."""

    LOAD, STORE, ATOMIC, EXCHANGE, COPY, TILE, ARRIVE, COMPLETE, WARP_SYNC, FENCE, GROUP, WAIT, ATTACH = range(13)
    BULK, LANDED, BULK_GROUP, BULK_WAIT, PRODUCT_GROUP, PRODUCT_WAIT, PROXY_FENCE = range(13, 20)
    MAP, MAP_RELEASE, MAP_ACQUIRE = range(20, 23)


PHASE_AT = 24
"""In `number` of LANDED: from this bit on the phase of the mbarrier, below it the mbarrier's shared address."""
_QUEUES = {"bulk": (What.BULK_GROUP, What.BULK_WAIT), "wgmma": (What.PRODUCT_GROUP, What.PRODUCT_WAIT)}


class Events(SharedProbe):
    """Calls the function `add` at every event."""

    add = ""
    """The name of the function, as `function_for` builds it."""
    takes_values = True
    """Whether `add` needs what is stored. Words of mbarriers it gets in any case."""

    def at_slot(self, slot: int) -> Self:
        """Return this watcher, which is used once, with its memory at pointer `slot`."""
        self.slot = slot
        return self

    def function_for(self) -> Builder:
        """Return the function `add` without its code."""
        words = ("what", "site", "lanes", "size", "number", "element")
        params = [("ptr", "warp"), ("ptr", "worker"), *(("i32", name) for name in words)]
        return function(self.add, "void", [*params, (vec("i64"), "address"), ("ptr", "value")])

    def _add(
        self,
        b: Builder,
        what: What,
        addresses: Value | None,
        lanes: Value,
        *,
        size: int | Value = 0,
        number: Value | None = None,
        site: Value | None = None,
        value: Value = NULL,
        element: int = 0,
    ) -> None:
        warp = b.param("warp")
        size = const("i32", size) if isinstance(size, int) else size
        args = [warp, get(b, warp, WARP_WORKER), const("i32", what), site or b.param("site"), lanes, size]
        args += [number or const("i32", 0), const("i32", element), addresses or const(vec("i64"), 0), value]
        b.call(symbol(self.add), "void", args)

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        if event.space == "local" or event.copied:  # waits and arrivals show when a copy is complete
            return
        what = What.STORE if event.store else What.LOAD
        if event.atomic:
            what = What.EXCHANGE if event.store else What.ATOMIC
        value, element = NULL, 0
        if self.takes_values and what is What.STORE and b.name.startswith(f"{PREFIX}st."):
            value, element = b.param("data"), parse_name(b.name.removeprefix(PREFIX)).bits // 8
            if value.ty != "ptr":
                slot = b.alloca(value.ty)
                b.store(value, slot, align=64)
                value = slot
        if event.words is not None:
            value, element = event.words, 8
        with when(b, b.icmp("ne", event.lanes, const("i32", 0))):
            self._add(b, what, _generic(b, event), event.lanes, size=event.bytes, value=value, element=element)

    def copy(self, b: Builder, event: Access) -> None:
        with when(b, b.icmp("ne", event.lanes, const("i32", 0))):
            self._add(b, What.COPY, _generic(b, event), event.lanes, size=event.bytes)

    def copy_group(self, b: Builder, lanes: Value) -> None:
        self._add(b, What.GROUP, None, lanes, site=const("i32", 0))

    def copy_wait(self, b: Builder, pending: Value, lanes: Value) -> None:
        self._add(b, What.WAIT, None, lanes, number=pending)

    def copy_arrival(self, b: Builder, offsets: Value, lanes: Value) -> None:
        event = Access(False, "shared", 8, offsets, lanes, contiguous=False)
        self._add(b, What.ATTACH, _generic(b, event), lanes)

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        event = Access(False, "shared", 16, offsets, lanes, contiguous=False)
        with when(b, b.icmp("ne", lanes, const("i32", 0))):
            self._add(b, What.TILE, _generic(b, event), lanes, size=16)

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        self._add(b, What.ARRIVE, None, lanes, size=waits, number=number)

    def complete(self, b: Builder, worker: Value, number: Value, everyone: Value) -> None:
        args = [NULL, worker, const("i32", What.COMPLETE), const("i32", 0), const("i32", 0)]
        args += [b.cast("zext", everyone, "i32"), number, const("i32", 0)]
        b.call(symbol(self.add), "void", [*args, const(vec("i64"), 0), NULL])

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        self._add(b, What.WARP_SYNC, None, lanes)

    def fence(self, b: Builder, lanes: Value) -> None:
        self._add(b, What.FENCE, None, lanes)

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        if copy.map is not None:
            self._add(b, What.MAP, b.splat(copy.map), copy.lanes)
        self._add(b, What.BULK, _near(b, copy), copy.lanes, size=copy.bytes, number=copy.mbarrier)

    def bulk_landed(self, b: Builder, copy: BulkCopy) -> None:
        assert copy.phase is not None
        number = b.op("or", copy.mbarrier, b.op("shl", copy.phase, const("i32", PHASE_AT)))
        self._add(b, What.LANDED, _near(b, copy), copy.lanes, size=copy.bytes, number=number)

    def agent_group(self, b: Builder, queue: str, lanes: Value) -> None:
        self._add(b, _QUEUES[queue][0], None, lanes)

    def agent_wait(self, b: Builder, queue: str, pending: Value, lanes: Value) -> None:
        self._add(b, _QUEUES[queue][1], None, lanes, number=pending, site=const("i32", 0))

    def proxy_fence(self, b: Builder, lanes: Value) -> None:
        self._add(b, What.PROXY_FENCE, None, lanes)

    def map_release(self, b: Builder, lanes: Value) -> None:
        self._add(b, What.MAP_RELEASE, None, lanes)

    def map_acquire(self, b: Builder, addresses: Value, lanes: Value) -> None:
        self._add(b, What.MAP_ACQUIRE, addresses, lanes)


def _near(b: Builder, copy: BulkCopy) -> Value:
    return b.splat(b.op("add", b.cast("zext", copy.near, "i64"), const("i64", SHARED_BASE)))


def _generic(b: Builder, event: Access) -> Value:
    """Addresses in the generic space, so that one number gives state space and place."""
    if event.space == "generic":
        return event.offsets
    base = SHARED_BASE + SHARED_START if event.space == "shared" else GLOBAL_BASE
    return b.op("add", b.cast("zext", event.offsets, vec("i64")), const(vec("i64"), base))
