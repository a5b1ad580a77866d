"""The lines of each block of a compiled kernel, and its branches that count: what coverage needs of its code.

It is kept in the cache, so that a warm start parses no kernel for its coverage.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.core.records import Place, inlining_chain
from weft.ptx.passes.build_cfg import Block, Cfg
from weft.ptx.passes.find_hidden_ways import NOT_TAKEN, TAKEN, is_branch, target_of
from weft.ptx.passes.kernel_passes import KernelPasses
from weft.toolchain.cache import Cache, cache_key
from weft.vm.jit import emitter_version
from weft.vm.program import ProgramSource

Chain = tuple[tuple[str, int], ...]
"""File and line of a place, then of the calls it was inlined into; empty without a place."""


@dataclass(frozen=True)
class BranchCode:
    """A branch that counts: neither side only ends the launch."""

    place: Chain
    targets: tuple[int | None, int | None]
    """The block that each path (TAKEN, NOT_TAKEN) leads to, if its visits show that path; None: hidden, or the end."""
    loops: bool
    """Whether one side starts another iteration."""


@dataclass(frozen=True)
class BlockCode:
    """A basic block."""

    places: frozenset[Chain]
    """Places of its instructions."""
    branch: BranchCode | None


CodeMap = tuple[BlockCode, ...]
"""The blocks of a kernel, by their numbers."""


def stored_map(source: ProgramSource) -> CodeMap:
    """Return the map of a compiled kernel, from the cache if it was made before."""
    if source.text is None:
        return map_of(source.passes)
    key = cache_key(["code map", _version(), source.text, source.entry, str(source.rows)])
    stored = Cache("code_map").get(key)
    if stored is not None:
        return tuple(_block_of(record) for record in json.loads(stored))
    made = map_of(source.passes)
    Cache("code_map").put(key, json.dumps([_record(block) for block in made]).encode())
    return made


@cache
def _version() -> str:
    """Return the source of what makes a map: parser, passes and this file."""
    return emitter_version() + Path(__file__).read_text()


def map_of(passes: KernelPasses) -> CodeMap:
    """Return the map of a kernel."""
    return tuple(
        BlockCode(frozenset(_chain(ins.place) for ins in block.body), _branch_of(block, passes))
        for block in passes.cfg.blocks
    )


def _branch_of(block: Block, passes: KernelPasses) -> BranchCode | None:
    if not is_branch(block) or _guards_trap(passes.cfg, block):
        return None
    assert block.end is not None
    taken, not_taken = (
        None if (block.id, way) in passes.hidden_ways else target_of(block, way) for way in (TAKEN, NOT_TAKEN)
    )
    return BranchCode(_chain(block.end.place), (taken, not_taken), any(way <= block.id for way in block.targets))


def _chain(place: Place | None) -> Chain:
    return tuple((at.file, at.line) for at in inlining_chain(place))


def _guards_trap(cfg: Cfg, block: Block) -> bool:
    """Whether one side of a branch only ends the launch: a failed assertion."""
    for way in block.successors:
        target = cfg.blocks[way]
        if target.end is not None and target.end.facts.control == "trap":
            return True
        if any(ins.facts.control == "call" for ins in target.body):
            return True
    return False


def _record(block: BlockCode) -> list[Any]:
    branch = block.branch
    return [sorted(block.places), branch and [branch.place, branch.targets, branch.loops]]


def _block_of(record: Any) -> BlockCode:
    places, branch = record
    if branch is not None:
        place, (taken, not_taken), loops = branch
        branch = BranchCode(_chain_of(place), (taken, not_taken), loops)
    return BlockCode(frozenset(map(_chain_of, places)), branch)


def _chain_of(record: Any) -> Chain:
    return tuple((file, line) for file, line in record)
