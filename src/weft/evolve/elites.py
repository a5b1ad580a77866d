"""Select the parents: the best three of those that were better than their parents, and one that differs from them."""

from .history import History
from .records import Member
from .settings import Settings


def kept(history: History, gain: float) -> tuple[Member, ...]:
    """Return the start and every child that passed and beats its parent by `gain`; the best first."""
    found = []
    for member in history:
        parent = history.parent(member)
        if not member.passed:
            continue
        if parent is None or parent.score is None or member.beats(parent, gain):
            found.append(member)
    return tuple(sorted(found, key=_by_score))


def elites(history: History, settings: Settings) -> tuple[Member, ...]:
    """Return the best members, at most three."""
    return kept(history, settings.gain)[: settings.elites]


def outsider(history: History, settings: Settings) -> Member | None:
    """Return the member that differs most from the elites, of those that pass and are no worse than the start: other
    levers, or another limiter. It keeps the search from narrowing to one family.
    """
    chosen = elites(history, settings)
    start = history.start.score
    others = [
        member
        for member in history
        if member.passed
        and member not in chosen
        and start is not None
        and member.score is not None
        and member.score <= start
    ]
    if not others or not chosen:
        return None
    return max(others, key=lambda member: (min(_distance(member, elite) for elite in chosen), -(member.score or 0.0)))


def parents(history: History, settings: Settings) -> tuple[tuple[Member, int], ...]:
    """Return the members that may have children, with their weights: the best has the highest."""
    chosen = elites(history, settings)
    weighted = [(member, len(chosen) - rank) for rank, member in enumerate(chosen)]
    other = outsider(history, settings)
    return (*weighted, (other, 1)) if other is not None else tuple(weighted)


def _by_score(member: Member) -> tuple[float, int]:
    assert member.score is not None
    return member.score, member.id


def _distance(a: Member, b: Member) -> int:
    apart = int(a.limiter != b.limiter)
    if a.point is None or b.point is None:
        return apart
    return apart + sum(value != b.point[name] for name, value in a.point.values)
