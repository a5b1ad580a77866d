"""A search of the store → the data of its page: progress, lineage with diffs, levers, insights, cost."""

from collections.abc import Mapping
from difflib import unified_diff
from math import exp, log

from weft.evolve.records import Member
from weft.evolve.run_summary import RunSummary, summary_of
from weft.store.records import InsightRow
from weft.store.store import Store

from .records import CandidateView, DiffLine, InsightView, LeverView, Named, SearchReport

MOST_DIFF = 140
"""Limit of lines of a diff."""
CONTEXT = 2
MESSAGE = 600
"""Limit of characters of a verdict or a diagnosis."""


def search_report(store: Store, run_id: int, *, command: str = "") -> SearchReport:
    """Return the report of a run. Raises StoreError if there is no such run."""
    texts = {row.id: store.text(row.source_digest) for row in store.candidates(run_id)}
    return report_of(summary_of(store, run_id), texts, command=command)


def report_of(summary: RunSummary, texts: Mapping[int, str], *, command: str = "") -> SearchReport:
    """Return the report; `texts` are the candidates' sources."""
    run_id = summary.run.id
    commands = [Named("this page", command)] if command else []
    commands.append(Named("the same in a terminal", f"weft runs show {run_id}"))
    best = summary.best
    if best is not None:
        commands.append(Named("the best candidate", f"weft runs show {run_id} --source {best.id} > best.cu"))
    return SearchReport(
        run=run_id,
        title=f"{summary.settings.task} from {summary.settings.start}",
        state=summary.run.state,
        sentence=_sentence(summary),
        unit=_unit(summary),
        facts=tuple(_facts(summary)),
        commands=tuple(commands),
        candidates=tuple(_candidate(summary, member, order, texts) for order, member in enumerate(summary.history, 1)),
        levers=_levers(summary),
        insights=tuple(_insight(row) for row in summary.insights),
        cost=tuple(_cost(summary)),
        winning_line=_line_of_best(summary),
    )


def _sentence(summary: RunSummary) -> str:
    best, start = summary.best, summary.history.start.score if summary.history.members else None
    if best is None or best.score is None or start is None:
        return "nothing passes yet"
    if summary.winner is not None:
        whole = f"candidate {summary.winner} passes the whole check"
    else:
        whole = "no elite passes the whole check" if summary.run.state == "done" else "not judged whole yet"
    return f"{start:,.0f} → {best.score:,.0f} {_unit(summary)} (×{best.score / start:.2f}); {whole}"


def _unit(summary: RunSummary) -> str:
    return "µs" if any(member.timing is not None for member in summary.history) else "cycles by the model"


def _facts(summary: RunSummary) -> list[Named]:
    settings, history = summary.settings, summary.history
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(summary.outcomes.items()))
    facts = [
        Named("task", settings.task),
        Named("start", settings.start),
        Named("GPU of the model", settings.chip),
        Named("scored on", f"{settings.score_on.shape} {settings.score_on.dtype} {settings.score_on.mask}"),
        Named("proposer", f"{settings.proposer}, seed {settings.seed}"),
        Named("evaluations", f"{history.evaluations} of {settings.budget.evaluations}"),
        Named("candidates", outcomes),
        Named("insights", ", ".join(f"{count} {name}" for name, count in sorted(summary.proofs.items())) or "none"),
    ]
    why = summary.run.progress.get("why", "")
    return [*facts, Named("ended", str(why))] if why else facts


def _cost(summary: RunSummary) -> list[Named]:
    history, budget = summary.history, summary.settings.budget
    evaluating = sum(member.seconds for member in history)
    proposing = sum(member.spent.seconds for member in history)
    rows = [
        Named("evaluations", f"{history.evaluations} of {budget.evaluations}"),
        Named("evaluating", _time(evaluating)),
        Named("proposing", _time(proposing)),
        Named("answered by the cache", str(sum(member.cached for member in history))),
    ]
    if history.tokens:
        rows.append(Named("tokens", f"{history.tokens:,}" + (f" of {budget.tokens:,}" if budget.tokens else "")))
    money = history.money(summary.settings.prices)
    if money:
        rows.append(Named("money", f"{money:,.2f}" + (f" of {budget.money:,.2f}" if budget.money else "")))
    return rows


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _line_of_best(summary: RunSummary) -> tuple[int, ...]:
    at: int | None = summary.winner or (summary.best.id if summary.best is not None else None)
    found: list[int] = []
    while at is not None and at not in found:
        found.append(at)
        parents = summary.history.by_id[at].parents
        at = parents[0] if parents else None
    return tuple(reversed(found))


