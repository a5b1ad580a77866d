"""What the instructions of a kernel mean for the order of accesses: which synchronise, and how."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from weft.ptx.module import Instruction
from weft.vm.clusters import cluster_of, cluster_with
from weft.vm.memory import SHARED_BASE
from weft.vm.runtime.watch import Scene

from .shuffles import Exchanges
from .taint_slice import Slicer
from .unused_loads import UnusedLoads

if TYPE_CHECKING:
    from weft.vm.program import ProgramSource

FLAG, COUNTS = 2, 3
"""Kinds of strong accesses."""


@dataclass(frozen=True)
class Semantics:
    """What the instructions of a kernel mean for the order of accesses."""

    at: Callable[[int], Instruction | None]
    """Site → the instruction there that accesses memory or orders accesses, if there is one."""
    used: Container[str]
    """Names of the registers that some instruction reads."""
    exchanges: Exchanges
    unused: UnusedLoads
    products: frozenset[int] = frozenset()
    """Sites of products of a warpgroup."""
    fences_inits: bool = False
    """Whether the kernel has a fence for initialised mbarriers."""
    by_warp: range = range(0)
    """Generic addresses at which the lanes of a warp count as one thread: the memory that belongs to the system.

    Only CUDA's own header accesses it. When cooperative groups of several warps combine values there, one lane acquires
    for its warp, and a shuffle, not a barrier, lets the others continue."""
    cluster_with: Callable[[int], int] = int
    """Number of a CTA → that of its cluster."""
    one_cluster: bool = False
    """Whether all CTAs of the log are those of one cluster, so that its scope holds between all of them."""
    kinds: dict[int, int] = field(default_factory=dict)
    """Site → what `kind` returned for it."""

    def kind(self, site: int) -> int:
        """Return 0 if the site does not synchronise, 1 if it does, FLAG if perhaps (volatile), COUNTS for arrivals."""
        if site not in self.kinds:
            ins = self.at(site)
            signals = ins is not None and ins.facts.signals
            strong = COUNTS if ins is not None and (ins.facts.counts or signals) else 1
            self.kinds[site] = FLAG if is_volatile(ins) else strong if is_strong(ins) or signals else 0
        return self.kinds[site]

    def copies(self, site: int) -> bool:
        """Whether the instruction there is a cp.async of bytes."""
        ins = self.at(site)
        return ins is not None and ins.facts.starts == "cp.async"

    def is_wide(self, ins: Instruction | None) -> bool:
        """Whether a fence or a strong access holds between the CTAs of the log."""
        scope = ins.mods.get("scope", ins.mods.get("level", "gpu")) if ins is not None else "cta"
        return scope not in (("cta",) if self.one_cluster else ("cta", "cluster"))

    def looks(self, ins: Instruction) -> bool:
        """Whether the kernel uses the value that an access returns."""
        return any(reg.name in self.used for reg in ins.written())


_semantics: "WeakKeyDictionary[ProgramSource, Semantics]" = WeakKeyDictionary()


def semantics_of(scene: Scene) -> Semantics:
    """Return the semantics of the kernel that a launch ran."""
    source = scene.source
    known = _semantics.get(source)
    if known is None:
        slicer = Slicer(item for item in source.inlined.body if isinstance(item, Instruction))
        by_site = {
            site: replace(_decisive(found), place=source.instruction_at[site].place)
            for site, found in slicer.at.items()
        }
        reserved = scene.layout.reserved
        by_warp = range(SHARED_BASE + reserved.start, SHARED_BASE + reserved.stop)
        products = (line for line, found in slicer.at.items() if any(ins.facts.multiplies == "wgmma" for ins in found))
        known = _semantics[source] = Semantics(
            by_site.get,
            slicer.users,
            Exchanges(source.passes.cfg),
            UnusedLoads(source.inlined),
            frozenset(products),
            any(ins.facts.fences_inits for found in slicer.at.values() for ins in found),
            by_warp,
        )
    grid, asked = scene.launch.grid, scene.launch.cluster
    cluster = cluster_of(source.function.cluster, asked, grid, source.arch, explicit=False)
    return known if prod(cluster) == 1 else replace(known, cluster_with=partial(cluster_with, grid, cluster))


def _decisive(line: Sequence[Instruction]) -> Instruction:
    """Return the instruction that a PTX line stands for.

    Inline assembly puts several on a line: `{ mbarrier.test_wait …; selp …; }`. Of several accesses it is the weakest,
    so that no access is assumed to order more than it does.
    """
    accesses = [ins for ins in line if ins.facts.uses_memory]
    others = [ins for ins in line if ins.facts.fences]
    return min(accesses, key=lambda ins: is_volatile(ins) + 2 * is_strong(ins)) if accesses else (others or line)[0]


def is_volatile(ins: Instruction | None) -> bool:
    return ins is not None and ins.has("volatile")


def is_strong(ins: Instruction | None) -> bool:
    """Whether the memory model orders an access with other strong ones: atomics, ld/st with an order, mbarriers."""
    return ins is not None and (ins.facts.is_atomic or ordering(ins) != "")


def ordering(ins: Instruction) -> str:
    """Return acquire, release, acq_rel or relaxed; empty for an access that orders nothing."""
    return ins.mods.get("order", ins.facts.order)
