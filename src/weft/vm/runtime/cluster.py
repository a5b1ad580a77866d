"""Clusters: their barrier, and accesses to the shared memory of other CTAs.

    void cluster.arrive (warp, i32 address, i32 lanes, i32 site)
    i32  cluster.test   (warp, i32 address, i32 lanes, i32 site)     the lanes whose phase is over
    …    peer.<name>    with the parameters and the result of <name>, a load, a store, an atomic or an mbarrier
    void multicast.<name>  with those of a bulk load, and <32 x i32> ctas in the end
Addresses of other CTAs have a rank (`vm/clusters.py`). `peer.…` sorts the lanes by it. For lanes with the own CTA's
addresses it calls <name>. For the others the warp's record names the other CTA's memory and worker meanwhile, and
`remote.<name>` is called: <name> for watchers that see such accesses (`Access.peer`).

A barrier has phases, counted by the worker of rank 0. A phase is over when all threads of the cluster that have not
exited have arrived. A thread cannot arrive twice in a phase, so the parity of the phase tells for which one it waits.
`address` is a word of shared memory that only watchers see: arriving releases there, a test that succeeds acquires.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from weft.core.errors import Unsupported

from ..clusters import LARGEST, RANK_SHIFT
from ..context import (
    ARRIVED_TWICE,
    CLUSTER,
    NOT_ARRIVED,
    OUT_OF_BOUNDS,
    PEER_GONE,
    WARP_ARRIVED,
    WARP_HOME,
    WARP_LIVE,
    WARP_ODD,
    WARP_SHARED,
    WARP_TO_WAIT,
    WARP_WORKER,
    WORKER_BLOCK_THREADS,
    WORKER_CLUSTER,
    WORKER_FRUITLESS,
    WORKER_PEERS,
    WORKER_PHASE,
    WORKER_RANK,
    WORKER_SHARED,
    WORKER_THREADS,
    WORKER_WARP_COUNT,
)
from ..ir import LANES, Builder, Value, const, vec
from ..mbarrier_word import PHASE_MASK, PHASE_SHIFT
from ..memory import SHARED_BASE, SHARED_START, WINDOW_BYTES
from . import access, atomics, bulk, mbarrier
from .access_name import parse_name
from .barriers import warp_of
from .bounds import without
from .shape import Variable, bits, count_range, function, get, loop, put, report, symbol, unbits, when
from .waiting import give_way
from .watch import Access, BulkCopy, Instrumentation

_I32, _I64 = vec("i32"), vec("i64")
_STEP = [("ptr", "warp"), ("i32", "address"), ("i32", "lanes"), ("i32", "site")]


def peer_of(b: Builder, worker: Value, rank: Value) -> Value:
    """Return the worker of a rank (i64) of the same cluster."""
    return b.load("ptr", b.offset(get(b, worker, WORKER_PEERS), b.op("shl", rank, const("i64", 3))), align=8)


# -- barrier --------------------------------------------------------------------------------------------------------


def build_cluster(name: str, watch: Instrumentation) -> list[Builder]:
    """Return `cluster.arrive` or `cluster.test`."""
    if name == "cluster.arrive":
        return [_arrive(name, watch)]
    if name == "cluster.test":
        return [_test(name, watch)]
    raise Unsupported(f"runtime function {name}")


def _arrive(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", _STEP)
    warp, lanes = b.param("warp"), b.param("lanes")
    worker = get(b, warp, WARP_WORKER)
    head = peer_of(b, worker, const("i64", 0))
    waiting = get(b, warp, WARP_TO_WAIT)
    twice = b.op("and", waiting, lanes)
    with when(b, b.icmp("ne", twice, const("i32", 0)), likely=False):
        report(b, ARRIVED_TWICE, twice, const("i64", 0))
    phase = get(b, head, WORKER_PHASE)
    odd = b.icmp("ne", b.op("and", phase, const("i32", 1)), const("i32", 0))
    others = without(b, get(b, warp, WARP_ODD), lanes)
    put(b, warp, WARP_ODD, b.select(odd, b.op("or", others, lanes), others))
    put(b, warp, WARP_ARRIVED, b.op("or", get(b, warp, WARP_ARRIVED), lanes))
    put(b, warp, WARP_TO_WAIT, b.op("or", waiting, lanes))
    put(b, worker, WORKER_FRUITLESS, const("i32", 0))
    _tell(b, watch, lanes, phase)
    b.ret()
    return b


def _tell(b: Builder, watch: Instrumentation, lanes: Value, phase: Value) -> None:
    words = b.alloca(_I64)
    number = b.op("and", b.cast("zext", phase, "i64"), const("i64", PHASE_MASK))
    b.store(b.splat(b.op("shl", number, const("i64", PHASE_SHIFT))), words, align=64)
    offsets = b.splat(b.op("sub", b.param("address"), const("i32", SHARED_START)))
    # The old value does not matter: no thread writes the word first.
    watch.access(b, Access(True, "shared", 8, offsets, lanes, contiguous=False, atomic=True, words=words))


def _test(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "i32", _STEP)
    warp, lanes = b.param("warp"), b.param("lanes")
    worker = get(b, warp, WARP_WORKER)
    head = peer_of(b, worker, const("i64", 0))
    early = without(b, lanes, get(b, warp, WARP_TO_WAIT))
    with when(b, b.icmp("ne", early, const("i32", 0)), likely=False):
        report(b, NOT_ARRIVED, early, const("i64", 0))
    missing = _missing(b, worker)
    with when(b, b.icmp("eq", missing, const("i32", 0))):
        put(b, head, WORKER_PHASE, b.op("add", get(b, head, WORKER_PHASE), const("i32", 1)))
        with _each_warp(b, worker) as other:
            put(b, other, WARP_ARRIVED, const("i32", 0))
    phase = get(b, head, WORKER_PHASE)
    odd = b.icmp("ne", b.op("and", phase, const("i32", 1)), const("i32", 0))
    mine = get(b, warp, WARP_ODD)
    over = b.op("and", b.select(odd, b.op("xor", mine, const("i32", -1)), mine), lanes)
    done = b.op("or", over, early)
    put(b, warp, WARP_TO_WAIT, without(b, get(b, warp, WARP_TO_WAIT), done))
    with when(b, b.icmp("ne", over, const("i32", 0))):
        put(b, worker, WORKER_FRUITLESS, const("i32", 0))
        _tell(b, watch, over, b.op("sub", phase, const("i32", 1)))
    with when(b, b.icmp("ne", done, lanes)):
        threads = b.op("mul", get(b, worker, WORKER_BLOCK_THREADS), get(b, worker, WORKER_CLUSTER))
        give_way(b, CLUSTER, missing, threads)
    b.ret(done)
    return b


@contextmanager
def _each_warp(b: Builder, worker: Value) -> Iterator[Value]:
    """Write a loop over all warps of the cluster; yields the record of a warp."""
    with count_range(b, b.cast("zext", get(b, worker, WORKER_CLUSTER), "i64")) as rank:
        peer = peer_of(b, worker, rank)
        with count_range(b, get(b, peer, WORKER_WARP_COUNT)) as number:
            yield warp_of(b, peer, number)


def _missing(b: Builder, worker: Value) -> Value:
    """Return how many threads of the cluster have neither arrived in this phase nor exited."""
    missing = Variable(b, const("i32", 0))
    with _each_warp(b, worker) as other:
        absent = without(b, get(b, other, WARP_LIVE), get(b, other, WARP_ARRIVED))
        missing.set(b.op("add", missing.get(), b.intrinsic("ctpop", "i32", [absent])))
    return missing.get()


# -- accesses -------------------------------------------------------------------------------------------------------


class _OfPeers(Instrumentation):
    """Watches accesses to the shared memory of another CTA."""

    def __init__(self, watch: Instrumentation) -> None:
        self._watch = watch
        self.key = watch.key

    def wants(self, event: str) -> bool:
        return event in ("access", "bulk") and self._watch.sees_peers and self._watch.wants(event)

    def access(self, b: Builder, event: Access) -> None:
        if self._watch.sees_peers:
            self._watch.access(b, replace(event, peer=True))

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        if self._watch.sees_peers:
            self._watch.bulk(b, replace(copy, peer=True))


def _build(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function for the own CTA, and those that only it calls."""
    family = name.partition(".")[0]
    build = {
        "ld": access.build_access,
        "ldu": access.build_access,
        "st": access.build_access,
        "atom": atomics.build_atomic,
        "mbarrier": mbarrier.build_mbarrier,
        "bulk": bulk.build_bulk,
    }[family]
    return build(name, watch)


