"""One kernel of a Binary: its PTX accesses matched to its SASS, once for all launches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.core.records import Binary, Place
from weft.ptx.passes.build_cfg import Cfg
from weft.toolchain.sass import disassemble
from weft.vm.program import ProgramSource

from .match import Match, match_accesses
from .ptx_accesses import find_accesses
from .sass_accesses import access_of
from .sass_text import SassBlock, read_blocks

NO_CUBIN = "there is no cubin: everything is counted at the PTX level"
NO_LINES = "the cubin does not record which PTX lines its SASS comes from (compile with -lineinfo)"


@dataclass(frozen=True)
class KernelMatch:
    """What is known about a kernel before it runs."""

    entry: str
    cfg: Cfg
    places: Mapping[int, Place | None]
    """PTX line → source line."""
    last_line: int
    matches: tuple[Match, ...]
    blocks: tuple[SassBlock, ...]
    """Blocks of the SASS; if empty, `notes` says why."""
    notes: tuple[str, ...]

    def widths(self) -> dict[int, tuple[int, int]]:
        """PTX line → how the probe counts it."""
        return {match.access.line: (match.width, match.shift) for match in self.matches if match.width}


def match_kernel(binary: Binary, entry: str) -> KernelMatch:
    """Match one kernel; `entry` as the user writes it or as in the PTX."""
    name = binary.entries.get(entry, entry)
    source = ProgramSource(binary.ptx, name, mode="hardware", arch=None, cubin=binary.shared.get(name, ()))
    cfg = source.kernel.cfg
    accesses = find_accesses(cfg)
    blocks, notes = _blocks(binary, name)
    if notes:
        matches = tuple(Match(access, 0, 0, 1, "", notes[0]) for access in accesses)
    else:
        sass = [found for block in blocks for ins in block.instructions if (found := access_of(ins, block.id))]
        lines = {block.id: frozenset(ins.line for ins in block.body) for block in cfg.blocks}
        matches = match_accesses(accesses, sass, blocks, lines=lines)
    places = {line: ins.place for line, ins in source.instruction_at.items()}
    last = max([*places, *(access.line for access in accesses)])
    return KernelMatch(name, cfg, places, last, _once_per_line(matches), blocks, notes)


def _blocks(binary: Binary, name: str) -> tuple[tuple[SassBlock, ...], tuple[str, ...]]:
    if not binary.cubin:
        return (), (NO_CUBIN,)
    blocks = read_blocks(disassemble(binary, ptx_lines=True), name)
    if not any(ins.ptx_line for block in blocks for ins in block.instructions):
        return (), (NO_LINES,)
    return blocks, ()


def _once_per_line(matches: tuple[Match, ...]) -> tuple[Match, ...]:
    """Return one match per PTX line, by which the probe counts; a function with several calls repeats its lines."""
    by_line: dict[int, Match] = {}
    for match in matches:
        known = by_line.setdefault(match.access.line, match)
        if (known.width, known.shift, known.reason) != (match.width, match.shift, match.reason):
            reason = known.reason or "its function is called from several places and merged differently"
            by_line[match.access.line] = replace(known, width=0, shift=0, reason=reason)
    return tuple(by_line.values())
