"""Clusters: addresses of other CTAs, the barrier, asynchronous stores."""

from collections.abc import Callable

from weft.ptx.module import WIDTH, Instruction, Sym

from ..clusters import RANK_SHIFT
from ..context import WARP_WORKER, WORKER_RANK
from ..ir import Value, const, vec
from ..layout import CLUSTER_BARRIER
from ..memory import SHARED_BASE
from ..runtime.shape import get
from . import memory, sync
from .kernel_contract import KernelContract


def mapa(e: KernelContract, ins: Instruction) -> None:
    """Put the rank of a CTA above a shared address; the own CTA's addresses have none."""
    b = e.b
    address, rank = e.lift(e.src(ins, "a")), e.lift(e.src(ins, "rank"))
    wide = address.ty.replace("i64", "i32") != address.ty
    own = b.icmp("eq", rank, e.lift(_own_rank(e)))
    above = b.op("add", rank, const(rank.ty, 1))
    above = b.cast("zext", above, address.ty) if wide else above
    moved = b.op("add", address, b.op("shl", above, const(address.ty, RANK_SHIFT)))
    e.dst(ins, b.select(own, address, moved))


def getctarank(e: KernelContract, ins: Instruction) -> None:
    b = e.b
    address = e.lift(e.src(ins, "a"))
    if address.ty.replace("i64", "i32") != address.ty:
        base = 0 if ins.has("space") else SHARED_BASE
        address = b.cast("trunc", b.op("sub", address, const(address.ty, base)), address.ty.replace("i64", "i32"))
    above = b.op("lshr", address, const(address.ty, RANK_SHIFT))
    own = b.icmp("eq", above, const(above.ty, 0))
    e.dst(ins, b.select(own, e.lift(_own_rank(e)), b.op("sub", above, const(above.ty, 1))))


def _own_rank(e: KernelContract) -> Value:
    return get(e.b, get(e.b, e.warp, WARP_WORKER), WORKER_RANK)


def barrier(e: KernelContract, ins: Instruction) -> None:
    word = e.b.cast("trunc", e.symbol(Sym(CLUSTER_BARRIER.name)), "i32")
    args = [word, e.active(), e.site()]
    if ins.has("arrive"):
        e.runtime("cluster.arrive", "void", args)
    else:
        e.dst(ins, e.mask_vector(e.runtime("cluster.test", "i32", args)), "p")


def st(e: KernelContract, ins: Instruction) -> None:
    """Store, and count the bytes at the mbarrier at once: a thread that sees them sees the store."""
    memory.st(e, ins)
    _signal(e, ins, int(ins.mods.get("vec", "v1")[1:]))


def red(e: KernelContract, ins: Instruction) -> None:
    sync.atom(e, ins)
    _signal(e, ins, 1)


def _signal(e: KernelContract, ins: Instruction, count: int) -> None:
    size = const(vec("i32"), count * WIDTH[ins.type] // 8)
    e.runtime("mbarrier.complete_tx", "void", [e.address(ins, "mbar", "shared"), e.active(), e.site(), size])


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "mapa": mapa,
    "getctarank": getctarank,
    "barrier": barrier,
    "st": st,
    "red": red,
}
