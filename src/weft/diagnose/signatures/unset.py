"""A variable that is read before anything gives it a value."""

from pathlib import PurePath

from weft.core.records import Place, inlining_chain
from weft.core.statements import statements_of
from weft.diagnose.records import Case, Signature
from weft.diagnose.unset_names import Unset, unset_names


def unset_variable(case: Case) -> Signature | None:
    """A variable has no first value, by the text: of the function in which the error is seen, or of another one."""
    path = str(case.candidate.path)
    found = [] if case.verdict.passed or PurePath(path).suffix == ".py" else list(unset_names(path))
    if not found:
        return None
    seen = _seen(case)
    near = [unset for unset in found if any(_is_in_function_of(unset, place) for place in seen)]
    first = (near or found)[0]
    read = statements_of(path).code(first.read.line).strip()
    message = f"`{first.name}` is declared without a value, and line {first.read.line} reads it first: `{read}`"
    cure = f"give `{first.name}` a value where it is declared: 0 to a sum, -inf to a maximum"
    if first.set_after is not None:
        cure = f"set `{first.name}` before it is read: line {first.set_after.line} comes too late"
    place = first.declared if first.set_after is None else first.read
    return Signature("unset_variable", message, cure, 0.96 if near else 0.85, place=place)


def _seen(case: Case) -> list[Place]:
    """Return the places of the findings and of the first wrong value."""
    first = case.divergence
    sites = [first.site, first.used] if first is not None else []
    places = [finding.place for finding in case.findings] + [site.place for site in sites if site is not None]
    return [at for place in (*places, case.lost_place) for at in inlining_chain(place)]


def _is_in_function_of(unset: Unset, place: Place) -> bool:
    """Whether a place is in the function that declares the variable."""
    text = statements_of(unset.declared.file)
    same_file = PurePath(place.file).name == PurePath(unset.declared.file).name
    return same_file and text.chain(place.line)[:1] == text.chain(unset.declared.line)[:1]
