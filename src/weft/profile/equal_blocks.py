"""Blocks that run equally often because no way through the kernel passes one without the other.

Control that goes from the end of the kernel back to its beginning makes every way a cycle. Two blocks are equal if
every cycle through one passes the other: `if (x) A; B` says so of the test and of B, whatever A does.
"""

from collections.abc import Mapping, Sequence

from .flow_limits import components
from .sass_text import SassBlock

_LEAVES = frozenset(["EXIT", "RET"])


def equal_blocks(blocks: Sequence[SassBlock]) -> tuple[frozenset[int], ...]:
    """The blocks in groups; most groups have one."""
    alive = {block.id for block in blocks}
    ways = {block.id: _ways(block, alive) for block in blocks}
    # Blocks that are on no cycle any more when this one is gone.
    hang_on = {block: _off_cycles(alive - {block}, ways) for block in alive}
    groups: list[frozenset[int]] = []
    placed: set[int] = set()
    for block in sorted(alive):
        if block not in placed:
            group = frozenset({block} | {other for other in hang_on[block] if block in hang_on[other]})
            groups.append(group)
            placed |= group
    return tuple(groups)


def _ways(block: SassBlock, alive: set[int]) -> list[int]:
    ways = [way for way in block.successors if way in alive]
    return [*ways, 0] if not ways or block.instructions[-1].name in _LEAVES else ways


def _off_cycles(nodes: set[int], ways: Mapping[int, Sequence[int]]) -> frozenset[int]:
    parts = components(nodes, ways)
    return frozenset(min(part) for part in parts if len(part) == 1 and min(part) not in ways[min(part)])
