"""`weft runs`: list the searches of a store; show one with lineage, levers and insights."""

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.evolve.records import Member
from weft.evolve.run_summary import RunSummary, member_record, searches, summary_of, summary_record
from weft.store.store import Store, open_store

from .help_text import FullSummaries
from .tables import print_table

StoreAt = Annotated[
    str | None,
    typer.Option("--store", metavar="WHERE", help="A store's file or URL (default: WEFT_STORE, or the user's)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

runs = typer.Typer(
    cls=FullSummaries,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

KINDS = {
    "failed": ("#c0392b", "x", "wrong, or spills"),
    "passed": ("#b0b7bf", "o", "passed, not 3 % better"),
    "kept": ("#4c86c6", "o", "better than its parent"),
    "elite": ("#1f4e8c", "o", "elite at the end"),
    "winner": ("#e0a020", "*", "winner: passes the whole check"),
}
"""Kind → colour, marker, legend."""


@runs.callback(invoke_without_command=True)
def list_runs(context: typer.Context, store: StoreAt = None, as_json: AsJson = False) -> int | None:
    """List searches; `weft runs show N` shows one."""
    if context.invoked_subcommand is not None:
        return None
    with open_store(store) as opened:
        found = searches(opened)
    if as_json:
        print(json.dumps([summary_record(each) for each in found], indent=2))
        return 0
    rows = [_row(each) for each in found]
    print_table(["run", "state", "task", "start", "gpu", "proposer", "seed", "evaluations", "cycles", "×"], rows)
    print(f"{len(found)} searches" if found else "no searches yet: `weft evolve` starts one")
    return 0


@runs.command("show")
def show(
    run: Annotated[int, typer.Argument(help="The number of the search.")],
    source: Annotated[int | None, typer.Option("--source", metavar="ID", help="Print a candidate's source.")] = None,
    insights: Annotated[bool, typer.Option("--insights", help="Print every insight.")] = False,
    png: Annotated[Path | None, typer.Option("-o", "--png", help="Draw the lineage.")] = None,
    store: StoreAt = None,
    as_json: AsJson = False,
) -> int:
    """Show one search: its lineage with levers and scores, and its insights."""
    with open_store(store) as opened:
        summary = summary_of(opened, run)
        if source is not None:
            print(_source(opened, summary, source), end="")
            return 0
    if png is not None:
        _draw_lineage(summary, png)
    if as_json:
        print(json.dumps(_record(summary), indent=2))
    elif insights:
        _show_insights(summary)
    else:
        _show(summary)
    return 0


def _source(store: Store, summary: RunSummary, candidate: int) -> str:
    if candidate not in summary.history.by_id:
        raise UsageError(
            f"run {summary.run.id} has no candidate {candidate}; `weft runs show {summary.run.id}` lists them"
        )
    return store.text(store.candidate(candidate).source_digest)


def _row(summary: RunSummary) -> list[object]:
    best, settings = summary.best, summary.settings
    start = summary.history.start.score if summary.history.members else None
    cycles = f"{start:,.0f} → {best.score:,.0f}" if start and best is not None and best.score else ""
    return [
        summary.run.id,
        summary.run.state,
        settings.task,
        settings.start,
        settings.chip,
        settings.proposer,
        settings.seed,
        summary.history.evaluations,
        cycles,
        f"{summary.ratio:.2f}" if summary.ratio else "",
    ]


def _show(summary: RunSummary) -> None:
    rows = [_lineage_row(summary, member) for member in summary.history]
    print_table(["", "candidate", "parent", "levers", "status", "cycles", "against parent", "limiter"], rows)
    proofs = ", ".join(f"{count} {name}" for name, count in sorted(summary.proofs.items()))
    print(f"insights: {proofs or 'none'}; `weft runs show {summary.run.id} --insights` lists them")
    print(last_line(summary))


def _lineage_row(summary: RunSummary, member: Member) -> list[object]:
    mark = "best" if summary.best is member else "elite" if member in summary.elites else ""
    mark = "winner" if member.id == summary.winner else mark or ("kept" if member.id in summary.kept else "")
    parent = summary.history.parent(member)
    against = ""
    if parent is not None and parent.score and member.score:
        against = f"×{member.score / parent.score:.2f}"
    levers = "; ".join(map(str, member.changes)) or member.hypothesis
    status = member.status if member.duplicate_of is None else f"same code as {member.duplicate_of}"
    cycles = f"{member.score:,.0f}" if member.score is not None else ""
    return [mark, member.id, "+".join(map(str, member.parents)), levers, status, cycles, against, member.limiter]


def _show_insights(summary: RunSummary) -> None:
    rows = []
    for row in summary.insights:
        (name, before), *_ = row.before.items()
        after = row.after.get(name)
        moved = f"{before:,.0f} → {after:,.0f}" if after is not None else ""
        moved = " · ".join(filter(None, (moved, row.note)))
        rows.append([row.candidate_id, row.outcome, row.hypothesis, name, moved])
    print_table(["candidate", "proof", "expected", "counter", "measured"], rows)
    print(f"{len(rows)} insights of run {summary.run.id}")


def _record(summary: RunSummary) -> dict[str, object]:
    return {
        **summary_record(summary),
        "candidates": [member_record(summary, member) for member in summary.history],
        "ledger": [
            {
                "candidate": row.candidate_id,
                "hypothesis": row.hypothesis,
                "changes": row.levers.get("changes", []),
                "predicted": dict(row.predicted),
                "before": dict(row.before),
                "after": dict(row.after),
                "proof": str(row.outcome),
                "note": row.note,
            }
            for row in summary.insights
        ],
    }


def last_line(summary: RunSummary) -> str:
    """Return one line with the state of the search."""
    best, start = summary.best, summary.history.start.score if summary.history.members else None
    run = summary.run.id
    if best is None or best.score is None or start is None:
        return f"run {run} · {summary.run.state} · nothing passes yet"
    whole = f"candidate {summary.winner} passes the whole check" if summary.winner else "not judged whole yet"
    if summary.run.state == "done" and summary.winner is None:
        whole = "no elite passes the whole check"
    tried = summary.history.evaluations
    cycles = f"{start:,.0f} → {best.score:,.0f} cycles by the model (×{best.score / start:.2f})"
    return f"run {run} · {summary.run.state} · {tried} evaluations · {cycles} · {whole}"


def _draw_lineage(summary: RunSummary, path: Path) -> None:
    """Draw every candidate by generation and cycles, with a line to its parent: a PNG or SVG, by the file's ending."""
    from weft.diagnose.figure import require_matplotlib

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
    """Return the winner, its parent, and so on up to the start."""
    found: set[int] = set()
    at = summary.winner
    while at is not None and at not in found:
        found.add(at)
        parents = summary.history.by_id[at].parents
        at = parents[0] if parents else None
    return frozenset(found)
