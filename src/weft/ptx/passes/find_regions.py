"""Finds varying branches whose paths join again soon, in straight order: they run with masks instead of diverging.

    X: @p bra J          X: lanes = p
    B: st.shared …       B: st.shared … for the lanes not in p
    J: …                 J: …
A region has one entry (X), no loop, no barrier, no collective, no exit from the kernel: `if (lane == 0) { … }`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from .build_cfg import Block, Cfg
from .find_uniform import Uniformity

MOST_INSTRUCTIONS = 400
"""Longer regions run divergent: executing both paths for all lanes would cost more."""


@dataclass(frozen=True)
class MaskedRegion:
    """Blocks between a varying branch and its join, in an order in which every edge goes forward."""

    blocks: tuple[int, ...]
    join: int


def find_regions(cfg: Cfg, uniformity: Uniformity) -> Mapping[int, MaskedRegion]:
    """Return branch block → its region; regions do not nest (the outermost one is taken)."""
    predecessors = cfg.predecessors()
    taken: set[int] = set()
    regions: dict[int, MaskedRegion] = {}
    for block in cfg.blocks:
        join = uniformity.join_of.get(block.id)
        if join is None or block.id in taken or block.end is None or block.end.facts.control != "jump":
            continue
        inside = _inside(cfg, block, join)
        if inside is None or not _suits(cfg, block, inside, predecessors):
            continue
        regions[block.id] = MaskedRegion(tuple(inside), join)
        taken |= set(inside)
    return regions


def _inside(cfg: Cfg, block: Block, join: int) -> list[int] | None:
    """Return the blocks between `block` and `join` in program order; None if some edge goes backward."""
    seen: set[int] = set()
    work = [way for way in block.successors if way != join]
    while work:
        number = work.pop()
        if number in seen:
            continue
        if number <= block.id:
            return None
        seen.add(number)
        for way in cfg.blocks[number].successors:
            if way == join:
                continue
            if way <= number:
                return None
            work.append(way)
    return sorted(seen)


def _suits(cfg: Cfg, block: Block, inside: list[int], predecessors: list[list[int]]) -> bool:
    members = {block.id, *inside}
    if sum(cfg.blocks[number].size for number in inside) > MOST_INSTRUCTIONS:
        return False
    for number in inside:
        here = cfg.blocks[number]
        if here.collective or not set(predecessors[number]) <= members:
            return False
        if here.end is not None and here.end.facts.control != "jump":
            return False
        if not here.successors or any(ins.facts.control == "call" or ins.facts.group == "cta" for ins in here.body):
            return False
    return True
