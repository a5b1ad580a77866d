"""Matches PTX accesses to SASS accesses, which gives the width at which each counts.

ptxas records for every SASS instruction the PTX line it comes from. Where it merged several accesses it records one:
    ld.shared.f32 %f11, [%r7];      LDS.128 R12, [R7]    (line of the first)
    ld.shared.f32 %f14, [%r7+4];
    …                               the others have no separate SASS, and fill the 16 bytes from the same base
The merged access then counts once, at its own start, with the SASS's width: the immediate offsets of neighbours with
the same base show where it starts, and without them it must be filled exactly. Where ptxas unrolled a loop and has one
access for several iterations, the aligned iteration counts, and the run must show one such access per so many
iterations. An access is matched if every copy that ptxas made of it has the same width and that width is explained; an
unmatched one is reported with the reason.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from .ptx_accesses import PtxAccess
from .sass_accesses import SassAccess, address_registers, may_write
from .sass_text import SassBlock, repeat_of
from .site_probe import ALIGNED, EARLY, HIDDEN, SPAN

COUNTED_AS_PTX = 0
_ITERATIONS = "ptxas unrolled its loop and merged accesses of several iterations"
_WORD = 4
_MOST_EARLY = SPAN // EARLY - 1


class _Put(Protocol):
    def __call__(self, width: int, *, events: int = 1, reason: str = "") -> None: ...


@dataclass(frozen=True)
class Match:
    """The SASS access of one PTX access."""

    access: PtxAccess
    width: int
    """For the probe: COUNTED_AS_PTX, bytes per lane, or HIDDEN."""
    shift: int
    """For the probe: bytes from the PTX address to the start of the SASS access."""
    events: int
    """Counts of the probe that make one SASS access."""
    sass: str
    """Opcode that serves it; empty where none was found."""
    reason: str = ""
    """Why it is not matched; empty if it is."""
    every: int | Fraction = 1
    """Iterations of its loop for each SASS access; to be checked against the run."""
    leader: int = 0
    """PTX line of the access that is counted for it, where `every` is more than 1; 0: its own."""

    @property
    def matched(self) -> bool:
        return not self.reason


def match_accesses(
    ptx: Sequence[PtxAccess],
    sass: Sequence[SassAccess],
    blocks: Sequence[SassBlock],
    *,
    lines: Mapping[int, Collection[int]] = {},
) -> tuple[Match, ...]:
    """Return one Match for each PTX access, in the same order; `lines` are those of each PTX block."""
    copies: dict[int, list[SassAccess]] = {}
    for copy in sass:
        copies.setdefault(copy.ins.ptx_line, []).append(copy)
    found: dict[int, Match] = {}
    repeats = {
        (block.id, part): repeat_of(block, lines.get(part)) for block in blocks for part in {each.block for each in ptx}
    }
    for access in ptx:
        own = [copy for copy in copies.get(access.line, ()) if _serves(copy, access)]
        copies[access.line] = own
    for access in ptx:
        own = copies[access.line]
        if own:
            _match_one(access, own, ptx, copies, repeats, found, blocks)
    missing = "no SASS access comes from it: ptxas removed it or merged it"
    return tuple(found.get(id(access)) or Match(access, COUNTED_AS_PTX, 0, 1, "", missing) for access in ptx)


def _serves(sass: SassAccess, ptx: PtxAccess) -> bool:
    spaces = {sass.space, ptx.space}
    return sass.verb == ptx.verb and (len(spaces) == 1 or "generic" in spaces)


def _match_one(
    access: PtxAccess,
    own: list[SassAccess],
    ptx: Sequence[PtxAccess],
    copies: Mapping[int, list[SassAccess]],
    repeats: Mapping[tuple[int, int], int],
    found: dict[int, Match],
    blocks: Sequence[SassBlock],
) -> None:
    opcode = own[0].ins.opcode

    def put(width: int, *, events: int = 1, reason: str = "") -> None:
        found[id(access)] = Match(access, width, 0, events, opcode, reason)

    widths = {(copy.bytes, copy.matrices) for copy in own}
    if id(access) in found:
        return
    if len(widths) > 1:
        if twice := early_and_wide(access, own, blocks, repeats):
            found[id(access)] = Match(access, twice[0], 0, 1, opcode, every=twice[1])
            return
        widest = max(size for size, _ in widths)
        wide = Counter(copy.block for copy in own if copy.bytes == widest)
        reason = "its copies in SASS have different widths"
        whole = all(n * widest == repeats[block, access.block] * access.bytes for block, n in wide.items())
        if access.space == "shared" and not access.tiles and whole and {copy.block for copy in own} == set(wide):
            # The wide ones cover everything: what ptxas also loads early, and then again, is not counted.
            every, reason = widest // access.bytes, f"{reason}; only those of {widest} bytes are counted"
            found[id(access)] = Match(access, widest | ALIGNED, 0, 1, opcode, reason, every)
        else:
            put(COUNTED_AS_PTX, reason=reason)
        return
    (size, matrices), per_block = widths.pop(), Counter(copy.block for copy in own)
    if access.wmma:
        _match_tile(access, size, matrices, per_block, put)
    elif members := _over_iterations(access, size, per_block, ptx, copies, repeats):
        every = size // sum(member.bytes for member in members)
        if access.space != "shared" or every < 2:
            put(COUNTED_AS_PTX, reason=_ITERATIONS)
            return
        for member in members:
            width = size | ALIGNED if member is access else HIDDEN
            found[id(member)] = Match(member, width, 0, 1, opcode, every=every, leader=access.line)
    elif any(count < repeats[block, access.block] for block, count in per_block.items()):
        put(COUNTED_AS_PTX, reason=_ITERATIONS)
    elif size == max(access.bytes, 1) and matrices == access.tiles:
        put(COUNTED_AS_PTX)
    elif size > access.bytes and not matrices:
        start, members = _merged(access, own, ptx, copies)
        if members:
            for member in members:
                first = member is members[0]
                shift = start - member.offset if first else 0
                found[id(member)] = Match(member, size if first else HIDDEN, shift, 1, opcode)
        else:
            put(COUNTED_AS_PTX, reason=f"{opcode} is wider, and which other accesses it covers is not known")
    else:
        put(COUNTED_AS_PTX, reason=f"{opcode} is narrower: ptxas split it or dropped a part")


def _over_iterations(
    access: PtxAccess,
    size: int,
    per_block: Mapping[int, int],
    ptx: Sequence[PtxAccess],
    copies: Mapping[int, list[SassAccess]],
    repeats: Mapping[tuple[int, int], int],
) -> list[PtxAccess]:
    """Return one iteration's part of an access that covers several: it and its upper neighbours; empty if none."""
    near = {other.offset: other for other in _alike(access, ptx) if other is access or not copies[other.line]}
    members: list[PtxAccess] = []
    span = 0
    while span < size and (following := near.get(access.offset + span)) is not None:
        members.append(following)
        span += following.bytes
        if size > span and all(n * size == repeats[block, access.block] * span for block, n in per_block.items()):
            return members
    return []


