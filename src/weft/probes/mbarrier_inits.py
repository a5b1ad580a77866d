"""mbarriers that a relaxed barrier of the cluster publishes.

    mbarrier.init.shared.b64 [bar], 1;            one thread
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;
    mbarrier.try_wait…                            any thread
The fence makes the initialised mbarriers, and nothing else, visible to threads that wait for the arrival. Where it is
in the kernel is not followed: a kernel that has one is taken to have it behind its initialisations.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from weft.ptx.module import Instruction
from weft.vm.mbarrier_word import PHASE_SHIFT

from .conflict import Actor, Conflict
from .semantics import Semantics, ordering


def is_published(conflict: Conflict, log: npt.NDArray[np.void], semantics: Semantics) -> bool:
    """Whether one side initialises an mbarrier that the other uses after they met at the barrier of the cluster."""
    if not semantics.fences_inits:
        return False
    for init, use in ((conflict.earlier, conflict.later), (conflict.later, conflict.earlier)):
        made, used = semantics.at(init.site), semantics.at(use.site)
        if made is not None and used is not None and _initialises(made) and used.facts.is_mbarrier:
            arrived = set(_phases(log[init.record + 1 :], init, semantics, arrives=True))
            return not arrived.isdisjoint(_phases(log[: use.record], use, semantics, arrives=False))
    return False


def _initialises(ins: Instruction) -> bool:
    return ins.facts.is_mbarrier and ins.facts.writes_memory and not ordering(ins)


def _phases(log: npt.NDArray[np.void], of: Actor, semantics: Semantics, *, arrives: bool) -> Iterator[int]:
    """Yield the phases of the cluster's barrier for which the first lane of an actor arrived, or waited."""
    lane = (of.lanes & -of.lanes).bit_length() - 1
    here = (log["cta"] == of.cta) & (log["warp"] == of.warp) & (log["lanes"] >> lane & 1 != 0)
    for site in np.unique(log["site"][here]).tolist():
        ins = semantics.at(site)
        if ins is not None and ins.facts.group == "cluster" and (ins.facts.order == "release") == arrives:
            for row in log[here & (log["site"] == site)]:
                yield int(row["value"].view(np.uint64)[lane]) >> PHASE_SHIFT
