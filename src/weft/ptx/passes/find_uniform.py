"""Finds the registers that hold the same value in all lanes while the entire warp runs together.

A register varies if one of its definitions does: it depends on the lane, on a varying operand, or it is in a block that
some lanes may skip (between a varying branch and the point where its paths join again).
Paths that only leave the kernel do not count: a warp that has lost a lane never runs as a whole again.
The result is used only while all 32 lanes run in step; a warp that returns from divergence is checked first.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from ..module import Imm, Instruction, Mem, Operand, Reg, Special, Sym, Vec
from .build_cfg import Block, Cfg

_PER_LANE = frozenset(["%tid.x", "%tid.y", "%tid.z", "%laneid"])


@dataclass(frozen=True)
class Uniformity:
    """Registers that differ between lanes, blocks that some lanes may skip, and where their paths join."""

    varying: frozenset[str]
    divergent_blocks: frozenset[int]
    join_of: Mapping[int, int]
    """Block with a varying branch → where its paths join again (its immediate post-dominator)."""
    params: frozenset[str]
    """Kernel parameters: the same for every lane (a callee's parameters are not)."""
    row_numbers: frozenset[int]
    """Identities of instructions that depend only on the warp of %tid.x: uniform although their operand is not.

    Lines would not be unique: one line may contain several instructions.
    """

    def is_uniform(self, ins: Instruction) -> bool:
        """Return whether all lanes that run `ins` together compute the same value."""
        return id(ins) in self.row_numbers or not _varies(ins, self.varying, self.params)


def find_uniform(cfg: Cfg, *, warps_are_rows: bool) -> Uniformity:
    """Return the optimistic fixed point: everything is uniform until shown otherwise.

    `warps_are_rows`: the 32 lanes of a warp have consecutive tid.x from a multiple of 32, so tid.x / 32 is uniform.
    """
    rows = _row_numbers(cfg) if warps_are_rows else frozenset()
    post = _immediate_post_dominators(cfg)
    params = frozenset(variable.name for variable in cfg.function.params)
    varying: set[str] = set()
    divergent: set[int] = set()
    join_of: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for block in cfg.blocks:
            for ins in (*block.body, *((block.end,) if block.end else ())):
                if block.id in divergent or (id(ins) not in rows and _varies(ins, varying, params)):
                    for reg in ins.written():
                        if reg.name not in varying:
                            varying.add(reg.name)
                            changed = True
            if _branch_varies(block, varying):
                join = post[block.id]
                if join is not None:
                    join_of[block.id] = join
                region = _between(cfg, block, join)
                if not region <= divergent:
                    divergent |= region
                    changed = True
    return Uniformity(frozenset(varying), frozenset(divergent), join_of, params, rows)


def _row_numbers(cfg: Cfg) -> frozenset[int]:
    """Return the identities of instructions whose result depends on %tid.x only through tid.x / 32.

    Forward must-analysis: which registers hold a copy of %tid.x on every path to a block.
    """
    everything = {
        reg.name for block in cfg.blocks for ins in block.body if ins.copied is not None for reg in ins.written()
    }
    at_start = [set(everything) for _ in cfg.blocks]
    at_start[0] = set()
    predecessors = cfg.predecessors()
    work = list(range(len(cfg.blocks)))
    at_end = [_copies_after(block, at_start[block.id]) for block in cfg.blocks]
    while work:
        number = work.pop(0)
        coming = [at_end[before] for before in predecessors[number]]
        start = set.intersection(*coming) if coming and number else set()
        if start != at_start[number]:
            at_start[number] = start
            at_end[number] = _copies_after(cfg.blocks[number], start)
            work += [way for way in cfg.blocks[number].successors if way not in work]
    found = set()
    for block in cfg.blocks:
        copies = set(at_start[block.id])
        for ins in block.body:
            if ins.guard is None and _by_rows(ins, copies):
                found.add(id(ins))
            _follow(ins, copies)
    return frozenset(found)


def _copies_after(block: Block, copies: set[str]) -> set[str]:
    copies = set(copies)
    for ins in block.body:
        _follow(ins, copies)
    return copies


def _follow(ins: Instruction, copies: set[str]) -> None:
    """Update the set of copies of %tid.x past one instruction."""
    source = ins.copied if ins.guard is None else None
    is_copy = source == Special("%tid.x") or (isinstance(source, Reg) and source.name in copies)
    for reg in ins.written():
        if is_copy:
            copies.add(reg.name)
        else:
            copies.discard(reg.name)


def _by_rows(ins: Instruction, copies: set[str]) -> bool:
    """Return whether it is tid.x / 32, tid.x without its low 5 bits, or tid.x compared with a multiple of 32."""
    if ins.form.name not in ("shr", "and", "setp") or len(ins.operands) != 3:
        return False
    a, b = ins.operands[1:]
    if not (isinstance(a, Reg) and a.name in copies and isinstance(b, Imm) and b.value >= 0):
        return False
    match ins.form.name:
        case "shr":
            return b.value >= 5
        case "and":
            return b.value & 31 == 0
        case _:
            bound = {"lt": 0, "ge": 0, "lo": 0, "hs": 0, "gt": 1, "le": 1, "hi": 1, "ls": 1}.get(ins.mods["cmp"])
            return bound is not None and ins.type in ("u32", "s32") and (b.value + bound) % 32 == 0


def _varies(ins: Instruction, varying: Set[str], params: Set[str]) -> bool:
    if ins.facts.result == "lane" or _reads_own_memory(ins, params):
        return True
    if ins.facts.result == "members":
        # One result for all lanes, as long as they agree on which lanes take part.
        mask = ins.operand("mask")
        guarded = ins.guard is not None and ins.guard.reg.name in varying
        return guarded or (isinstance(mask, Reg) and mask.name in varying)
    if ins.facts.result == "executing":
        return ins.guard is not None and ins.guard.reg.name in varying
    return any(reg.name in varying for reg in ins.read()) or any(_per_lane(operand) for operand in ins.operands)


def _reads_own_memory(ins: Instruction, params: Set[str]) -> bool:
    """Return whether it is a load that may give each lane a different value at one address."""
    for access in ins.facts.accesses:
        if not access.reads or not access.data:
            continue
        operand, space = ins.operand(access.address), access.space(ins.mods)
        parameter = isinstance(operand, Mem) and isinstance(operand.base, Sym) and operand.base.name in params
        if space in ("local", "generic") or (space == "param" and not parameter):
            return True
    return False


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
    """Return the blocks reachable from `block`'s exits before `join`."""
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
    """Apply the iterative algorithm of Cooper, Harvey and Kennedy to the reversed graph with one virtual exit."""
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
    """Yield a block's successors without early exits: jumps to a bare `ret` if the kernel can also end otherwise."""
    staying = [way for way in block.successors if not _only_leaves(cfg.blocks[way])]
    early = len(staying) < len(block.successors) and staying and _can_leave(cfg, block, staying)
    yield from staying if early else block.successors


def _can_leave(cfg: Cfg, block: Block, ways: list[int]) -> bool:
    """Return whether the kernel can end from `ways` without passing `block` again."""
    seen, work = {block.id}, list(ways)
    while work:
        number = work.pop()
        if number in seen:
            continue
        seen.add(number)
        here = cfg.blocks[number]
        if not here.successors:
            return True
        work += here.successors
    return False


def _only_leaves(block: Block) -> bool:
    return not block.body and not block.successors


def _reverse_postorder(onward: list[list[int]], leave: int) -> list[int]:
    """Return the nodes from the virtual exit backwards along the edges; infinite loops lead to the exit too."""
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
