"""A diagnosis in one sentence: the place, the mistake, and the cure."""

import math

from weft.core.records import Place
from weft.repair.repair import Repair

from .line_stages import is_followed, stages_from
from .records import STRAY, Diagnosis, Divergence, LaunchJudgement, Signature, is_harmless, name_of
from .tags import INPUTS
from .taps import TAPPED
from .upstream import stage_after, stage_at

HEADLINE = 0.9
"""A signature of this rank is the headline, even next to findings."""
BEFORE_MASK = ("q", "k", "products", "scores", "masked")
"""These stages do not exist for a query without a visible key."""
REPRODUCED = 0.99
"""A signature that explains this share of the error has the numbers of the mistake itself."""
NAMES_STAGE = 0.96
"""A signature of this rank explains the entire error, so the stage it names is the first wrong one, even if earlier
stages were not observed.
"""


def best_repair(diagnosis: Diagnosis) -> Repair | None:
    """Return the edit to name first; None where none repairs, or where none could be written into the source and a
    signature reproduces the wrong numbers.
    """
    best = diagnosis.signatures[0] if diagnosis.signatures and diagnosis.fix is None else None
    has_place = diagnosis.first is not None and diagnosis.first.site is not None
    if best is not None and best.rank >= HEADLINE and (best.explained or 0) >= REPRODUCED and (best.place or has_place):
        return None
    return diagnosis.repairs[0] if diagnosis.repairs else None


def place_of(diagnosis: Diagnosis) -> Place | None:
    """Return the line to inspect. An edit of it that makes the kernel pass is the best evidence."""
    repair = best_repair(diagnosis)
    if repair is not None:
        return repair.place
    if diagnosis.signatures and (not diagnosis.causes or diagnosis.signatures[0].rank >= HEADLINE):
        place = _named_place(diagnosis)
        if place is not None:
            return place
    elif diagnosis.causes:
        return diagnosis.strayed[0] if diagnosis.strayed else diagnosis.causes[0].place
    if diagnosis.strayed:
        return diagnosis.strayed[0]
    if diagnosis.case.lost_place is not None:
        return diagnosis.case.lost_place
    if diagnosis.first is not None and diagnosis.first.site is not None:
        return diagnosis.first.site.place
    faulty = faulty_launch(diagnosis)
    return faulty.place if faulty is not None else None


def _named_place(diagnosis: Diagnosis) -> Place | None:
    """Return the place of the first signature. Outputs of a wrong implementation name a mistake, and not its line: then
    another signature that is as sure has the line.
    """
    first, *others = diagnosis.signatures
    if first.place is not None or first.name != "wrong_implementation":
        return first.place
    return next((each.place for each in others if each.place is not None and each.rank >= HEADLINE), None)


def cure_place_of(diagnosis: Diagnosis) -> Place | None:
    """Return the line of the cure: the line to inspect, unless the cure names another."""
    explained = diagnosis.signatures and (not diagnosis.causes or diagnosis.signatures[0].rank >= HEADLINE)
    return (diagnosis.signatures[0].cure_place if explained else None) or place_of(diagnosis)


def sentence(diagnosis: Diagnosis) -> str:
    """Return what is wrong, without its place."""
    first = diagnosis.first
    if diagnosis.signatures and (not diagnosis.causes or diagnosis.signatures[0].rank >= HEADLINE):
        return diagnosis.signatures[0].message
    if diagnosis.causes:
        cause = diagnosis.causes[0]
        said = f"{cause.code} {cause.message}{_used_at(diagnosis)}"
        return said + (f": it makes {first.name} wrong" if first is not None else "")
    if first is not None:
        return _first_stage(first, diagnosis)
    faulty = faulty_launch(diagnosis)
    if faulty is not None:
        return f"{faulty.entry} is {faulty.message}"
    return diagnosis.verdict.message


def _used_at(diagnosis: Diagnosis) -> str:
    """Return where the access is, if the line to inspect is the one that computes its index; where every result is
    right, what that shows.
    """
    access, code = diagnosis.causes[0].place, diagnosis.causes[0].code
    if code in STRAY and is_harmless(diagnosis.case):
        return "; every result is right, so its condition is wrong or missing, not its index"
    if not diagnosis.strayed or access is None or diagnosis.strayed[0].line == access.line:
        return ""
    return f", accessed at line {access.line} with an index that is computed here"


