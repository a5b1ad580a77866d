"""How often each block of the SASS ran, from how often the PTX blocks ran.

Some instructions are made one from one: an access, a barrier, a shuffle. Each gives an equation: its copies in SASS,
times the runs of the blocks they stand in, are the runs of its PTX block. Blocks with a copy of their own are settled
at once, others by what is left. Where ptxas made several blocks of one loop body (unrolled, and what is left over), PTX
does not say how often each ran: as many iterations as possible are given to the longest, the cheapest way to run
them, and the blocks are named. A block without such an instruction runs as often as the blocks that no way passes
without it (`equal_blocks`); if none of them has one either, as often as the PTX block that most of their instructions
come from, but never more often than control can reach it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.ptx.passes.build_cfg import Cfg

from .flow_limits import components, limit_by_flow
from .match import Match
from .sass_accesses import NEVER
from .sass_text import SassBlock, repeat_of
from .site_probe import HIDDEN

_ANCHORS = {"BAR": ("bar", "barrier"), "SHFL": ("shfl",)}
"""SASS opcode → the PTX instructions it is made from one by one; accesses are known by their Match."""
_MOVABLE = frozenset(["MOV", "IMAD", "UMOV", "CS2R", "S2R", "S2UR", "ULDC", "NOP", "IADD3", "LEA", "SHF", "LOP3"])
"""ptxas computes these wherever it likes: they say least about where a block came from."""
_LEAVES = frozenset(["EXIT", "RET"])


@dataclass(frozen=True)
class BlockRuns:
    """Executions of the SASS blocks by warps."""

    runs: Mapping[int, int]
    shared_out: frozenset[int]
    """Blocks among which the iterations of a loop are divided in a way PTX does not tell."""
    slow_paths: frozenset[int]
    """Reached only by BRA.DIV or CALL: divergent collectives, divisions of denormals. Taken as not run."""


@dataclass
class _Equation:
    """Σ copies · runs of the blocks that are still open = left."""

    left: int
    copies: dict[int, int] = field(default_factory=dict)


def find_block_runs(
    blocks: Sequence[SassBlock], cfg: Cfg, matches: Sequence[Match], ptx_runs: Sequence[int]
) -> BlockRuns:
    """Runs of each SASS block; `ptx_runs` has those of the blocks of `cfg`."""
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
        told = {runs[number] for number in group & anchored - shared_out}
        # Warps that come apart may pass two such blocks in two parts: then none of them speaks for the others.
        same = told.pop() if len(told) == 1 else None
        missing = group - runs.keys()
        known |= missing if same is not None else set()
        count = (
            same if same is not None else _by_origin([block for block in alive if block.id in missing], cfg, ptx_runs)
        )
        runs |= dict.fromkeys(missing, count)
    runs = limit_by_flow(alive, runs, entered=ptx_runs[0], known=known, open_=shared_out)
    slow = frozenset(block.id for block in blocks) - reached
    return BlockRuns({block.id: runs.get(block.id, 0) for block in blocks}, frozenset(shared_out), slow)


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
            opcodes.setdefault(ins.line, set()).update(n for n, forms in _ANCHORS.items() if ins.form.name in forms)
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
    """Follow the equations with one open block until there is none."""
    while ready := next((item for item in equations if len(item.copies) == 1), None):
        ((block, copies),) = ready.copies.items()
        _put(equations, runs, block, ready.left // copies)


def _put(equations: Sequence[_Equation], runs: dict[int, int], block: int, count: int) -> None:
    runs[block] = count
    for item in equations:
        if block in item.copies:
            item.left = max(item.left - item.copies.pop(block) * count, 0)


def _reached(blocks: Sequence[SassBlock]) -> frozenset[int]:
    """Blocks that are reached without BRA.DIV."""
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
    """Runs of the PTX block that most instructions come from; 0 if none is known."""
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
    """Return groups of blocks that run equally often: no way through the kernel passes one without the others.

    Control that goes from the end of the kernel back to its beginning makes every way a cycle. Two blocks are equal if
    every cycle through one passes the other: `if (x) A; B` says so of the test and of B, whatever A does.
    """
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
