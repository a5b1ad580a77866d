"""Separates checker findings that cause the first divergence from those that come after it."""

from collections.abc import Sequence

import numpy as np

from weft.core.finding_codes import Severity
from weft.core.records import Finding, Place, inlining_chain, worst_first

from .nodes import Event
from .records import Divergence
from .tags import Kind
from .taps import TAPPED, Taps

KINDS = "MRSIXK"
"""First letters of codes, causes before consequences."""


def split_findings(
    findings: Sequence[Finding], divergence: Divergence | None, taps: Taps | None
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return (causes, others). An error is a cause unless it is known to come after the divergence.

    A warning is never a cause: what it reports had no effect on the numbers of this run.

    Stray accesses and races come first: an uninitialised read is often their consequence.
    """
    causes: list[Finding] = []
    others: list[Finding] = []
    by_kind = sorted(findings, key=lambda finding: KINDS.index(finding.code[0]))
    for finding in worst_first(by_kind):
        later = divergence is not None and taps is not None and _comes_after(finding, divergence, taps)
        (causes if finding.level is Severity.ERROR and not later else others).append(finding)
    return tuple(causes), tuple(others)


def stage_after(finding: Finding, taps: Taps) -> str:
    """Return the first stage that the recorded warps compute after the finding's line; empty if unknown.

    Bytes that were never written have no event there: then it is the stage at that source line, or the next below it.
    """
    reached: dict[tuple[int, object, int], int] = {}
    for event in _at(finding, taps):
        who = event.launch, event.cta, event.warp
        reached[who] = min(event.step, reached.get(who, event.step))
    later: list[tuple[int, int, int]] = []
    below: list[tuple[int, int]] = []
    at = finding.place
    for (stage, _), tap in taps.taps.items():
        if stage in ("q", "k", "v"):
            continue
        for number in np.unique(tap.event[tap.observed]):
            event = taps.events[int(number)]
            start = reached.get((event.launch, event.cta, event.warp))
            if start is not None and event.step >= start:
                later.append((event.launch, event.step - start, TAPPED.index(stage)))
            own = [place.line for place in inlining_chain(event.place) if at is not None and _file(place) == _file(at)]
            if at is not None and own and own[-1] >= at.line:
                below.append((own[-1], TAPPED.index(stage)))
    return TAPPED[min(later)[2]] if later else TAPPED[min(below)[1]] if below else ""


_STAGES = {
    Kind.Q: "q", Kind.K: "k", Kind.V: "v", Kind.S: "scores", Kind.M: "m", Kind.P: "p", Kind.L: "l", Kind.U: "u",
    Kind.O: "o", Kind.LSE: "lse",
}  # fmt: skip


def stage_at(finding: Finding, taps: Taps | None) -> str:
    """Return the stage of an access: for an input or result by the buffer's name, else by what its line moves."""
    for stage in ("q", "k", "v", "o", "lse"):
        if finding.name in (stage, f"{stage}_code", f"{stage}_scale"):
            return stage
    return min(moved_at(finding.place, taps), key=TAPPED.index, default="")


def moved_at(place: Place | None, taps: Taps | None) -> frozenset[str]:
    """Return the stages whose values the line of a place loads or stores."""
    if place is None or taps is None:
        return frozenset()
    return frozenset(
        _STAGES[kind]
        for act in taps.acts
        if act.what in ("load", "store")
        and any((_file(at), at.line) == (_file(place), place.line) for at in inlining_chain(act.event.place))
        for kind in act.kinds
        if kind in _STAGES
    )


def _at(finding: Finding, taps: Taps) -> list[Event]:
    """Return the events of the recorded warps at the finding's line."""
    lines = {(_file(place), place.line) for place in inlining_chain(finding.place)}
    return [
        event
        for event in taps.events
        if event.ptx_line == finding.ptx_line
        or any((_file(place), place.line) in lines for place in inlining_chain(event.place))
    ]


def _file(place: Place) -> str:
    """Return the file's name without its folder: the compiler received another path than the user gave."""
    return place.file.rpartition("/")[2]


def _comes_after(finding: Finding, divergence: Divergence, taps: Taps) -> bool:
    """Whether the recorded CTA reached the finding's line only after it had computed the first wrong element."""
    site = divergence.site
    if site is None or finding.place is None:
        return False
    made = [
        event.step
        for event in taps.events
        if (event.launch, event.cta, event.warp, event.ptx_line) == (site.launch, site.cta, site.warp, site.ptx_line)
    ]
    reached = [(event.launch, event.step) for event in _at(finding, taps)]
    return bool(made) and bool(reached) and min(reached) > (site.launch, min(made))
