"""Checker findings upstream of the first wrong stage are the cause: races, undefined values, overlapping regions."""

from collections.abc import Sequence

import numpy as np

from weft.attention.dtypes import Array
from weft.core.records import Finding, Place
from weft.diagnose.ranges import ranges
from weft.diagnose.records import STRAY, Case, Divergence, Signature
from weft.diagnose.strays import row_line
from weft.diagnose.tags import INPUTS
from weft.diagnose.taps import TAPPED
from weft.diagnose.upstream import moved_at

from .evidence import EXPLAINED, RACES, Bools, errors, has_fact, remaining, score_unit
from .lines import outermost, stores_to, writer_of

FEW = 8
"""Fewer equal values than this may be a coincidence."""


def missing_barrier(case: Case) -> Signature | None:
    """A race in shared or global memory."""
    outputs = [output.name for output in case.task.outputs]
    races = [race for race in errors(case, *RACES) if race.code != "R101" or race.name not in outputs]
    found = _without_strays(case, races)
    if not found:
        return None
    # Races between warps come before races in a warp, early reads before early writes, and of these the one that is
    # written last: a barrier after it covers those before. Of copies the first that is accessed: a wrong group shifts
    # those of all later copies.
    first = min(
        found,
        key=lambda f: (f.warp == f.other_warp, f.code != "R102", f.code, -_written(f), _used_first(f), -f.count),
    )
    first = _seen_from_the_store(first, found)
    times = sum(f.count for f in found)
    message = f"{first.code}: {first.message}; {times} unordered {'access' if times == 1 else 'accesses'}"
    cure, after = first.remedy, first.cure_place
    needs_barrier = first.code in ("R101", "R102", "R103")  # the cure of a copy says which step is missing
    if needs_barrier and first.place and first.other and after is not None and after.file == first.other.file:
        above, below = sorted((_kernel_line(first.other), _kernel_line(first.place)))
        barrier = "tl.debug_barrier()" if after.file.endswith(".py") else "a barrier"
        if _is_of_next_iteration(first):
            gap = f"between line {below} and line {above} of the next iteration"
            cure = f"add {barrier} after line {after.line}, {gap}"
        elif above != below:
            cure = f"add {barrier} after line {after.line}, between line {above} and line {below}"
    stage = _reader(case, first)
    return Signature("missing_barrier", message, cure, 0.95, place=first.place, stage=stage, cure_place=after)


def _is_of_next_iteration(race: Finding) -> bool:
    """Whether the access that is written first in the text runs an iteration too early: the barrier belongs behind the
    last one.
    """
    above, below = sorted((_kernel_line(race.other), _kernel_line(race.place)))
    return race.cure_place is not None and race.cure_place.line >= below > above


def _seen_from_the_store(race: Finding, found: Sequence[Finding]) -> Finding:
    """Return the R103 of the same two lines, if an R102 shows a store of the next iteration: the store is too early."""
    if race.code != "R102" or not _is_of_next_iteration(race) or _kernel_line(race.other) > _kernel_line(race.place):
        return race
    return next(
        (twin for twin in found if twin.code == "R103" and (twin.place, twin.other) == (race.other, race.place)),
        race,
    )


def stored_twice(case: Case) -> Signature | None:
    """Two threads store the same element of a result: a barrier does not fix that, one of them has a wrong index."""
    outputs = [output.name for output in case.task.outputs]
    found = [race for race in errors(case, "R101") if race.name in outputs]
    if not found or any(race.code in RACES and race.name not in outputs for race in errors(case, *RACES)):
        return None
    first = found[0]
    message = f"several threads store the same element of {first.name}: {first.message}; {first.count} times"
    cure = "let one thread store each element of the result: check the row and column of the store"
    place = row_line(case, first) or first.place
    return Signature("stored_twice", message, cure, 0.96, place=place, stage=first.name)


def _without_strays(case: Case, found: Sequence[Finding]) -> list[Finding]:
    """Drop findings of lines that leave their buffer: what they access in the next buffer is no second mistake."""
    stray = {_line(finding.place) for finding in errors(case, *STRAY) if finding.place is not None}
    return [finding for finding in found if stray.isdisjoint((_line(finding.place), _line(finding.other)))]


def _line(place: Place | None) -> tuple[str, int] | None:
    return (place.file, place.line) if place is not None else None


def _kernel_line(place: Place | None) -> int:
    found = outermost(place)
    return found.line if found is not None else 0


def _written(race: Finding) -> int:
    """Return the kernel's line that writes what is read too early."""
    return _kernel_line(race.other) if race.code == "R102" else 0


def _used_first(race: Finding) -> int:
    """Return the kernel's line that accesses a copy in flight; 0 for other races."""
    return _kernel_line(race.place) if race.code == "R104" else 0


