"""Instruction stream → basic blocks.

A block ends at a branch, a return, or a CTA barrier (where the warp yields to others). A warp collective
(`.sync`) starts a block, so that lanes which arrive early in divergent code can wait in front of it.
Before:  setp…; @p bra L1; add…; bar.sync 0; L1: ret
After:   B0 [setp | @p bra → B3, B1]  B1 [add | bar.sync → B2]  B2 [→ B3]  B3 [ret]
"""

from dataclasses import dataclass, replace

from weft.core.errors import ParseError, Unsupported

from .. import isa
from ..module import Function, Guard, Instruction, Label, LabelDef


@dataclass(frozen=True)
class Block:
    """Straight-line code with one entry and a described exit."""

    id: int
    body: tuple[Instruction, ...]
    end: Instruction | None
    """bra, brx, ret, exit, trap or a blocking barrier; None falls through."""
    targets: tuple[int, ...]
    """The possible targets of `end`."""
    next: int | None
    """The next block, if control can reach it."""
    collective: bool
    """Whether the first instruction is a warp collective."""

    @property
    def successors(self) -> tuple[int, ...]:
        return self.targets if self.next is None else (*self.targets, self.next)

    @property
    def size(self) -> int:
        """Return the warp instructions that this block counts as."""
        return len(self.body) + (self.end is not None)


@dataclass(frozen=True)
class Cfg:
    """The blocks of one function in program order; block 0 is the entry."""

    function: Function
    blocks: tuple[Block, ...]

    def predecessors(self) -> list[list[int]]:
        into: list[list[int]] = [[] for _ in self.blocks]
        for block in self.blocks:
            for successor in block.successors:
                into[successor].append(block.id)
        return into


def build_cfg(function: Function) -> Cfg:
    """Split `function` into blocks and link them."""
    pieces: list[tuple[list[Instruction], Instruction | None]] = []
    starts: dict[str, int] = {}
    body: list[Instruction] = []
    fresh = True

    def close(end: Instruction | None) -> None:
        nonlocal body, fresh
        pieces.append((body, end))
        body, fresh = [], True

    for item in function.body:
        if isinstance(item, LabelDef):
            if not fresh:
                close(None)
            if item.name in starts:
                raise ParseError(f"label {item.name} defined twice", item.line)
            starts[item.name] = len(pieces)
            continue
        collective, barrier = item.facts.group == "warp", item.facts.is_barrier
        if collective and not fresh:
            close(None)
        if (barrier or collective) and item.guard is not None:
            # `@p bar.sync` is a branch around the barrier: lanes without p must not count as arrived.
            around = f"$around{len(pieces)}"
            close(branch_to(around, item, Guard(item.guard.reg, not item.guard.negated)))
            alone = replace(item, guard=None)
            if barrier:
                close(alone)
            if not barrier or item.has("red"):
                body.append(alone)
                close(None)
            starts[around] = len(pieces)
            continue
        fresh = False
        if item.facts.control not in ("", "call") or barrier:
            close(item)
            if barrier and item.has("red"):
                body.append(item)  # inside a block, bar.red reads the result of the barrier just passed
                fresh = False
        else:
            body.append(item)
    if not fresh or not pieces or _falls_through(pieces[-1][1]) or len(pieces) in starts.values():
        pieces.append((body, None))
    blocks = []
    for number, (instructions, end) in enumerate(pieces):
        last = number + 1 == len(pieces)
        follows = number + 1 if _falls_through(end) and not last else None
        blocks.append(
            Block(
                number,
                tuple(instructions),
                end,
                _targets(function, end, starts),
                follows,
                bool(instructions) and instructions[0].facts.group == "warp",
            )
        )
    return Cfg(function, tuple(blocks))


def branch_to(label: str, at: Instruction, guard: Guard | None) -> Instruction:
    """Return a `bra` made by the passes, with the place of another instruction."""
    found = isa.lookup("bra")
    assert found is not None
    return Instruction("bra", found[0], found[1], (Label(label),), guard, at.line, at.place)


def _falls_through(end: Instruction | None) -> bool:
    return end is None or end.guard is not None or end.facts.is_barrier


def _targets(function: Function, end: Instruction | None, starts: dict[str, int]) -> tuple[int, ...]:
    if end is None or end.facts.control not in ("jump", "table"):
        return ()
    name = end.operands[-1]
    assert isinstance(name, Label)
    if end.facts.control == "jump":
        names: tuple[str, ...] = (name.name,)
    elif name.name in function.tables:
        names = function.tables[name.name].targets
    else:
        raise Unsupported(f"branch table {name.name}, which the function does not declare", end.line)
    for target in names:
        if target not in starts:
            raise ParseError(f"label {target} is not defined", end.line)
    return tuple(starts[target] for target in names)