def _kind(summary: RunSummary, member: Member) -> str:
    if member.id == summary.winner:
        return "winner"
    if member in summary.elites:
        return "elite"
    if member.duplicate_of is not None:
        return "duplicate"
    if member.id in summary.kept:
        return "kept"
    if member.evaluation is None:
        return "waiting"
    return "passed" if member.passed else "failed"


def _candidate(summary: RunSummary, member: Member, order: int, texts: Mapping[int, str]) -> CandidateView:
    parent = summary.history.parent(member)
    ratio = member.score / parent.score if parent is not None and parent.score and member.score else None
    evaluation = member.evaluation
    facts = [Named("proposed by", member.proposer), Named("limiter", member.limiter)]
    if evaluation is not None and evaluation.profile is not None:
        profile = evaluation.profile
        facts.append(Named("estimate", f"{profile.est_low:,.0f} to {profile.est_high:,.0f} cycles"))
        facts.append(Named("at least", f"{profile.lb_warm:,.0f} cycles"))
    if member.point is not None:
        facts.append(Named("levers", member.point.text))
    if member.duplicate_of is not None:
        facts.append(Named("same code as", f"candidate {member.duplicate_of}"))
    if member.repairs is not None:
        facts.append(Named("repairs", f"candidate {member.repairs}"))
    if evaluation is not None:
        facts += [Named("message", evaluation.message[:MESSAGE]), Named("diagnosis", evaluation.diagnosis[:MESSAGE])]
    return CandidateView(
        id=member.id,
        parents=member.parents,
        generation=member.generation,
        order=order,
        kind=_kind(summary, member),
        status=member.status,
        score=member.score,
        against_parent=ratio,
        changes=tuple(map(str, member.changes)),
        hypothesis=member.hypothesis,
        facts=tuple(fact for fact in facts if fact.value),
        diff=_diff(texts[parent.id], texts[member.id]) if parent is not None else (),
    )


def _diff(before: str, after: str) -> tuple[DiffLine, ...]:
    lines = list(unified_diff(before.splitlines(), after.splitlines(), n=CONTEXT, lineterm=""))[2:]
    found = [
        DiffLine("@" if line.startswith("@@") else line[:1], line if line.startswith("@@") else line[1:])
        for line in lines[:MOST_DIFF]
    ]
    if len(lines) > MOST_DIFF:
        found.append(DiffLine("@", f"{len(lines) - MOST_DIFF} more lines"))
    return tuple(found)


def _levers(summary: RunSummary) -> tuple[LeverView, ...]:
    """Return every change of a lever; the ratio is the child's, which changed two levers at once."""
    tried: dict[str, list[Member]] = {}
    for member in summary.history:
        for change in member.changes:
            tried.setdefault(str(change), []).append(member)
    rows = []
    for move, members in tried.items():
        logs = []
        for member in members:
            parent = summary.history.parent(member)
            if member.passed and member.score and parent is not None and parent.score:
                logs.append(log(member.score / parent.score))
        kept = sum(member.id in summary.kept for member in members)
        ratio = exp(sum(logs) / len(logs)) if logs else None
        rows.append(LeverView(move, len(members), len(logs), kept, ratio))
    return tuple(sorted(rows, key=lambda row: (row.ratio is None, row.ratio or 0.0, row.change)))


def _insight(row: InsightRow) -> InsightView:
    (name, before), *_ = row.before.items()
    after = row.after.get(name)
    return InsightView(
        row.candidate_id,
        str(row.outcome),
        row.hypothesis,
        name,
        float(before),
        float(after) if after is not None else None,
        row.note,
    )