def _reader(case: Case, race: Finding) -> str:
    """Return the stage computed from what was read; empty if a divergence before O shows it or nothing was followed."""
    raced = moved_at(race.place, case.taps) | moved_at(race.other, case.taps)
    if raced and not raced & {"q", "k"}:  # not an operand of the scores, but a result itself
        return min(raced, key=TAPPED.index)
    place = race.other if race.code == "R103" else race.place
    stage_known = case.divergence is not None and case.divergence.stage not in ("o", "lse")
    if stage_known or case.taps is None or place is None:
        return ""
    after = []
    # P is multiplied where V is read, but only one of them was raced for.
    others = {"q", "k", "v", "p"} - raced if raced else set()
    for (stage, _), tap in case.taps.taps.items():
        if stage in others:
            continue
        for event in np.unique(tap.event[tap.observed]):
            made = case.taps.events[int(event)].place
            if made is not None and _kernel_line(made) >= _kernel_line(place):
                after.append((_kernel_line(made), -TAPPED.index(stage), stage))
    stage = min(after)[2] if after else ""
    return "scores" if stage == "products" else stage


def uninitialised(case: Case) -> Signature | None:
    """Something was read that was never written."""
    found = _without_strays(case, errors(case, "I201", "I202", "I203"))
    if not found:
        return None
    first = found[0]
    message = f"{first.code}: {first.message}; {sum(f.count for f in found)} reads of values that were never written"
    # The line that reads is right: the line that fills only a part must be fixed.
    writer = writer_of(case, first) or _only_store(case, first)
    # A copy from outside its array fills nothing: then the stray access is the cause.
    rank = 0.85 if writer is None or errors(case, *STRAY) else 0.9
    return Signature("uninitialised", message, first.remedy, rank, place=writer or first.place)


def _only_store(case: Case, finding: Finding) -> Place | None:
    """Return the line that stores to the array by its name, if only one does: what it leaves out, nothing fills."""
    lines = stores_to(str(case.candidate.path), finding.name) if finding.name.isidentifier() else []
    return Place(str(case.candidate.path), lines[0]) if len(lines) == 1 else None


def region_overlap(case: Case) -> Signature | None:
    """Two arrays carved from one block share bytes: an input that was right has changed when it is used."""
    outside = errors(case, "M105")
    cure = "compute each region's offset from the size in bytes of the one before it, padding and type included"
    if outside:
        message = f"M105: {outside[0].message}; {sum(f.count for f in outside)} accesses outside their region"
        return Signature("region_overlap", message, cure, 0.96, place=outside[0].place)
    copies = [race for race in errors(case, "R104") if _two_copies(race)]
    if copies:
        lines = sorted((_kernel_line(copies[0].other), _kernel_line(copies[0].place)))
        message = (
            f"{copies[0].code}: the copies of lines {lines[0]} and {lines[1]} write the same bytes of shared memory"
        )
        return Signature("region_overlap", message, cure, 0.97, place=copies[0].place)
    if case.recipe is not None:  # codes of different arrays are equal too often to distinguish the arrays
        return None
    return (
        _holds_another(case, cure)
        or _changed_on_the_way(case, cure)
        or _no_longer_there(case, cure)
        or _rows_of_q(case, cure)
    )


def _two_copies(race: Finding) -> bool:
    """Whether two copies race that one thread issues by one instruction of two calls: they fill two buffers.

    Copies of one call may be two rounds of a ring: there a wait is missing.
    """
    if race.place is None or race.other is None or (race.warp, race.lanes) != (race.other_warp, race.other_lanes):
        return False
    return _line(race.place) == _line(race.other) and _kernel_line(race.place) != _kernel_line(race.other)


def _holds_another(case: Case, cure: str) -> Signature | None:
    """Wrong elements of Q, K or V are, bit for bit, elements of another array."""
    first, taps = case.divergence, case.taps
    if first is None or taps is None or first.stage not in INPUTS:
        return None
    values = first.actual[first.wrong & np.isfinite(first.actual) & (first.actual != 0)].astype(np.float32)
    if np.unique(values).size < FEW or _is_scaled(first):
        return None
    own = np.unique(first.expected.astype(np.float32))
    for stage in ("q", "k", "v", "scores", "p"):
        if stage == first.stage:
            continue
        held = [tap.values[tap.observed] for (name, _), tap in taps.taps.items() if name == stage]
        if not held:
            continue
        other = np.unique(np.concatenate(held).astype(np.float32))
        strange = values[~np.isin(values, own)]
        # Codes and short types have equal values by coincidence: a few hundred distinct ones in either array.
        if strange.size >= FEW and np.isin(strange, other).mean() > 0.9:
            message = (
                f"{values.size} elements of {first.stage} (rows {first.rows}, columns {first.columns}) hold values of "
                f"{stage}, e.g. {strange[0]:.6g}: the two regions share bytes, and {stage} overwrote {first.stage}"
            )
            return Signature("region_overlap", message, cure, 0.96)
    return None