def build_remote(name: str, watch: Instrumentation) -> list[Builder]:
    """Return `remote.<name>`: <name> while the warp's record names another CTA."""
    functions = _build(name.removeprefix("remote."), _OfPeers(watch))
    functions[0].name = symbol(name)
    return functions


@contextmanager
def _at_peer(b: Builder, rank: Value, lanes: Value, address: Value) -> Iterator[None]:
    """Let the warp's record name the CTA of a rank (i32) of the cluster.

    If there is no such CTA, or it has ended, the lanes are reported, with one of their addresses (i64).
    """
    warp = b.param("warp")
    home = get(b, warp, WARP_HOME)
    known = b.icmp("ult", rank, get(b, home, WORKER_CLUSTER))
    with when(b, known, likely=True):
        peer = peer_of(b, home, b.cast("zext", rank, "i64"))
        ended = b.icmp("eq", get(b, peer, WORKER_THREADS), const("i32", 0))
        with when(b, ended, likely=False):
            report(b, PEER_GONE, lanes, b.cast("zext", rank, "i64"))
        with when(b, b.op("xor", ended, const("i1", 1)), likely=True):
            put(b, warp, WARP_SHARED, get(b, peer, WORKER_SHARED))
            put(b, warp, WARP_WORKER, peer)
            put(b, peer, WORKER_FRUITLESS, const("i32", 0))
            yield
            put(b, warp, WARP_SHARED, get(b, home, WORKER_SHARED))
            put(b, warp, WARP_WORKER, home)
    with when(b, b.op("xor", known, const("i1", 1)), likely=False):
        report(b, OUT_OF_BOUNDS, lanes, address)


