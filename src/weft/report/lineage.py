"""The lineage as a picture: generations from left to right, every family in its own rows."""

from collections.abc import Sequence

from .charts import line, text
from .markup import Markup, tag
from .records import CandidateView, SearchReport

COLUMN, ROW = 104, 30
LEFT, TOP = 30, 40
KINDS = {
    "winner": "winner: passes the whole check",
    "elite": "elite at the end",
    "kept": "better than its parent",
    "passed": "passed, not better",
    "failed": "wrong, or spills",
    "duplicate": "same code as another",
    "waiting": "not judged yet",
}


def lineage_chart(report: SearchReport) -> Markup:
    """Return the chart; every node is a link to its candidate."""
    places = _places(report.candidates)
    width = LEFT + COLUMN * (max(c.generation for c in report.candidates) + 1)
    height = TOP + ROW * (max(y for _, y in places.values()) + 1)
    at = {key: (LEFT + x * COLUMN, TOP + y * ROW) for key, (x, y) in places.items()}
    widths = {each.id: _score_at(each) + 7 * len(_score(each)) for each in report.candidates}
    best = set(report.winning_line)
    made: list[Markup] = []
    for generation in range(max(c.generation for c in report.candidates) + 1):
        x = LEFT + generation * COLUMN
        made += [
            text(x, 14, "start" if generation == 0 else str(generation), anchor="middle"),
            line(x, 22, x, height - 8, "grid"),
        ]
    for candidate in sorted(report.candidates, key=lambda each: each.id in best):
        for rank, parent in enumerate(candidate.parents):
            strong = rank == 0 and candidate.id in best and parent in best
            kind = "edge best" if strong else "edge" if rank == 0 else "edge second"
            made.append(_edge(at[parent], at[candidate.id], widths[parent], kind))
    made += [_node(candidate, *at[candidate.id]) for candidate in report.candidates]
    label = "Lineage; arrow keys go to parents, children and neighbours"
    return tag(
        "svg",
        made,
        viewBox=f"0 0 {width} {height:.0f}",
        width=width,
        height=f"{height:.0f}",
        class_="chart lineage",
        id="lineage-chart",
        role="group",
        aria_label=label,
    )


def _places(candidates: Sequence[CandidateView]) -> dict[int, tuple[int, float]]:
    """Return the positions: a leaf has a separate row; a parent is in the middle of its children."""
    children: dict[int, list[CandidateView]] = {}
    for each in candidates:
        if each.parents:
            children.setdefault(each.parents[0], []).append(each)
    rows: dict[int, float] = {}
    free = 0
    # Children come after their parents: the first pass gives leaves their rows in depth-first order.
    stack = [each for each in reversed(candidates) if not each.parents]
    order: list[CandidateView] = []
    while stack:
        here = stack.pop()
        order.append(here)
        below = children.get(here.id, [])
        if not below:
            rows[here.id] = free
            free += 1
        stack += reversed(below)
    for here in reversed(order):
        below = children.get(here.id, [])
        if below:
            rows[here.id] = (rows[below[0].id] + rows[below[-1].id]) / 2
    return {each.id: (each.generation, rows[each.id]) for each in candidates}


def _edge(start: tuple[float, float], end: tuple[float, float], label: float, kind: str) -> Markup:
    """Return an edge that starts after the parent's label, so that its number can be read."""
    (x0, y0), (x1, y1) = start, end
    x0 += label
    middle = (x0 + x1) / 2
    return tag(
        "path", d=f"M{x0:.0f} {y0:.1f}C{middle:.0f} {y0:.1f} {middle:.0f} {y1:.1f} {x1:.0f} {y1:.1f}", class_=kind
    )


def mark(kind: str, x: float, y: float) -> Markup:
    """Return the mark of a kind: each kind has a different shape, not only a colour."""
    if kind == "winner":
        return tag("path", d=f"M{x:.1f} {y - 8:.1f}l8 8-8 8-8-8z", class_="mark winner")
    if kind == "failed":
        return tag("path", d=f"M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m0-9l-9 9", class_="mark failed")
    radius = {"elite": 6.5, "kept": 5.5}.get(kind, 4.5)
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, class_=f"mark {kind}")


def _score(candidate: CandidateView) -> str:
    return f"{candidate.score:,.0f}" if candidate.score is not None else candidate.status.lower()


def _score_at(candidate: CandidateView) -> int:
    """Return the offset of the score, after the number."""
    return 18 + 8 * len(str(candidate.id))


def _node(candidate: CandidateView, x: float, y: float) -> Markup:
    score = _score(candidate)
    label = f"candidate {candidate.id}, {KINDS[candidate.kind]}, {score}"
    return tag(
        "a",
        tag("rect", x=f"{x - 13:.1f}", y=f"{y - 13:.1f}", width=COLUMN - 14, height=26, rx=5, class_="hit"),
        mark(candidate.kind, x, y),
        text(x + 12, y + 4, str(candidate.id), kind="strong"),
        text(x + _score_at(candidate), y + 4, score, kind="value"),
        href=f"#c{candidate.id}",
        class_="node",
        data_candidate=candidate.id,
        data_parents=" ".join(map(str, candidate.parents)),
        data_x=f"{x:.0f}",
        data_y=f"{y:.1f}",
        aria_label=label,
    )
