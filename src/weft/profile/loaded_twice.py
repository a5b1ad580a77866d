"""An access of an unrolled loop that SASS has at two widths: ptxas loads a part early, and again with its neighbours.

    for (i = 0; i < 8; ++i) … as[i]        LDS     R37, [R7.X4]         i = 0, so that work can begin
                                           LDS.128 R64, [R7.X4]         i = 0 to 3
                                           LDS.128 R36, [R7.X4+0x10]    i = 4 to 7
Both kinds are executed and both count: per eight iterations two accesses of 16 bytes and one of 4. The wide ones stand
side by side, so that each serves the iteration at a multiple of its width and those behind it. The early ones lie a
constant number of words from them in every lane: this turns the banks and changes no count of wavefronts, so any
iteration of the eight may stand for an early one. All of this holds only if the addresses have the same registers and
nothing writes these in between.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from .ptx_accesses import PtxAccess
from .sass_accesses import SassAccess, address_registers, may_write
from .sass_text import SassBlock
from .site_probe import ALIGNED, EARLY, SPAN

_WORD = 4
_MOST_EARLY = SPAN // EARLY - 1


def early_and_wide(
    access: PtxAccess, own: Sequence[SassAccess], blocks: Sequence[SassBlock], repeats: Mapping[tuple[int, int], int]
) -> tuple[int, Fraction] | None:
    """How the probe counts it, and the iterations per SASS access; None if it is not this pattern beyond doubt."""
    if access.verb != "load" or access.space != "shared" or access.bytes != _WORD or access.tiles:
        return None
    wide = max(copy.bytes for copy in own)
    found = set()
    for number in {copy.block for copy in own}:
        copies = [copy for copy in own if copy.block == number]
        span = repeats[number, access.block] * _WORD
        early = [copy for copy in copies if copy.bytes == _WORD]
        if not _side_by_side(copies, early, wide, span) or not _same_base(copies, blocks[number]):
            return None
        found.add((len(early), span))
    if len(found) != 1:
        return None
    ((count, span),) = found
    how = wide | ALIGNED | count * EARLY | span * SPAN
    return how, Fraction(span // _WORD, span // wide + count)


def _side_by_side(copies: Sequence[SassAccess], early: Sequence[SassAccess], wide: int, span: int) -> bool:
    """Whether the wide ones cover the span once, and the early ones are words of it, each at most once."""
    starts = sorted(copy.address[1] for copy in copies if copy.bytes == wide)
    words = {copy.address[1] - starts[0] for copy in early} if starts else set()
    return (
        len(early) + len(starts) == len(copies)
        and bool(starts)
        and span & (span - 1) == 0
        and starts == list(range(starts[0], starts[0] + span, wide))
        # Fewer accesses than iterations: else the run could not tell this from accesses left as they are.
        and 0 < len(words) == len(early) <= min(_MOST_EARLY, span // _WORD - span // wide - 1)
        and all(0 <= word < span and word % _WORD == 0 for word in words)
    )


def _same_base(copies: Sequence[SassAccess], block: SassBlock) -> bool:
    """Whether all have the same registers in their address, with the same values, and no predicate."""
    if len({copy.address[0] for copy in copies}) != 1 or any(copy.ins.predicate for copy in copies):
        return False
    at = [number for number, ins in enumerate(block.instructions) if any(ins is copy.ins for copy in copies)]
    between = block.instructions[min(at) : max(at)]
    registers = address_registers(copies[0])
    return bool(registers) and not any(may_write(ins, register) for ins in between for register in registers)
