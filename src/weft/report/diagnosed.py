"""A diagnosis → the data of its section."""

from collections.abc import Callable

from weft.core.records import Place
from weft.diagnose.conclusion import cure_of, cure_place_of, explains, place_of, sentence
from weft.diagnose.records import Diagnosis, name_of
from weft.diagnose.shown import case_line, row_excerpt, where_wrong
from weft.diagnose.taps import TAPPED

from .records import Diagnosed, Named, Stage, StageState

MEANINGS = {
    "q": "queries, as loaded",
    "k": "keys, as loaded",
    "v": "values, as loaded",
    "products": "Q·Kᵀ before the scale",
    "scores": "Q·Kᵀ · scale",
    "masked": "scores with the mask",
    "m": "largest score so far",
    "p": "exp(score − m)",
    "l": "sum of weights",
    "u": "weighted values, unnormalised",
    "o": "U / l, the output",
    "lse": "m + log l",
}
LIKELY = 0.5
"""Explanations of a lower rank are omitted, unless there is no other."""


def diagnosed_of(diagnosis: Diagnosis, line_here: Callable[[Place | None], int | None]) -> Diagnosed | None:
    """Return the data; None for a kernel that is correct."""
    if diagnosis.healthy:
        return None
    first = diagnosis.first
    known = tuple(
        Named(each.name, ": ".join(filter(None, (explains(each), each.message))))
        for number, each in enumerate(diagnosis.signatures)
        if number == 0 or each.rank >= LIKELY
    )
    line, fix = line_here(place_of(diagnosis)), line_here(cure_place_of(diagnosis))
    return Diagnosed(
        sentence=sentence(diagnosis),
        case=case_line(diagnosis),
        cure=cure_of(diagnosis),
        stages=_stages(diagnosis),
        where=where_wrong(first) if first is not None else "",
        made_by=str(first.site) if first is not None and first.site is not None else "",
        excerpt=row_excerpt(first) if first is not None and first.expected.ndim >= 3 else None,
        arithmetic=first.arithmetic if first is not None else (),
        known_as=known,
        notes=tuple(_notes(diagnosis)),
        line=line,
        fix_line=fix if fix != line else None,
    )


def _stages(diagnosis: Diagnosis) -> tuple[Stage, ...]:
    proven = {name: rest.strip("()") for name, _, rest in (each.partition(" ") for each in diagnosis.proven_right)}
    first, lost = diagnosis.first, diagnosis.case.lost
    named = {*proven, *([first.stage] if first is not None else []), *([lost[0]] if lost is not None else [])}
    if not named:
        return ()
    order = TAPPED if named <= set(TAPPED) else tuple(dict.fromkeys((*diagnosis.case.task.stages, *named)))
    found = []
    passed_first = False
    for name in order:
        right = f"right: {proven[name]}" if proven.get(name) else ""
        state, detail = StageState.UNSEEN, ""
        if first is not None and name == first.stage:
            tile = "" if first.tile is None else f"wrong from KV tile {first.tile} on"
            state, detail = StageState.WRONG, "; ".join(filter(None, (tile, right)))
            passed_first = True
        elif lost is not None and name == lost[0]:
            state, detail = StageState.LOST, f"{name_of(lost)}: not seen, or only in part"
        elif name in proven:
            state, detail = StageState.RIGHT, proven[name]
        elif passed_first:
            state = StageState.AFTER
        found.append(Stage(name, MEANINGS.get(name, ""), state, detail))
    return tuple(found)


def _notes(diagnosis: Diagnosis) -> list[Named]:
    notes = []
    first, taps = diagnosis.first, diagnosis.case.taps
    if first is not None and first.used is not None and first.site is not None and first.used.place != first.site.place:
        notes.append(Named("used at", str(first.used)))
    for fact in taps.facts if taps is not None else ():
        notes.append(Named("dataflow", f"{'; '.join(fact.message.split('; ')[:2])} ({fact.count} elements of O)"))
    notes += [Named("launch alone", f"{launch.entry}: {launch.message}") for launch in diagnosis.launches]
    notes += [Named("cause", str(finding)) for finding in diagnosis.causes]
    if diagnosis.not_observed:
        unseen = f"{', '.join(diagnosis.not_observed)}: {diagnosis.not_observed_because}"
        notes.append(Named("not observed", unseen))
    if diagnosis.case.not_parsed:
        notes.append(Named("not traced", f"the lines that this one is computed from: {diagnosis.case.not_parsed}"))
    notes += [Named("compiler", str(said)) for said in diagnosis.case.compiler_says]
    return notes