def build_peer(name: str, watch: Instrumentation) -> list[Builder]:
    """Return `peer.<name>`."""
    inner = name.removeprefix("peer.")
    template = _build(inner, watch)[0]
    b = function(name, template.result, template.params)
    if inner.startswith("ldu."):
        _peer_of_all(b, inner)
        return [b]
    args = {given: b.param(given) for _, given in b.params}
    address, mask = args["address"], args["mask"]
    ranks = _ranks(b, address)
    far = b.op("and", mask, bits(b, b.icmp("ne", ranks, const(_I32, 0))))
    with when(b, b.icmp("eq", far, const("i32", 0)), likely=True):
        result = b.call(symbol(inner), b.result, list(args.values()))
        b.ret(None if b.result == "void" else result)
    merge = _Merged(b, inner, args)
    merge.call(symbol(inner), {"mask": without(b, mask, far)}, without(b, mask, far))
    left = Variable(b, far)
    with loop(b, lambda: b.icmp("ne", left.get(), const("i32", 0))):
        lane = b.intrinsic("cttz", "i32", [left.get(), const("i1", 1)])
        first = b.extract(ranks, lane)
        lanes = b.op("and", left.get(), bits(b, b.icmp("eq", ranks, b.splat(first))))
        left.set(b.op("xor", left.get(), lanes))
        with _at_peer(b, b.op("sub", first, const("i32", 1)), lanes, _wide(b, b.extract(address, lane))):
            merge.call(symbol(f"remote.{inner}"), {"mask": lanes, "address": _stripped(b, address, first)}, lanes)
    merge.ret()
    return [b]


def _ranks(b: Builder, address: Value) -> Value:
    """Return the rank of each lane's address, plus one; 0 for the own CTA, and for other windows."""
    if address.ty == _I32:
        return b.op("lshr", address, const(_I32, RANK_SHIFT))
    offset = b.op("sub", address, const(_I64, SHARED_BASE))
    shared = b.icmp("ult", offset, const(_I64, WINDOW_BYTES))
    found = b.cast("trunc", b.op("lshr", offset, const(_I64, RANK_SHIFT)), _I32)
    return b.select(shared, found, const(_I32, 0))