def _is_scaled(first: Divergence) -> bool:
    """Whether the wrong elements are the right ones times one factor: that is a wrong scale."""
    wrong = first.wrong & np.isfinite(first.actual) & (first.expected != 0)
    factors = first.actual[wrong].astype(np.float64) / first.expected[wrong].astype(np.float64)
    return factors.size > 0 and bool(np.ptp(factors) <= 1e-2 * np.abs(factors).max())


def _changed_on_the_way(case: Case, cure: str) -> Signature | None:
    """K or V is decoded correctly in the first tile and wrongly in a later one, by the same code."""
    first, taps = case.divergence, case.taps
    if first is None or taps is None or first.stage not in ("k", "v") or not first.tile or first.share < 0.05:
        return None
    before = taps.at(first.stage, 0)
    expected = case.expected.get((first.stage, 0))
    if before is None or expected is None or not _agree(before.values, expected, before.observed):
        return None
    index = next(zip(*np.nonzero(first.wrong), strict=True))
    signs = (first.actual[first.observed] >= 0).mean()
    message = (
        f"{first.stage} is decoded correctly in KV tile 0 and wrongly from KV tile {first.tile} on: "
        f"{first.actual[index]:.6g} instead of {first.expected[index]:.6g}, {signs:.0%} of the values not negative; "
        "the data it is decoded with was overwritten after the first tile"
    )
    return Signature("region_overlap", message, cure, 0.96)


def _no_longer_there(case: Case, cure: str) -> Signature | None:
    """From a later tile on, what is multiplied as K or V no longer comes from it."""
    taps, lost = case.taps, case.lost
    if taps is None or lost is None or lost[0] not in ("k", "v") or not lost[1]:
        return None
    stage, tile = lost
    before, expected = taps.at(stage, 0), case.expected.get((stage, 0))
    if before is None or expected is None or not _agree(before.values, expected, before.observed):
        return None
    after = taps.at(stage, tile)
    seen, of = (0 if after is None else int(after.observed.sum())), int(before.observed.sum())
    if seen > of // 2 or not _used_later(case, stage, tile):
        return None
    message = (
        f"{stage} is right in KV tile 0, all {of} elements; in KV tile {tile} only {seen} of the elements multiplied "
        f"as {stage} come from {stage.upper()}: its tile, or its decoding table, was overwritten after the first tile"
    )
    return Signature("region_overlap", message, cure, 0.92, stage=stage)


def _used_later(case: Case, stage: str, tile: int | None) -> bool:
    """Whether anything is computed from the tile's keys: keys that a loop leaves out are not overwritten."""
    if case.taps is None or has_fact(case, "unexplained"):
        return True
    return any((made, tile) in case.taps.taps for made in (("products", "scores", "p") if stage == "k" else ("u",)))


def _rows_of_q(case: Case, cure: str) -> Signature | None:
    """Scores are wrong exactly in those rows in which a part of Q was replaced."""
    first, q = case.divergence, None if case.taps is None else case.taps.at("q")
    if first is None or q is None or case.attention is None or first.stage not in ("products", "scores", "masked", "p"):
        return None
    some, whole = q.observed.any(axis=3), q.observed.all(axis=3)
    wrong = first.wrong.any(axis=3)
    if not whole.any() or not wrong.any() or (wrong != (some & ~whole)).any():
        return None
    b, h, row = (int(i) for i in np.argwhere(wrong)[0])
    gone = np.flatnonzero(~q.observed[b, h, row])
    message = (
        f"columns {ranges(map(int, gone))} of Q in row {row} have changed when they are multiplied: "
        f"{_replaced(case, (b, h, row), gone)} overwrote them"
    )
    return Signature("region_overlap", message, cure, 0.93, stage="q")


def _replaced(case: Case, at: tuple[int, int, int], gone: Array) -> str:
    """Return "the K tile" if the first elements of K's tile explain the scores of the row."""
    first, problem = case.divergence, case.attention
    assert first is not None and problem is not None
    b, h, row = at
    k = problem.k[b, h // problem.workload.shape.group, first.keys.start : first.keys.stop].astype(np.float64)
    q = problem.q[b, h, row].astype(np.float64)
    q[gone] = k.ravel()[: gone.size]
    use = first.observed[b, h, row]
    left = remaining(first.actual[b, h, row][use], (k @ q * score_unit(case))[use], first.expected[b, h, row][use])
    return "the K tile" if left <= EXPLAINED and first.stage in ("scores", "masked") else "another region"


def _agree(values: Array, expected: Array, observed: Bools) -> bool:
    found, meant = values[observed].astype(np.float64), expected[observed].astype(np.float64)
    return bool((np.abs(found - meant) <= 2e-3 * np.abs(expected).max()).all())
