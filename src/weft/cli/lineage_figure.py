"""The lineage of a search as a picture: every candidate by generation and cycles, a line to its parent."""

from pathlib import Path

from weft.diagnose.figure import require_matplotlib
from weft.evolve.run_summary import RunSummary

KINDS = {
    "failed": ("#c0392b", "x", "wrong, or spills"),
    "passed": ("#b0b7bf", "o", "passed, not 3 % better"),
    "kept": ("#4c86c6", "o", "better than its parent"),
    "elite": ("#1f4e8c", "o", "elite at the end"),
    "winner": ("#e0a020", "*", "winner: passes the whole check"),
}
"""Kind → colour, marker, legend."""


def draw_lineage(summary: RunSummary, path: Path) -> None:
    """Write a PNG or SVG, by the file's ending."""
    require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    history = summary.history
    scores = [member.score for member in history if member.score is not None]
    worst = max(scores, default=1.0) * 1.12
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    places = {member.id: (member.generation, member.score or worst) for member in history}
    line_of_winner = _ancestors(summary)
    for member in history:
        for rank, parent in enumerate(member.parents):
            (x0, y0), (x1, y1) = places[parent], places[member.id]
            strong = rank == 0 and member.id in line_of_winner
            colour = "#e0a020" if strong else "#d7dce1"
            axes.plot([x0, x1], [y0, y1], color=colour, linewidth=2 if strong else 0.8, zorder=2 if strong else 1)
    for kind, (colour, marker, label) in KINDS.items():
        here = [places[member.id] for member in history if _kind(summary, member.id) == kind]
        if here:
            size = 160 if marker == "*" else 36
            x, y = zip(*here, strict=True)
            axes.scatter(x, y, c=colour, marker=marker, s=size, label=label, zorder=3)
    for member_id in line_of_winner:
        member = history.by_id[member_id]
        if member.changes and _kind(summary, member_id) != "failed":
            text = "\n".join(str(change) for change in member.changes)
            axes.annotate(text, places[member_id], xytext=(6, 4), textcoords="offset points", fontsize=6)
    axes.set_yscale("log")
    for axis_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_formatter(FuncFormatter(lambda cycles, _: f"{cycles:,.0f}"))
    axes.set_xlabel("generation")
    axes.set_ylabel("cycles by the model (middle of EST)")
    axes.set_title(
        f"run {summary.run.id}: {summary.settings.task} from {summary.settings.start}, {summary.settings.chip}"
    )
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


def _kind(summary: RunSummary, member_id: int) -> str:
    member = summary.history.by_id[member_id]
    if member_id == summary.winner:
        return "winner"
    if member in summary.elites:
        return "elite"
    if member_id in summary.kept:
        return "kept"
    return "passed" if member.passed else "failed"


def _ancestors(summary: RunSummary) -> frozenset[int]:
    """The winner, its parent, and so on to the start."""
    found: set[int] = set()
    at = summary.winner
    while at is not None and at not in found:
        found.add(at)
        parents = summary.history.by_id[at].parents
        at = parents[0] if parents else None
    return frozenset(found)
