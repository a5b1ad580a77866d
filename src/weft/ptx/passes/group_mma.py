"""Finds `mma` instructions that can be executed together, at the place of the last: they share A in straight code.

Blocks are split in front of every collective, so a run here is blocks that follow each other unconditionally. A member
is delayed until the last one; no instruction in between may read or write what it writes, or write what it reads.
Before:  mma d0, a, b0, c0; mma d1, a, b1, c1; ldmatrix b0; mma d2, a, b2, c2
After:   {mma d0; mma d1} ldmatrix b0; mma d2      (the third may not join: b0 is overwritten in front of it)
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..module import Instruction, Operand
from .build_cfg import Block, Cfg


@dataclass
class _Open:
    """A group that may still grow."""

    members: list[int] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    destinations: set[str] = field(default_factory=set)

    def add(self, block: Block) -> None:
        self.members.append(block.id)
        self.sources.update(reg.name for reg in block.body[0].read())
        self.destinations.update(reg.name for reg in block.body[0].written())

    def stands(self, read: set[str], written: set[str]) -> bool:
        """Return whether the members can still be executed after this instruction."""
        return self.destinations.isdisjoint(read | written) and self.sources.isdisjoint(written)


def group_mma(cfg: Cfg, starts: Iterable[int], *, most: int) -> Mapping[int, tuple[int, ...]]:
    """Return block of a group's last member → blocks of all members (2 to `most`), in order; `mma` is a block's first.

    `starts` are the blocks that can be entered other than by falling through.
    """
    groups: dict[int, tuple[int, ...]] = {}
    for run in _runs(cfg, frozenset(starts)):
        for members in _groups(run, most):
            groups[members[-1]] = members
    return groups


def _runs(cfg: Cfg, starts: frozenset[int]) -> Iterator[list[Block]]:
    run: list[Block] = []
    for block in cfg.blocks:
        if run and (block.id in starts or run[-1].end is not None):
            yield run
            run = []
        run.append(block)
    if run:
        yield run


def _groups(run: list[Block], most: int) -> Iterator[tuple[int, ...]]:
    growing: dict[tuple[str, Operand], _Open] = {}
    done: list[_Open] = []
    for block in run:
        for place, ins in enumerate(block.body):
            read, written = {reg.name for reg in ins.read()}, {reg.name for reg in ins.written()}
            for key in [key for key, group in growing.items() if not group.stands(read, written)]:
                done.append(growing.pop(key))
            if place == 0 and _may_wait(ins):
                key = ins.opcode, ins.operand("a")
                group = growing.setdefault(key, _Open())
                group.add(block)
                if len(group.members) == most:
                    done.append(growing.pop(key))
    return (tuple(group.members) for group in (*done, *growing.values()) if len(group.members) > 1)


def _may_wait(ins: Instruction) -> bool:
    scaled = "stype" in ins.mods  # each instruction has its own scales
    return ins.facts.multiplies == "mma" and ins.guard is None and not scaled


__all__ = ["group_mma"]
