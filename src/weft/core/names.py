"""Suggestions for names that a user typed and that do not exist."""

import difflib
from collections.abc import Iterable

CLOSE = 0.5
"""Least similarity of two names (difflib's ratio) before one is suggested for the other."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to this one, ignoring case; empty if none is similar."""
    spelled = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=CLOSE)
    return spelled[found[0]] if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean mission?)` for a message about an unknown name, or an empty text."""
    found = closest(name, known)
    return f" (did you mean {found}?)" if found else ""