def cure_of(diagnosis: Diagnosis) -> str:
    """Return the cure, empty if none is known."""
    repair = best_repair(diagnosis)
    if repair is not None:
        return f"edit line {repair.place.line}: {repair.words}"
    if diagnosis.signatures and (not diagnosis.causes or diagnosis.signatures[0].rank >= HEADLINE):
        return diagnosis.signatures[0].cure
    if diagnosis.causes:
        return diagnosis.causes[0].remedy
    place = place_of(diagnosis)
    if place is None:
        return ""
    if diagnosis.first is None:
        return f"check the kernel that is launched at {place}"
    before = " and ".join(str(at.line) for at in sorted(diagnosis.origins, key=lambda at: at.line))
    made = f" and what it is computed from (lines {before})" if before else " and what it reads"
    return f"check {place}{made}: its inputs are right" if diagnosis.proven_right else ""


def known_as(signature: Signature) -> str:
    """Return the mistake's name, and how much of the error it explains where that was measured."""
    return ", ".join(filter(None, (signature.name, explains(signature))))


def explains(signature: Signature) -> str:
    """Return `explains 99.9 % of the error`, never rounded up; empty where no share was measured."""
    if signature.explained is None:
        return ""
    return f"explains {math.floor(1000 * signature.explained) / 10:g} % of the error"


def stage_of(diagnosis: Diagnosis) -> str:
    """Return the stage that is wrong; empty if none is known.

    With an edit that makes the kernel pass, it is one that depends on the line of this edit, unless a signature that
    explains the error names it, an input arrived wrong, or values of the observed stage were never seen.
    """
    observed = _observed_stage(diagnosis)
    explained = diagnosis.signatures[0] if diagnosis.signatures else None
    if explained is not None and explained.stage == observed and explained.rank >= HEADLINE:
        return observed
    is_input = observed in INPUTS and diagnosis.first is not None and diagnosis.first.stage == observed
    repair = best_repair(diagnosis)
    if repair is None or is_input or observed not in TAPPED or not is_followed(diagnosis.case, observed):
        return observed
    depend = stages_from(diagnosis.case, repair.place)
    return depend[0] if depend and observed not in depend else observed


def _observed_stage(diagnosis: Diagnosis) -> str:
    """Return the stage that is wrong by what was observed in the run.

    Where rows were lost was observed, not inferred, so it counts more than a signature's statement about a stage.
    """
    named = diagnosis.signatures[0].stage if diagnosis.signatures else ""
    lost = diagnosis.case.lost[0] if diagnosis.case.lost is not None else ""
    if named and diagnosis.signatures[0].rank >= NAMES_STAGE:
        return named
    if named == "masked" and lost in BEFORE_MASK:
        return named
    if lost and _raced_before(diagnosis, lost):
        return named
    # A stray pointer may hit another buffer than the intended one: a lost operand is better evidence.
    strayed = "" if lost and diagnosis.case.recipe is not None else _strayed(diagnosis)
    if strayed:
        return strayed
    found = (lost if named in TAPPED else named) or named or lost
    first, taps = diagnosis.first, diagnosis.case.taps
    if not found and taps is not None and (first is None or first.stage in ("o", "lse")):
        # The output is wrong after right stages: the checkers' findings show where it went wrong.
        found = next((stage for stage in (stage_after(cause, taps) for cause in diagnosis.causes) if stage), "")
    found = found or (first.stage if first is not None else "")
    return "scores" if found == "products" else found


def _raced_before(diagnosis: Diagnosis, lost: str) -> bool:
    """Whether the racing values are computed before the stage from which values could not be followed."""
    first = diagnosis.signatures[0] if diagnosis.signatures else None
    if first is None or first.name != "missing_barrier" or first.stage not in TAPPED or lost not in TAPPED:
        return False
    return TAPPED.index(first.stage) < TAPPED.index(lost)


def _strayed(diagnosis: Diagnosis) -> str:
    """Return the input read, or the result written, outside its bounds, where that comes first."""
    if not diagnosis.causes or not diagnosis.causes[0].code.startswith("M"):
        return ""
    stage = stage_at(diagnosis.causes[0], diagnosis.case.taps)
    first = diagnosis.first
    earlier = first is not None and first.stage not in ("o", "lse") and stage in ("o", "lse")
    return "" if earlier else stage


def faulty_launch(diagnosis: Diagnosis) -> LaunchJudgement | None:
    """Return the first launch that is wrong on the reference's inputs."""
    return next((launch for launch in diagnosis.launches if launch.right is False), None)


def _first_stage(first: Divergence, diagnosis: Diagnosis) -> str:
    columns = f", columns {first.columns}" if first.columns else ""
    where = f"(rows {first.rows}{columns})"
    if diagnosis.case.lost is not None:
        lost = name_of(diagnosis.case.lost)
        return f"{first.name} is wrong {where}; all before {lost} is right, what follows was not observed"
    before = "all observed stages before it are right" if diagnosis.proven_right else "no stage before it was observed"
    said = f"{first.name} is the first wrong stage {where}; {before}"
    return f"{said}, but {first.operand}" if first.operand else said
