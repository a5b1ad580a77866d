"""The four warps of a warpgroup execute the same products and changes of registers: compared step by step."""

import numpy as np

from weft.core.records import Finding
from weft.ptx.module import Instruction

from ..wgmma_kind import WARPS
from .machine import Cta, RunningWarp

_EVERY_LANE = (1 << 32) - 1


def take_step(w: RunningWarp, ins: Instruction, key: tuple[int, ...]) -> None:
    """Compare a step of a warp with that of the first warp of its group that came so far; `key` must be the same."""
    taken = w.cta.steps.setdefault(w.number // WARPS, [])
    if w.steps_taken is None:
        return
    words = ""
    if w.number | WARPS - 1 >= len(w.cta.warps):
        words = "this instruction needs a warpgroup, but the last one of the CTA has fewer than four warps"
    elif w.steps_taken == len(taken):
        taken.append((key, ins))
    elif taken[w.steps_taken][0] != key:
        other = taken[w.steps_taken][1]
        words = f"the warps of a warpgroup are not together: another one executed PTX line {other.line} here"
        if other.line == ins.line:
            words = "the warps of a warpgroup give this product different descriptors"
    w.steps_taken = None if words else w.steps_taken + 1
    if words:
        w.report("S311", words, ins, np.ones(32, bool))


def await_group(w: RunningWarp) -> None:
    """Wait for the warps of the group that have taken fewer steps: operands of a product are free after all of them."""
    for other in w.cta.warps[w.number // WARPS * WARPS :][:WARPS]:
        if w.steps_taken is None or other.steps_taken is None or not other.live.any():
            continue
        if other.steps_taken < w.steps_taken:
            w.gives_way, w.behind = True, other
            w.next_pc[w.mask] = w.pc[w.mask]
            return


def finish(cta: Cta) -> None:
    """Report warps that took fewer steps than others of their group, when a CTA ends."""
    for group, taken in cta.steps.items():
        warps = cta.warps[WARPS * group : WARPS * (group + 1)]
        if any(w.steps_taken is None for w in warps):
            continue
        for w in warps:
            assert w.steps_taken is not None
            if w.steps_taken < len(taken):
                last = taken[-1][1]
                words = "the warps of a warpgroup are not together: "
                words += f"warp {w.number} ends after {w.steps_taken} of its wgmma and setmaxnreg"
                cta.grid.record(Finding("S311", words, last.line, last.place, cta.index, w.number, _EVERY_LANE))
                break
