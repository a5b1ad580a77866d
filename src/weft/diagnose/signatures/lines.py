"""Lines of the kernel that a signature can name: where followed values were loaded, stored, multiplied."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.core.records import Finding, Place
from weft.core.statements import statements_of
from weft.diagnose.acts import Act
from weft.diagnose.divergence import first_index
from weft.diagnose.nodes import Event
from weft.diagnose.records import Case
from weft.diagnose.spelling import own_place
from weft.diagnose.tags import INPUTS, Kind
from weft.diagnose.taps import Key, StageTap, Taps

from .evidence import Bools

_BELOW = 16
"""Lines after that of the scores in which a mask is looked for."""
_CHOOSES = re.compile(r"\?|\bwhere\(")
_CHOOSES_INF = re.compile(r"[?,].*-\s*(?:CUDART_INF_F|INFINITY|float\(\"inf\"\))")
_PLAIN_LOOP = re.compile(r"for\s*\(.*=\s*(?P<begin>[a-z]\w*)\s*;\s*\w+\s*<\s*(?P<end>[a-z]\w*)\s*;")
"""Both bounds are variables."""
_LAYOUT = r"fragment<[^;]*\b{layout}\s*>\s*(\w+)\s*;"


def acts(case: Case, what: str, *kinds: Kind) -> Iterator[Act]:
    """Yield the acts of a kind, in the order they were first seen."""
    for act in case.taps.acts if case.taps is not None else ():
        if act.what == what and (not kinds or act.kinds == kinds):
            yield act


def line_of(case: Case, act: Act | None) -> Place | None:
    """Return an act's line in the user's file; inside a function of it, if that was inlined."""
    if act is None or case.kernel is None:
        return None
    return own_place(act.event.place, case.kernel)


def outermost(place: Place | None) -> Place | None:
    """Return the line in the kernel itself, not in a function that was inlined there."""
    while place is not None and place.inlined_at is not None:
        place = place.inlined_at
    return place


def first_line(case: Case, what: str, *kinds: Kind) -> Place | None:
    """Return the line of the first such act."""
    return line_of(case, next(acts(case, what, *kinds), None))


def load_of(case: Case, tensor: str) -> Place | None:
    """Return where Q, K or V is read to be multiplied: from shared memory if it is kept there."""
    loads = list(acts(case, "load", INPUTS[tensor.lower()]))
    shared = [act for act in loads if act.space == "shared"]
    return line_of(case, next(iter(shared or loads), None))


def lost_load(case: Case, lost: Key) -> Place | None:
    """Return the line that leaves out elements of an input: the last that reads it, or that of the products if Q and K
    lack the same columns; None for other stages.
    """
    kind, taps = INPUTS.get(lost[0]), case.taps
    if kind is None or taps is None or case.kernel is None:
        return None
    q, k = (next((tap for (name, _), tap in taps.taps.items() if name == stage), None) for stage in "qk")
    if lost[0] in "qk" and q is not None and k is not None:
        lacking = [~np.asarray(tap.observed.any(axis=(0, 1, 2))) for tap in (q, k)]
        if lacking[0].any() and np.array_equal(lacking[0], lacking[1]):
            return use_of(case, q)
    block = taps.algorithm.block_n
    needed = np.zeros(taps.fetches[lost[0]].shape, bool)
    needed[:, :, slice(None) if lost[1] is None else slice(lost[1] * block, (lost[1] + 1) * block)] = True
    kept = _loads(taps, lost[0], used(taps, lost[0])) or [act.event for act in acts(case, "load", kind)]
    last = own_place(max(kept, key=lambda event: event.ptx_line).place, case.kernel) if kept else None
    return dropped_after(case, lost[0], needed) or last


def use_of(case: Case, tap: StageTap) -> Place | None:
    """Return the line that uses the first observed element of a stage; that stores it, for O."""
    site = case.taps.site(tap, first_index(tap.observed)) if case.taps is not None else None
    return own_place(site.place, case.kernel) if site is not None and case.kernel is not None else None


def used(taps: Taps, stage: str) -> Bools:
    """Return (b, h, rows, d): the elements of Q, K or V that were multiplied."""
    found = np.zeros(taps.fetches[stage].shape, bool)
    for (name, tile), tap in taps.taps.items():
        if name == stage:
            start = (tile or 0) * taps.algorithm.block_n
            found[:, :, start : start + tap.observed.shape[2]] = tap.observed
    return found


def dropped_after(case: Case, stage: str, needed: Bools) -> Place | None:
    """Return the line that loads elements which are then multiplied by nothing; None if no line does. If all lines that
    load them come after the loads of the products, the last of these: the load for the products is missing.
    """
    taps = case.taps
    if taps is None or case.kernel is None:
        return None
    in_use = used(taps, stage)
    lost, kept = (_loads(taps, stage, which) for which in (needed & ~in_use, in_use))
    if lost and kept and min(event.ptx_line for event in lost) > max(event.ptx_line for event in kept):
        lost = [max(kept, key=lambda event: event.ptx_line)]
    lines = Counter(own_place(event.place, case.kernel) for event in lost)
    return lines.most_common(1)[0][0] if lines else None


def _loads(taps: Taps, stage: str, which: Bools) -> list[Event]:
    """Return who first loaded these elements from shared memory, or from global memory if all are read there."""
    loads = taps.reads[stage] if taps.reads[stage].any() else taps.fetches[stage]
    return [taps.events[at] for at in np.unique(loads[which & (loads != 0)])]


def layout_of(load: Place | None, layout: str) -> Place | None:
    """Return the declaration of the fragment that `load` fills, if it has the layout; else the load."""
    lines = source_of(load) if load is not None else []
    if load is None or load.line > len(lines):
        return load
    for number in range(load.line - 1, 0, -1):
        declared = re.search(_LAYOUT.format(layout=layout), lines[number - 1])
        if declared is not None and re.search(rf"\(\s*{declared[1]}\b", lines[load.line - 1]):
            return replace(load, line=number, column=0, inlined_at=None)
    return load


def below(place: Place | None, text: str, *, lines: int = 4) -> Place | None:
    """Return the line with `text` among the next few: directives may span several lines."""
    if place is None:
        return None
    source = source_of(place)
    for number in range(place.line, min(place.line + lines, len(source) + 1)):
        if text in source[number - 1]:
            return replace(place, line=number, column=0)
    return place


def writer_of(case: Case, finding: Finding) -> Place | None:
    """Return the line that stores, in the same memory, the kind of values that the finding's line reads."""
    for read in acts(case, "load"):
        # By its line, not its instruction: in an unrolled loop, those that read only unwritten bytes follow nothing.
        if (place := line_of(case, read)) is None or finding.place is None or place.line != finding.place.line:
            continue
        for store in acts(case, "store", *read.kinds):
            handed_on = read.space == "global" and store.event.launch < read.event.launch
            if store.space == read.space and (handed_on or store.event.launch == read.event.launch):
                return line_of(case, store)
    return None


