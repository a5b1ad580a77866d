"""The lines to inspect, at most three, each with the evidence in one sentence."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from weft.core.records import Place, inlining_chain
from weft.repair.repair import Repair

from .conclusion import best_repair, cure_place_of, place_of
from .records import Diagnosis

MOST = 3
NEARBY = 3
"""Lines this close are seen together."""
FEW = 6
"""More lines than this that only the failing workload runs are another way through the kernel, not a suspicion."""
CORRECTED = 0.5
"""An edit that corrects a smaller share of the wrong elements is weaker evidence than what was observed in the run."""


@dataclass(frozen=True)
class Suspect:
    """A line, and why it is suspected."""

    place: Place
    evidence: str


def suspects(diagnosis: Diagnosis) -> tuple[Suspect, ...]:
    """Return the lines to inspect: repaired lines and the line without repairs, the better one first, lines where an
    edit corrects much of the error, lines that the compiler warns of, lines that ran in no workload that passed, then
    the lines that the line depends on.
    """
    if diagnosis.healthy:
        return ()
    found: list[Suspect] = []
    for each in _all(diagnosis):
        if len(found) < MOST and all(not _near(each.place, other.place) for other in found):
            found.append(each)
    return tuple(found)


def _all(diagnosis: Diagnosis) -> Iterator[Suspect]:
    place = place_of(replace(diagnosis, repairs=()))
    observed = [Suspect(place, _evidence(diagnosis, place))] if place is not None else []
    repaired = [
        Suspect(repair.place, f"with the edit `{repair.words}` here all tested workloads pass")
        for repair in diagnosis.repairs
    ]
    yield from (*observed, *repaired) if best_repair(diagnosis) is None else (*repaired, *observed)
    cured = cure_place_of(replace(diagnosis, repairs=()))
    if cured is not None:
        yield Suspect(cured, "the cure belongs here or behind this line")
    for partly in diagnosis.partly:
        if partly.corrected >= CORRECTED:
            yield Suspect(partly.place, _corrected(partly))
    for at in diagnosis.strayed:
        yield Suspect(at, "every access outside its buffer depends on this line, and none of those inside")
    for said in diagnosis.case.compiler_says:
        if said.place is not None:
            yield Suspect(said.place, f"the compiler warns: {said.message}")
    path = str(diagnosis.case.candidate.path)
    for line in diagnosis.ran_only_here if len(diagnosis.ran_only_here) <= FEW else ():
        yield Suspect(Place(path, line), "it ran in the failing workload and in none of those that passed before it")
    for race in [cause for cause in diagnosis.causes if cause.code.startswith("R")][:1]:
        for at in list(inlining_chain(race.other))[-1:]:
            yield Suspect(at, f"the other access of this {race.code} is made here")
    for at in diagnosis.origins:
        yield Suspect(at, f"line {place.line if place is not None else 0} depends on what is computed here")


def _corrected(repair: Repair) -> str:
    share = f"{math.floor(100 * repair.corrected)} % of the wrong elements are right and no other is wrong"
    return f"with the edit `{repair.words}` here {share} in the smallest failing workload; others still fail"


def _evidence(diagnosis: Diagnosis, place: Place) -> str:
    first = diagnosis.first
    if diagnosis.causes and diagnosis.causes[0].place is not None and diagnosis.causes[0].place.line == place.line:
        return f"{diagnosis.causes[0].code} is found here"
    if first is not None and first.site is not None and first.site.place == place:
        if first.operand:
            return f"an operand of {first.name}, the first wrong stage, is computed here: {first.operand}"
        return f"{first.name} is computed here, and it is the first wrong value that was observed"
    if diagnosis.signatures and diagnosis.signatures[0].place == place:
        return f"the error is that of a known mistake, {diagnosis.signatures[0].name.replace('_', ' ')}"
    return "the first wrong value that was observed comes from here"


def _near(a: Place, b: Place) -> bool:
    return a.file == b.file and abs(a.line - b.line) <= NEARBY
