"""Computes how often each SASS block ran, from how often the PTX blocks ran.

Some PTX instructions become one SASS instruction: an access, a barrier, a shuffle. Each gives an equation: its copies,
times the runs of the blocks they are in, are the runs of its PTX block. Blocks with a separate copy are settled
at once, others by elimination. Where ptxas made several blocks of one loop body (unrolled, and a remainder), PTX
does not show how often each ran: as many iterations as possible are assigned to the longest, the cheapest way to run
them, and the blocks are reported. A block without such an instruction runs as often as the blocks that are on every
path with it (`equal_blocks`); if none of them has one either, as often as the PTX block that most of their
instructions come from, but never more often than control flow can reach it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from weft.ptx.module import Instruction
from weft.ptx.passes.build_cfg import Cfg

from .match import Match
from .sass_accesses import NEVER
from .sass_text import SassBlock, repeat_of
from .site_probe import HIDDEN

_MOVABLE = frozenset(["MOV", "IMAD", "UMOV", "CS2R", "S2R", "S2UR", "ULDC", "NOP", "IADD3", "LEA", "SHF", "LOP3"])
"""ptxas moves these freely: they are the weakest evidence of where a block came from."""
_LEAVES = frozenset(["EXIT", "RET"])


@dataclass(frozen=True)
class BlockRuns:
    """How often warps executed the SASS blocks."""

    runs: Mapping[int, int]
    shared_out: frozenset[int]
    """Blocks that share the iterations of a loop in a way that PTX does not show."""
    slow_paths: frozenset[int]
    """Blocks reached only by BRA.DIV or CALL: divergent collectives, divisions of denormals. Assumed not to run."""


@dataclass
class _Equation:
    """Σ copies · runs of the blocks that are still open = left."""

    left: int
    copies: dict[int, int] = field(default_factory=dict)


def find_block_runs(
    blocks: Sequence[SassBlock], cfg: Cfg, matches: Sequence[Match], ptx_runs: Sequence[int]
) -> BlockRuns:
    """Return the runs of each SASS block; `ptx_runs` has those of the blocks of `cfg`."""
    reached = _reached(blocks)
    alive = [block for block in blocks if block.id in reached]
    equations = _equations(alive, cfg, matches, ptx_runs)
    runs: dict[int, int] = {}
    shared_out: set[int] = set()
    anchored = {number for equation in equations for number in equation.copies}
    _settle(equations, runs)
    for block in sorted((block for block in alive if block.id in anchored), key=repeat_of, reverse=True):
        if block.id not in runs:
            its_own = [item for item in equations if block.id in item.copies]
            shared_out |= {number for item in its_own for number in item.copies}
            _put(equations, runs, block.id, min(item.left // item.copies[block.id] for item in its_own))
            _settle(equations, runs)
    known = set(anchored)
    for group in equal_blocks(alive):
        settled = {runs[number] for number in group & anchored - shared_out}
        # Diverged warps may run two such blocks in two parts: then the count of one is not valid for the others.
        same = settled.pop() if len(settled) == 1 else None
        missing = group - runs.keys()
        known |= missing if same is not None else set()
        count = (
            same if same is not None else _by_origin([block for block in alive if block.id in missing], cfg, ptx_runs)
        )
        runs |= dict.fromkeys(missing, count)
    runs = limit_by_flow(alive, runs, entered=ptx_runs[0], known=known, open_=shared_out)
    slow = frozenset(block.id for block in blocks) - reached
    return BlockRuns({block.id: runs.get(block.id, 0) for block in blocks}, frozenset(shared_out), slow)


def _anchor(ins: Instruction) -> tuple[str, ...]:
    """Return the SASS opcode that a PTX instruction becomes, once; accesses are found by their Match."""
    if ins.facts.group == "cta" or ins.facts.is_warp_barrier:
        return ("BAR",)
    return ("SHFL",) if ins.facts.group == "warp" and ins.facts.copies else ()


def _equations(
    alive: Sequence[SassBlock], cfg: Cfg, matches: Sequence[Match], ptx_runs: Sequence[int]
) -> list[_Equation]:
    opcodes: dict[int, set[str]] = {}
    totals: Counter[int] = Counter()
    for match in matches:
        if match.matched and match.width != HIDDEN and match.every == 1 and not match.access.wmma:
            opcodes.setdefault(match.access.line, set()).add(match.sass.partition(".")[0])
    for block in cfg.blocks:
        for ins in (*block.body, *([block.end] if block.end else [])):
            totals[ins.line] += ptx_runs[block.id]
            opcodes.setdefault(ins.line, set()).update(_anchor(ins))
    found: dict[int, _Equation] = {}
    conditional: set[int] = set()
    for piece in alive:
        for item in piece.instructions:
            if item.name not in opcodes.get(item.ptx_line, ()) or item.predicate == NEVER:
                continue
            if item.predicate:
                conditional.add(item.ptx_line)
            equation = found.setdefault(item.ptx_line, _Equation(totals[item.ptx_line]))
            equation.copies[piece.id] = equation.copies.get(piece.id, 0) + 1
    return [equation for line, equation in found.items() if line not in conditional]


def _settle(equations: Sequence[_Equation], runs: dict[int, int]) -> None:
    """Solve equations with one open block until there is none."""
    while ready := next((item for item in equations if len(item.copies) == 1), None):
        ((block, copies),) = ready.copies.items()
        _put(equations, runs, block, ready.left // copies)


def _put(equations: Sequence[_Equation], runs: dict[int, int], block: int, count: int) -> None:
    runs[block] = count
    for item in equations:
        if block in item.copies:
            item.left = max(item.left - item.copies.pop(block) * count, 0)


def _reached(blocks: Sequence[SassBlock]) -> frozenset[int]:
    """Return the blocks that are reached without BRA.DIV."""
    found, front = {0}, [0]
    while front:
        block = blocks[front.pop()]
        last = block.instructions[-1]
        ways = block.successors[-1:] if last.name == "BRA" and "DIV" in last.modifiers else block.successors
        for way in ways:
            if way not in found:
                found.add(way)
                front.append(way)
    return frozenset(found)


def _by_origin(group: Sequence[SassBlock], cfg: Cfg, ptx_runs: Sequence[int]) -> int:
    """Return the runs of the PTX block that most instructions come from; 0 if none is known."""
    block_of = {ins.line: part.id for part in cfg.blocks for ins in (*part.body, *([part.end] if part.end else []))}
    votes: Counter[int] = Counter()
    for block in group:
        own: Counter[int] = Counter()
        for ins in block.instructions:
            if ins.ptx_line in block_of and (not ins.predicate or ins.name == "BRA"):
                own[ptx_runs[block_of[ins.ptx_line]]] += 1 if ins.name in _MOVABLE else 8
        if own:
            most = max(own, key=lambda runs: (own[runs], -runs))
            votes[most // repeat_of(block)] += own[most]
    return max(votes, key=lambda runs: (votes[runs], -runs)) if votes else 0


def equal_blocks(blocks: Sequence[SassBlock]) -> tuple[frozenset[int], ...]:
    """Return groups of blocks that run equally often: no path through the kernel contains one without the others.

    An edge from the end of the kernel to its beginning makes every path a cycle. Two blocks are equal if every cycle
    through one contains the other: in `if (x) A; B` that holds for the test and B, whatever A does.
    """
    alive = {block.id for block in blocks}
    ways = {block.id: _ways(block, alive) for block in blocks}
    # Blocks that are on no cycle without this one.
    depends_on = {block: _off_cycles(alive - {block}, ways) for block in alive}
    groups: list[frozenset[int]] = []
    placed: set[int] = set()
    for block in sorted(alive):
        if block not in placed:
            group = frozenset({block} | {other for other in depends_on[block] if block in depends_on[other]})
            groups.append(group)
            placed |= group
    return tuple(groups)


def _ways(block: SassBlock, alive: set[int]) -> list[int]:
    ways = [way for way in block.successors if way in alive]
    return [*ways, 0] if not ways or block.instructions[-1].name in _LEAVES else ways


def _off_cycles(nodes: set[int], ways: Mapping[int, Sequence[int]]) -> frozenset[int]:
    parts = components(nodes, ways)
    return frozenset(min(part) for part in parts if len(part) == 1 and min(part) not in ways[min(part)])


def limit_by_flow(
    blocks: Sequence[SassBlock],
    runs: Mapping[int, int],
    *,
    entered: int,
    known: Collection[int],
    open_: Collection[int],
) -> dict[int, int]:
    """Return `runs` with unknown blocks lowered to what control flow allows; `entered`: how often the kernel started.

    A block runs at most as often as its incoming edges are taken, and as each block that all paths to it contain. A
    loop is left at most as often as it is entered, whatever the number of its iterations, so the code after it does not
    inherit them. Inside a loop the same holds again, with the runs of its first block for the incoming edges.

    The runs of `known` blocks stay; those that are also in `open_` may have run more often than given.
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
    """Visit loops and blocks in the order of control flow; `inflow` comes from outside `nodes`."""
    entering = {node: inflow.get(node, 0) for node in nodes}
    above: dict[int, list[frozenset[int]]] = {node: [frozenset()] if node in inflow else [] for node in nodes}
    passed: list[int] = []
    for number, part in enumerate(components(nodes, ways)):
        # Every path here contains these parts: two paths that join again are not two runs.
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
    """Return sets of blocks that reach each other, in the order of control flow (Kosaraju)."""
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
