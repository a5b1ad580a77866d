"""The line of the user's file after which the barrier of a race belongs.

`barrier_place.py` decides which of the two accesses the other should wait for. This module turns that into a line:

- in the function that contains both accesses: `tile[t] = x[t]` in a function that loads a tile is not the place for a
  barrier, the line that calls the function is; CUDA's headers are skipped;
- at the end of the statement that contains the one access and not the other: after a loop, not inside it;
- where there is no barrier yet: if one already orders the path from this access to the other, the path back has none.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from weft.core.records import Place, inlining_chain
from weft.core.statements import Statements, statements_of
from weft.toolchain.cuda_headers import is_users

Frames = Sequence[tuple[str, int]]
"""File and line in each function that an access was inlined into, outermost first."""


@dataclass(frozen=True)
class BarrierLine:
    """Where a barrier belongs."""

    place: Place
    inside: bool = False
    """Whether both accesses are in the statement that ends here: the barrier then belongs between them."""


def barrier_line(behind: Place | None, other: Place | None, barriers: Collection[Place]) -> BarrierLine | None:
    """Return the line after which a barrier makes `other` wait for `behind`; None if no line is known.

    `barriers` are the places of the barriers that the kernel has.
    """
    here, there = users_frames(behind), users_frames(other)
    if not here:
        return None
    if not there:
        return BarrierLine(Place(*here[-1]))
    depth = _depth(here, there)
    (file, line), (other_file, other_line) = here[depth], there[depth]
    if file != other_file:
        return BarrierLine(Place(file, line))
    text = statements_of(file)
    if not text.chain(line):
        return BarrierLine(Place(file, line))
    known = _lines(barriers, here[:depth], file)
    mine, its = text.apart(line, other_line), text.apart(other_line, line)
    if mine and its:
        return BarrierLine(Place(file, text.last(its if _ordered(text, mine, its, known) else mine)))
    held = text.chain(line)[-1]
    return BarrierLine(
        Place(file, text.last(held)), text.chain(other_line)[-1:] == (held,) and _alone(text, held, known)
    )


def line_of_wait(wait: Place | None, access: Place | None) -> BarrierLine | None:
    """Return the line of a wait, or of another step before an access, in the function that contains both."""
    here, there = users_frames(wait), users_frames(access)
    if not here:
        return None
    return BarrierLine(Place(*here[_depth(here, there) if there else -1]))


def _depth(here: Frames, there: Frames) -> int:
    """Return the number of the innermost function that contains both."""
    shared = min(len(here), len(there))
    return next((at for at in range(shared) if here[at] != there[at]), shared - 1)


def _lines(barriers: Collection[Place], outer: Frames, file: str) -> list[int]:
    """Return the lines of the barriers in the function that these frames lead to."""
    frames = (users_frames(place) for place in barriers)
    inner = [each[len(outer)] for each in frames if len(each) > len(outer) and each[: len(outer)] == outer]
    return [line for at, line in inner if at == file]


def users_frames(place: Place | None) -> Frames:
    """Return the frames of an instruction that are in the user's files."""
    found: list[tuple[str, int]] = []
    for at in reversed(list(inlining_chain(place))):
        if not is_users(at.file):
            break
        found.append((at.file, at.line))
    return found


def _alone(text: Statements, line: int, barriers: Collection[int]) -> bool:
    """Whether a statement is not in a loop, or has a barrier between its iterations."""
    loops = text.loops(line)
    return not loops or any(_always(text, at, line) for at in barriers if loops[-1] <= at <= text.last(loops[-1]))


def _ordered(text: Statements, first: int, second: int, barriers: Collection[int]) -> bool:
    """Whether a barrier is on the path from one statement to another, or no path leads there."""
    if first < second:
        return any(text.last(first) < at < second and _always(text, at, first) for at in barriers)
    loop = next((at for at in reversed(text.loops(first)) if at in text.chain(second)), 0)
    if not loop:
        return True
    way = (at for at in barriers if text.last(first) < at <= text.last(loop) or loop <= at < second)
    return any(_always(text, at, first) for at in way)


def _always(text: Statements, barrier: int, line: int) -> bool:
    """Whether every execution of `line` reaches the barrier: it is under no condition that `line` is not under."""
    return not text.is_head(barrier) and set(text.chain(barrier)[:-1]) <= set(text.chain(line))
