"""Finds out whether a kernel may wait for another CTA: a loop that runs until a value in global memory changes.

    SPIN: ld.acquire.gpu.u32 %r1, [%rd1];  setp.ne.u32 %p, %r1, 0;  @%p bra SPIN;
The load is volatile, acquiring or relaxed, or an atomic; its result decides a branch of the same loop. A loop that
retries a compare-and-swap with the value it found last waits for no thread: one of the competing threads succeeds.
"""

from collections.abc import Iterable

from ..isa.memory import GUESS
from ..module import Instruction, Reg
from .build_cfg import Block, Cfg


def waits_for_others(cfg: Cfg) -> bool:
    """Return whether some loop of the kernel polls global memory."""
    return any(_polls([cfg.blocks[number] for number in sorted(loop)]) for loop in _loops(cfg))


def _polls(blocks: list[Block]) -> bool:
    body = [ins for block in blocks for ins in block.body]
    asking = [ins for ins in body if asks_others(ins) and not _retries(ins, body)]
    if not asking:
        return False
    if any(_stores(ins) and ins.space in ("local", "generic", "param") for ins in body):
        return True  # an unoptimised build: values go through local memory, which is not followed here
    dependent = _dependent(asking, body)
    ends = [block.end for block in blocks if block.end is not None and len(block.successors) > 1]
    return any(reg.name in dependent for end in ends for reg in end.read())


def _dependent(first: Iterable[Instruction], body: list[Instruction]) -> set[str]:
    """Return the registers that depend on what the instructions `first` write."""
    dependent = {reg.name for ins in first for reg in ins.written()}
    known = -1
    while known != len(dependent):
        known = len(dependent)
        for ins in body:
            if any(reg.name in dependent for reg in ins.read()):
                dependent |= {reg.name for reg in ins.written()}
    return dependent


def _retries(ins: Instruction, body: list[Instruction]) -> bool:
    """Return whether `ins` is a compare-and-swap that compares with the value it found before."""
    if not ins.has("cas"):
        return False
    expected = ins.operand("b")
    return isinstance(expected, Reg) and expected.name in _dependent([ins], body)


def asks_others(ins: Instruction) -> bool:
    """Return whether `ins` reads global memory so that it may see what another CTA wrote meanwhile.

    That is an atomic operation that returns a value, or a strong load: volatile, or with an order (PTX ISA 8.4).
    """
    if ins.form is GUESS:  # another CTA's value makes the exchange fail, which the loop around it repeats
        return False
    shows = any(access.reads and access.space(ins.mods) in ("global", "generic") for access in ins.facts.accesses)
    if not shows or not ins.form.returns:
        return False
    return ins.facts.is_atomic or ins.has("volatile") or "order" in ins.mods


def _stores(ins: Instruction) -> bool:
    return ins.facts.writes_memory and not ins.facts.is_atomic


def _loops(cfg: Cfg) -> list[frozenset[int]]:
    """Return the strongly connected components that have an edge inside, by Tarjan's algorithm without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found: list[frozenset[int]] = []
    for root in range(len(cfg.blocks)):
        if root in order:
            continue
        work = [(root, iter(cfg.blocks[root].successors))]
        order[root] = low[root] = len(order)
        stack.append(root)
        while work:
            node, ways = work[-1]
            for way in ways:
                if way not in order:
                    order[way] = low[way] = len(order)
                    stack.append(way)
                    work.append((way, iter(cfg.blocks[way].successors)))
                    break
                if way in stack:
                    low[node] = min(low[node], order[way])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part = frozenset(stack[stack.index(node) :])
                    del stack[stack.index(node) :]
                    if len(part) > 1 or node in cfg.blocks[node].successors:
                        found.append(part)
    return found
