"""Names that a person types: what was probably meant by one that there is not."""

import difflib
from collections.abc import Iterable

CLOSE = 0.5
"""How much of two names must agree (difflib's ratio) before one is suggested for the other."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like this one, in upper or lower case; empty if none is."""
    spelled = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=CLOSE)
    return spelled[found[0]] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean mission?)` for a message about an unknown name, or nothing."""
    found = closest(name, known)
    return f" (did you mean {found}?)" if found else ""