def _alike(access: PtxAccess, ptx: Sequence[PtxAccess]) -> list[PtxAccess]:
    """Return accesses of the same kind and base in the same block."""
    same = (access.verb, access.space, access.block, access.root)
    return [other for other in ptx if (other.verb, other.space, other.block, other.root) == same]


def _match_tile(access: PtxAccess, size: int, matrices: int, per_block: Counter[int], put: _Put) -> None:
    """Match a wmma load or store: the probe counts its 8 x 8 blocks one by one."""
    count = min(per_block.values())
    if any(number % count for number in per_block.values()):
        put(COUNTED_AS_PTX, reason="its copies in SASS differ")
    elif matrices and count * matrices == access.tiles:
        # Eight rows of 16 bytes in 32 words: the probe's words of 4 bytes give the phase's wavefronts.
        put(4, events=matrices)
    elif not matrices and count == access.tiles and size == access.bytes:
        put(COUNTED_AS_PTX)
    else:
        put(COUNTED_AS_PTX, reason=f"{count} SASS accesses of {size} bytes for {access.tiles} blocks of its tile")


def _merged(
    access: PtxAccess, own: list[SassAccess], ptx: Sequence[PtxAccess], copies: Mapping[int, list[SassAccess]]
) -> tuple[int, list[PtxAccess]]:
    """Return the PTX offset of the merged access, and the accesses it covers, lowest first; empty if ambiguous."""
    size = own[0].bytes
    alike = _alike(access, ptx)
    near = {other.offset: other for other in alike if other is access or not copies[other.line]}
    starts = {_start(copy, alike, copies) for copy in own}
    if len(starts) == 1 and (start := starts.pop()) is not None:
        inside = sorted(at for at, other in near.items() if start <= at and at + other.bytes <= start + size)
        return start, [near[at] for at in inside] if access.offset in inside else []
    windows = [_window(near, start, size) for start in range(access.offset, access.offset - size, -1)]
    full = [window for window in windows if any(member is access for member in window)]
    # ptxas records the lowest: if no full window starts there, only an unambiguous window is used.
    members = full[0] if full and (full[0][0] is access or len(full) == 1) else []
    return (members[0].offset if members else 0), members


def _start(merged: SassAccess, alike: Sequence[PtxAccess], copies: Mapping[int, list[SassAccess]]) -> int | None:
    """Return the PTX offset of the merged access, from unmerged neighbours of the same base."""
    base, immediate = merged.address
    distances = set()
    for other in alike:
        for copy in copies[other.line]:
            if copy.block == merged.block and copy.bytes == other.bytes and copy.address[0] == base:
                distances.add(copy.address[1] - other.offset)
    return immediate - distances.pop() if len(distances) == 1 else None


def _window(near: Mapping[int, PtxAccess], start: int, size: int) -> list[PtxAccess]:
    members, at = [], start
    while at < start + size:
        if at not in near:
            return []
        members.append(near[at])
        at += near[at].bytes
    return members if at == start + size else []


def early_and_wide(
    access: PtxAccess, own: Sequence[SassAccess], blocks: Sequence[SassBlock], repeats: Mapping[tuple[int, int], int]
) -> tuple[int, Fraction] | None:
    """Return how the probe counts it, and the iterations per SASS access; None if it is not certainly this pattern.

    An access of an unrolled loop with two widths in SASS: ptxas loads a part early, and again with its neighbours.
        for (i = 0; i < 8; ++i) … as[i]        LDS     R37, [R7.X4]         i = 0, so that work can begin
                                               LDS.128 R64, [R7.X4]         i = 0 to 3
                                               LDS.128 R36, [R7.X4+0x10]    i = 4 to 7
    Both kinds are executed and both count: per eight iterations two accesses of 16 bytes and one of 4. The wide ones
    are adjacent, so that each covers the iteration at a multiple of its width and those after it. The early ones are a
    constant number of words from them in every lane: this rotates the banks and does not change the number of
    wavefronts, so any of the eight iterations may represent an early one. This holds only if the addresses have the
    same registers and nothing writes these in between.
    """
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
        # Fewer accesses than iterations: else the run could not distinguish this from unmerged accesses.
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
