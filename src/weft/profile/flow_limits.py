"""How often a SASS block can run at most, by the ways that lead to it.

A block runs at most as often as the ways into it are taken, and as each block that all of these ways have passed. A
loop is left at most as often as it is entered, whatever the number of its iterations: what stands behind it does not
inherit them. Inside a loop the same holds again, with the runs of its first block for the ways into it.
"""

from collections.abc import Collection, Mapping, Sequence

from .sass_text import SassBlock


def limit_by_flow(
    blocks: Sequence[SassBlock],
    runs: Mapping[int, int],
    *,
    entered: int,
    known: Collection[int],
    open_: Collection[int],
) -> dict[int, int]:
    """`runs` of the blocks that are not `known`, lowered to what flow allows; `entered` is how often the kernel began.

    Of `known` blocks the runs stand; those that are `open_` too may have run more often than they say.
    """
    limited = dict(runs)
    ways = {block.id: [way for way in block.successors if way in runs] for block in blocks if block.id in runs}
    _walk(set(runs), ways, {0: entered}, limited, frozenset(known), frozenset(open_))
    return limited


def _walk(
    nodes: set[int],
    ways: Mapping[int, Sequence[int]],
    inflow: Mapping[int, int],
    runs: dict[int, int],
    known: frozenset[int],
    open_: frozenset[int],
) -> None:
    """Loop by loop and block by block, in the order of control; `inflow` comes from outside `nodes`."""
    entering = {node: inflow.get(node, 0) for node in nodes}
    above: dict[int, list[frozenset[int]]] = {node: [frozenset()] if node in inflow else [] for node in nodes}
    passed: list[int] = []
    for number, part in enumerate(components(nodes, ways)):
        # Every way here leads through these parts: two ways that meet again are not two runs.
        before = frozenset.intersection(*[found for node in part for found in above[node]] or [frozenset()])
        total = min([sum(entering[node] for node in part), *(passed[other] for other in before)])
        loops = len(part) > 1 or any(node in ways[node] for node in part)
        if loops:
            heads = {node for node in part if entering[node]} or {min(part)}
            inner = {node: [way for way in ways[node] if way not in heads] for node in part}
            _walk(part, inner, {head: runs[head] for head in heads}, runs, known, open_)
        elif not part & known:
            runs[min(part)] = min(runs[min(part)], total)
        passed.append(total if loops or part & open_ else runs[min(part)])
        for node in part:
            left = passed[-1] if node in open_ else min(runs[node], passed[-1])
            for way in ways[node]:
                if way in nodes and way not in part:
                    entering[way] += left
                    above[way].append(before | {number})


def components(nodes: set[int], ways: Mapping[int, Sequence[int]]) -> list[set[int]]:
    """Blocks that reach each other, in the order of control (Kosaraju)."""
    finished: list[int] = []
    seen: set[int] = set()
    for root in sorted(nodes):
        stack = [] if root in seen else [(root, iter(ways[root]))]
        seen.add(root)
        while stack:
            node, rest = stack[-1]
            following = next((way for way in rest if way in nodes and way not in seen), None)
            if following is None:
                finished.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(ways[following])))
    back: dict[int, list[int]] = {node: [] for node in nodes}
    for node in nodes:
        for way in ways[node]:
            if way in nodes:
                back[way].append(node)
    parts: list[set[int]] = []
    placed: set[int] = set()
    for root in reversed(finished):
        if root in placed:
            continue
        part, front = {root}, [root]
        while front:
            for other in back[front.pop()]:
                if other not in part and other not in placed:
                    part.add(other)
                    front.append(other)
        placed |= part
        parts.append(part)
    return parts
