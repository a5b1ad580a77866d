"""Clusters: addresses of other CTAs, accesses to them, the barrier, asynchronous stores."""

from collections.abc import Callable

import numpy as np

from weft.ptx.module import WIDTH, Instruction

from ..clusters import LARGEST, RANK_SHIFT
from ..memory import SHARED_BASE
from . import mbarrier
from .access import address_of, as_bytes, store
from .machine import RunningWarp
from .spaces import Addresses, in_window
from .sync import red
from .warp import Lanes, dtype_of

Execute = Callable[[RunningWarp, Instruction], None]


def at_each_cta(w: RunningWarp, ins: Instruction, execute: Execute) -> None:
    """Execute an access for lanes with the own CTA's addresses, then for those of each other CTA, with its memory."""
    ranks = _ranks(*address_of(w, ins, "a"))
    mask = w.mask
    for rank in np.unique(ranks[mask]).tolist():
        at_cta(w, ins, rank, mask & (ranks == rank), execute)
    w.mask = mask


def at_cta(w: RunningWarp, ins: Instruction, rank: int, lanes: Lanes, execute: Execute) -> None:
    """Execute for `lanes` with the memory of a rank plus one; 0 is the own CTA."""
    w.mask = lanes
    if not rank:
        execute(w, ins)
        return
    ctas = w.home.cluster.ctas
    if rank > len(ctas):
        w.report("M101", f"access to rank {rank - 1} of a cluster of {len(ctas)} CTAs", ins, lanes)
    elif not ctas[rank - 1].live_threads():
        w.report("S312", f"access to the shared memory of rank {rank - 1} of the cluster, which has ended", ins, lanes)
    else:
        w.cta, w.far = ctas[rank - 1], rank
        w.cta.fruitless = 0
        execute(w, ins)
        w.cta, w.far = w.home, 0


def multicast(w: RunningWarp, ins: Instruction, execute: Execute) -> None:
    """Execute a bulk load for each CTA of its mask, at the same addresses there."""
    mask, ctas = w.mask, w.src(ins, "ctas")
    for rank in range(LARGEST):
        lanes = mask & (ctas >> rank & 1).astype(bool)
        if lanes.any():
            at_cta(w, ins, rank + 1, lanes, lambda w, ins: _plain(w, ins, execute))
    w.mask = mask


def _plain(w: RunningWarp, ins: Instruction, execute: Execute) -> None:
    w.far = 0  # the addresses of a multicast have no rank
    execute(w, ins)


def _ranks(space: str, address: Addresses) -> Addresses:
    """Return the rank plus one of each address; 0 for the own CTA and other windows."""
    if space == "generic":
        offset = np.where(in_window("shared", address), address - np.uint64(SHARED_BASE), np.uint64(0))
        return offset >> np.uint64(RANK_SHIFT)
    return address >> np.uint64(RANK_SHIFT)


def _mapa(w: RunningWarp, ins: Instruction) -> None:
    address, rank = w.src(ins, "a").astype(np.uint64), w.src(ins, "rank").astype(np.uint64)
    own = np.uint64(w.home.cluster.ctas.index(w.home))
    mapped = address + (rank + np.uint64(1) << np.uint64(RANK_SHIFT))
    w.dst(ins, np.where(rank == own, address, mapped).astype(dtype_of(ins.type)))


def _getctarank(w: RunningWarp, ins: Instruction) -> None:
    address = w.src(ins, "a").astype(np.uint64)
    above = _ranks("shared" if ins.has("space") else "generic", address)
    own = np.uint64(w.home.cluster.ctas.index(w.home))
    w.dst(ins, np.where(above == 0, own, above - np.uint64(1)).astype(np.uint32))


def _barrier(w: RunningWarp, ins: Instruction) -> None:
    cluster = w.home.cluster
    lanes = w.mask
    if ins.has("arrive"):
        if (w.to_wait & lanes).any():
            words = "these lanes arrive at the barrier of the cluster twice without a wait between"
            w.report("S315", words, ins, w.to_wait & lanes)
        w.arrived |= lanes
        w.to_wait |= lanes
        w.odd = np.where(lanes, cluster.phase % 2 == 1, w.odd)
        w.cta.fruitless = 0
        return
    early = lanes & ~w.to_wait
    if early.any():
        w.report("S315", "these lanes wait for the barrier of the cluster, at which they did not arrive", ins, early)
    warps = [warp for cta in cluster.ctas for warp in cta.warps]
    missing = sum(int(np.count_nonzero(warp.live & ~warp.arrived)) for warp in warps)
    if not missing:
        cluster.phase += 1
        for warp in warps:
            warp.arrived[:] = False
    over = lanes & ((w.odd != (cluster.phase % 2 == 1)) | early)
    w.to_wait &= ~over
    if over.any():
        w.cta.fruitless = 0
    waiting = lanes & ~over
    if waiting.any():
        w.gives_way, w.missing_threads = True, missing
        w.next_pc[waiting] = w.pc[waiting]


def _st(w: RunningWarp, ins: Instruction) -> None:
    """Store, and count the bytes at the mbarrier at once: a thread that sees them sees the store."""
    values = w.items(ins, "b")
    space, address = address_of(w, ins, "a")
    store(w, ins, space, address, np.concatenate([as_bytes(value) for value in values], axis=1))
    mbarrier.complete(w, ins, WIDTH[ins.type] // 8 * len(values))


def _red(w: RunningWarp, ins: Instruction) -> None:
    red(w, ins)
    mbarrier.complete(w, ins, WIDTH[ins.type] // 8)


EXECUTE: dict[str, Execute] = {
    "mapa": _mapa,
    "getctarank": _getctarank,
    "barrier": _barrier,
    "st": _st,
    "red": _red,
}
