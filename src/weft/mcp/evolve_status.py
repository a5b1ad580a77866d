"""The tool `evolve_status`: the progress of a search and its insights."""

from pathlib import Path as File
from typing import Annotated

from mcp.types import CallToolResult
from pydantic import Field

from weft.core.errors import UsageError
from weft.evolve.records import Member
from weft.evolve.run_summary import RunSummary, searches, summary_of
from weft.store.store import open_store

from .answers import CandidateAnswer, EvolveAnswer, SearchAnswer, reply
from .calls import carried_out

SEARCHES, INSIGHTS, MORE = 3, 3, 30


def evolve_status(
    run: Annotated[int | None, Field(description="The number of a search. None: the newest ones.")] = None,
    store: Annotated[str, Field(description="The file of the store. Empty: the user's store.")] = "",
    detail: Annotated[bool, Field(description="More searches and insights.")] = False,
) -> Annotated[CallToolResult, EvolveAnswer]:
    """Show the state of `weft evolve` searches: best candidate compared with the start, levers, insights."""
    with carried_out():
        if store and "://" not in store and not File(store).is_file():
            raise UsageError(f"there is no store {store}; `weft evolve --store {store}` creates it")
        with open_store(store or None) as opened:
            found = [summary_of(opened, run)] if run is not None else list(reversed(searches(opened)))
        most = MORE if detail else SEARCHES
        whole = run is not None or detail
        answers = tuple(_search(each, whole, MORE if detail else INSIGHTS) for each in found[:most])
        return reply(EvolveAnswer(_next(found, run), answers, len(found)))


def _next(found: list[RunSummary], run: int | None) -> str:
    if not found:
        return "no searches yet: `weft evolve --start wmma --budget 60` in a terminal starts one"
    if run is None:
        return "give `run` to see one search with its elites and insights"
    best = found[0].best
    return (
        f"`weft runs show {run} --source {best.id}` prints the best"
        if best is not None
        else "no candidate has a score yet"
    )


def _search(summary: RunSummary, whole: bool, insights: int) -> SearchAnswer:
    history, best = summary.history, summary.best
    rows = reversed(summary.insights[-insights:])
    return SearchAnswer(
        run=summary.run.id,
        state=str(summary.run.state),
        task=summary.settings.task,
        start=str(summary.settings.start),
        gpu=summary.settings.chip,
        evaluations=history.evaluations,
        outcomes=summary.outcomes,
        start_cycles=history.start.score if history.members else None,
        best_cycles=best.score if best is not None else None,
        ratio=round(summary.ratio, 3) if summary.ratio is not None else None,
        winner=summary.winner,
        why=str(summary.run.progress.get("why", "")),
        elites=tuple(_candidate(each) for each in summary.elites) if whole else (),
        insights=tuple(f"{each.outcome}: {each.hypothesis} {each.note}".strip() for each in rows) if whole else (),
    )


def _candidate(member: Member) -> CandidateAnswer:
    return CandidateAnswer(
        id=member.id,
        score_cycles=member.score,
        limiter=member.limiter or "",
        changes=tuple(str(change) for change in member.changes),
        hypothesis=member.hypothesis,
        status=str(member.status),
    )