def loop_over_keys(case: Case) -> Place | None:
    """Return the outermost loop of the kernel that contains the first load of K."""
    load = outermost(first_line(case, "load", Kind.K))
    loops = statements_of(load.file).loops(load.line) if load is not None else ()
    return replace(load, line=loops[0], column=0) if load is not None and loops else None


def bound_of_loop(loop: Place | None, *, last: bool) -> Place | None:
    """Return the line that defines the last or the first value of a loop, if the loop has only its name; else the loop.

    A loop that says no more than `key = begin; key < end` has nothing in it that can be wrong.
    """
    text = statements_of(loop.file) if loop is not None else None
    head = _PLAIN_LOOP.search(text.code(loop.line)) if loop is not None and text is not None else None
    if loop is None or text is None or head is None:
        return loop
    defined = re.compile(rf"(?<![\w.]){head['end' if last else 'begin']}\s*=(?!=)")
    above = (number for number in range(loop.line - 1, 0, -1) if defined.search(text.code(number)))
    return replace(loop, line=next(above, loop.line), column=0)


def dead_mask(scores: Place | None) -> Place | None:
    """Return the next line after that of the scores that chooses -inf, which the compiler removed; else their line.

    A line of the scores that chooses something itself is the mask.
    """
    kernel = outermost(scores)
    text = statements_of(kernel.file) if kernel is not None else None
    if kernel is not None and text is not None and not _CHOOSES.search(text.code(kernel.line)):
        for number in range(kernel.line + 1, kernel.line + _BELOW):
            if _CHOOSES_INF.search(text.code(number)):
                return Place(kernel.file, number)
    return scores


def stores_to(file: str, array: str) -> list[int]:
    """Return the lines of the text that store to an array, by its name: `part_m[i] = …`, `tl.store(k_step + …`."""
    text = statements_of(file)
    name = rf"tl\.store\(\s*{array}\b" if file.endswith(".py") else rf"(?<![\w.]){array}\s*\[[^=;]*\]\s*=(?!=)"
    store = re.compile(name)
    return [number for number in range(1, len(text.lines) + 1) if store.search(text.code(number))]


def index_function(access: Place) -> Place | None:
    """Return the line with which a function of the same file computes the index: `part_m[row_of(…)]` → its `return`."""
    text = statements_of(access.file)
    called = re.search(r"\[\s*([A-Za-z_]\w*)\s*\(", text.code(access.line))
    if called is None:
        return None
    head = re.compile(rf"\b{called[1]}\s*\([^;]*\)\s*\{{\s*$")
    numbers = range(1, len(text.lines) + 1)
    start = next((number for number in numbers if head.search(text.code(number))), len(text.lines))
    line = next((number for number in numbers[start:] if re.match(r"\s*return\b", text.code(number))), None)
    return Place(access.file, line) if line is not None else None


def innermost_loop(place: Place) -> Place:
    """Return the head of the loop that contains a line; the line itself outside of loops."""
    loops = statements_of(place.file).loops(place.line)
    return replace(place, line=loops[-1], column=0) if loops else place


def source_of(place: Place) -> list[str]:
    """Return the lines of its file; none if it cannot be read."""
    try:
        return Path(place.file).read_text().splitlines()
    except OSError:
        return []
