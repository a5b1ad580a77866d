"""Finds paths out of a branch that block counts do not show: out of the kernel, or to a block with other predecessors.

B0: setp…; @p bra B2      the path B0 → B2 is hidden: B2 runs whether it is taken or not
B1: st.shared …           the path B0 → B1 is not: B1 runs only if it is taken
B2: ret
"""

from collections.abc import Iterator

from .build_cfg import Block, Cfg

TAKEN, NOT_TAKEN = 0, 1
"""The two paths out of a branch."""


def is_branch(block: Block) -> bool:
    """Return whether the block ends in a choice between two paths: `@p bra`, `@p ret`, `@p exit`."""
    end = block.end
    return end is not None and end.guard is not None and end.facts.control in ("jump", "return", "exit")


def target_of(block: Block, way: int) -> int | None:
    """Return the block that a path of a branch leads to; None: out of the kernel."""
    if way == NOT_TAKEN:
        return block.next
    return block.targets[0] if block.targets else None


def find_hidden_ways(cfg: Cfg) -> frozenset[tuple[int, int]]:
    """Return pairs of a branch's block and TAKEN or NOT_TAKEN."""
    into = [len(set(blocks)) for blocks in cfg.predecessors()]
    return frozenset(_hidden(cfg, into))


def _hidden(cfg: Cfg, into: list[int]) -> Iterator[tuple[int, int]]:
    for block in cfg.blocks:
        if not is_branch(block):
            continue
        for way in (TAKEN, NOT_TAKEN):
            target = target_of(block, way)
            # The entry has a predecessor that is not a block: the launch.
            if target is None or into[target] > 1 or target == 0 or len(set(block.successors)) == 1:
                yield block.id, way