def _stripped(b: Builder, address: Value, rank: Value) -> Value:
    """Return the addresses without a rank."""
    wide = "i32" if address.ty.endswith("i32>") or address.ty == "i32" else "i64"
    moved = b.op("shl", rank if wide == "i32" else b.cast("zext", rank, "i64"), const(wide, RANK_SHIFT))
    return b.op("sub", address, b.splat(moved) if address.ty in (_I32, _I64) else moved)


def _wide(b: Builder, address: Value) -> Value:
    return address if address.ty == "i64" else b.cast("zext", address, "i64")


class _Merged:
    """The result of several calls, each for some lanes: a vector, or registers behind the pointer `data`."""

    def __init__(self, b: Builder, inner: str, args: dict[str, Value]) -> None:
        self.b, self.args = b, args
        loads = inner.startswith("ld.")
        shape = parse_name(inner) if loads else None
        self._rows: tuple[str, int] | None = None
        if shape is not None and "data" in args:
            self._rows = vec(f"i{shape.bits}"), shape.read
            self._stride = LANES * shape.bits // 8
            self._room = b.alloca(f"[{self._stride * shape.vector} x i8]")
        self._found = None if b.result == "void" else Variable(b, const(b.result, 0))

    def call(self, target: str, changed: dict[str, Value], lanes: Value) -> None:
        b = self.b
        args = {**self.args, **changed}
        if self._rows is not None:
            args["data"] = self._room
        result = b.call(target, b.result, list(args.values()))
        if self._rows is not None:
            ty, count = self._rows
            for number in range(count):
                place = b.offset(self.args["data"], number * self._stride)
                new = b.load(ty, b.offset(self._room, number * self._stride), align=1)
                kept = b.load(ty, place, align=1)
                b.store(b.select(unbits(b, lanes), new, kept), place, align=1)
        elif self._found is not None and b.result == "i32":  # a mask of lanes
            self._found.set(b.op("or", self._found.get(), result))
        elif self._found is not None:
            self._found.set(b.select(unbits(b, lanes), result, self._found.get()))

    def ret(self) -> None:
        self.b.ret(None if self._found is None else self._found.get())


def _peer_of_all(b: Builder, inner: str) -> None:
    """Write a load in which all lanes agree on the address."""
    args = {given: b.param(given) for _, given in b.params}
    rank = b.op("lshr", args["address"], const("i32", RANK_SHIFT))
    with when(b, b.icmp("eq", rank, const("i32", 0)), likely=True):
        result = b.call(symbol(inner), b.result, list(args.values()))
        b.ret(None if b.result == "void" else result)
    found = None if b.result == "void" else Variable(b, const(b.result, 0))
    with _at_peer(b, b.op("sub", rank, const("i32", 1)), args["mask"], _wide(b, args["address"])):
        args["address"] = _stripped(b, args["address"], rank)
        result = b.call(symbol(f"remote.{inner}"), b.result, list(args.values()))
        if found is not None:
            found.set(result)
    b.ret(None if found is None else found.get())


def build_multicast(name: str, watch: Instrumentation) -> list[Builder]:
    """Return `multicast.<name>`: a bulk load into each CTA of a mask, at the same addresses there."""
    inner = name.removeprefix("multicast.")
    template = _build(inner, watch)[0]
    b = function(name, "void", [*template.params, (_I32, "ctas")])
    args = {given: b.param(given) for _, given in template.params}
    own = get(b, get(b, b.param("warp"), WARP_HOME), WORKER_RANK)
    with count_range(b, const("i32", LARGEST)) as rank:
        chosen = b.op("and", b.op("lshr", b.param("ctas"), b.splat(rank)), const(_I32, 1))
        lanes = b.op("and", b.param("mask"), bits(b, b.icmp("ne", chosen, const(_I32, 0))))
        above = b.op("shl", b.cast("zext", b.op("add", rank, const("i32", 1)), "i64"), const("i64", RANK_SHIFT))
        given = [*({**args, "mask": lanes}).values()]
        some, here = b.icmp("ne", lanes, const("i32", 0)), b.icmp("eq", rank, own)
        with when(b, b.op("and", some, here)):
            b.call(symbol(inner), "void", given)
        with when(b, b.op("and", some, b.op("xor", here, const("i1", 1)))), _at_peer(b, rank, lanes, above):
            b.call(symbol(f"remote.{inner}"), "void", given)
    b.ret()
    return [b]
