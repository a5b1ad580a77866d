"""Which registers hold the same value in all lanes while the whole warp runs together.

A register varies if one of its definitions does: it depends on the lane, on a varying operand, or it stands in a
block that some lanes may skip (between a varying branch and the point where its ways meet again).
Ways that only leave the kernel do not count: a warp that has lost a lane never runs as a whole again.
The answer is used only while all 32 lanes run in step; a warp that comes back from divergence is checked first.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass

from ..module import Instruction, Mem, Operand, Reg, Special, Sym, Vec
from .build_cfg import Block, Cfg

_PER_LANE = frozenset(["%tid.x", "%tid.y", "%tid.z", "%laneid"])
_ALWAYS_VARYING = frozenset(["atom", "match", "mma", "wmma", "ldmatrix", "movmatrix", "shfl", "call"])


@dataclass(frozen=True)
class Uniformity:
    """Registers that differ between lanes, blocks that some lanes may skip, and where their ways meet."""

    varying: frozenset[str]
    divergent_blocks: frozenset[int]
    joins: frozenset[int]
    """Immediate post-dominators of varying branches."""
    params: frozenset[str]
    """Kernel parameters: the same for every lane (a callee's parameters are not)."""

    def is_uniform(self, ins: Instruction) -> bool:
        """Whether all lanes that run `ins` together compute the same."""
        return not _varies(ins, self.varying, self.params)


def find_uniform(cfg: Cfg) -> Uniformity:
    """Optimistic fixed point: everything is uniform until shown otherwise."""
    post = _immediate_post_dominators(cfg)
    params = frozenset(variable.name for variable in cfg.function.params)
    varying: set[str] = set()
    divergent: set[int] = set()
    joins: set[int] = set()
    changed = True
    while changed:
        changed = False
        for block in cfg.blocks:
            for ins in (*block.body, *((block.end,) if block.end else ())):
                if block.id in divergent or _varies(ins, varying, params):
                    for reg in ins.written():
                        if reg.name not in varying:
                            varying.add(reg.name)
                            changed = True
            if _branch_varies(block, varying):
                join = post[block.id]
                if join is not None:
                    joins.add(join)
                region = _between(cfg, block, join)
                if not region <= divergent:
                    divergent |= region
                    changed = True
    return Uniformity(frozenset(varying), frozenset(divergent), frozenset(joins), params)


def _varies(ins: Instruction, varying: Set[str], params: Set[str]) -> bool:
    name = ins.form.name
    if name in _ALWAYS_VARYING or (name == "ld" and _reads_own_memory(ins, params)):
        return True
    if name in ("vote", "redux"):
        # One answer for all lanes, as long as they agree on who takes part.
        mask = ins.operand("mask")
        guarded = ins.guard is not None and ins.guard.reg.name in varying
        return guarded or (isinstance(mask, Reg) and mask.name in varying)
    if name in ("activemask", "bar"):
        return ins.guard is not None and ins.guard.reg.name in varying
    return any(reg.name in varying for reg in ins.read()) or any(_per_lane(operand) for operand in ins.operands)


def _reads_own_memory(ins: Instruction, params: Set[str]) -> bool:
    """A load that may give each lane something else at one address."""
    space = ins.mods.get("space", "global" if ins.has("global") else "generic").partition("::")[0]
    operand = ins.operand("a")
    if space == "param":
        return not (isinstance(operand, Mem) and isinstance(operand.base, Sym) and operand.base.name in params)
    return space in ("local", "generic")


def _per_lane(operand: Operand) -> bool:
    match operand:
        case Special(name=name):
            return name in _PER_LANE or name.startswith("%lanemask")
        case Vec(items=items):
            return any(_per_lane(item) for item in items)
    return False


def _branch_varies(block: Block, varying: Set[str]) -> bool:
    end = block.end
    return end is not None and len(block.successors) > 1 and any(reg.name in varying for reg in end.read())


def _between(cfg: Cfg, block: Block, join: int | None) -> set[int]:
    """Blocks reachable from `block`'s ways out before `join`."""
    seen: set[int] = set()
    work = [successor for successor in block.successors if successor != join]
    while work:
        number = work.pop()
        if number in seen:
            continue
        seen.add(number)
        work += [successor for successor in cfg.blocks[number].successors if successor != join]
    return seen


def _immediate_post_dominators(cfg: Cfg) -> list[int | None]:
    """By the iterative algorithm of Cooper, Harvey and Kennedy on the reversed graph with one virtual exit."""
    count = len(cfg.blocks)
    leave = count
    onward = [list(_ways_that_stay(cfg, block)) or [leave] for block in cfg.blocks]
    order = _reverse_postorder(onward, leave)
    position = {node: number for number, node in enumerate(order)}
    immediate: dict[int, int] = {leave: leave}

    def meet(a: int, b: int) -> int:
        while a != b:
            while position[a] > position[b]:
                a = immediate[a]
            while position[b] > position[a]:
                b = immediate[b]
        return a

    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [way for way in onward[node] if way in immediate]
            if not known:
                continue
            new = known[0]
            for way in known[1:]:
                new = meet(way, new)
            if immediate.get(node) != new:
                immediate[node] = new
                changed = True
    return [None if immediate.get(node, leave) == leave else immediate[node] for node in range(count)]


def _ways_that_stay(cfg: Cfg, block: Block) -> Iterator[int]:
    ways = block.successors
    staying = [way for way in ways if not _only_leaves(cfg.blocks[way])]
    yield from staying if staying else ways


def _only_leaves(block: Block) -> bool:
    return not block.body and not block.successors


def _reverse_postorder(onward: list[list[int]], leave: int) -> list[int]:
    """Nodes from the virtual exit backwards along the edges; endless loops hang off the exit too."""
    backward: list[list[int]] = [[] for _ in range(leave + 1)]
    for node, ways in enumerate(onward):
        for way in ways:
            backward[way].append(node)
    seen: set[int] = set()
    post: list[int] = []

    def visit(root: int) -> None:
        stack = [(root, iter(backward[root]))]
        seen.add(root)
        while stack:
            node, ways = stack[-1]
            for way in ways:
                if way not in seen:
                    seen.add(way)
                    stack.append((way, iter(backward[way])))
                    break
            else:
                post.append(node)
                stack.pop()

    visit(leave)
    return post[::-1]
