"""The prompts: the task and the machine, past candidates and the insights from them, in bounded size.

A prompt depends only on the history and the brief. Candidates are named by their digest, because the store's numbers
differ between a run and its replay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import unified_diff

from weft.core.errors import UsageError
from weft.evolve.elites import elites, outsider
from weft.evolve.history import History
from weft.evolve.ledger import SCORE, Lesson, lessons
from weft.evolve.levers.effects import observed
from weft.evolve.records import Member, Proposal
from weft.evolve.settings import Settings
from weft.store.records import Proof

from .briefs import Brief
from .question import Message
from .reply import MOST_SOURCE_BYTES

MOST_DIFF_CHARS = 6_000
MOST_VERDICT_CHARS = 2_000
MOST_INSIGHT_CHARS = 1_000
FAILURES = 3
BEST_INSIGHTS = 12
LATEST_INSIGHTS = 12

SourceOf = Callable[[Member], str]


@dataclass(frozen=True)
class Prompts:
    """The prompts of one run."""

    brief: Brief
    settings: Settings
    source_of: SourceOf

    def child(self, history: History, parent: Member, siblings: Sequence[Proposal]) -> tuple[Message, ...]:
        """Return the messages that request a child of `parent`."""
        others = [member for member in elites(history, self.settings) if member is not parent]
        unlike = outsider(history, self.settings)
        if unlike is not None and unlike is not parent:
            others.append(unlike)
        return self._messages(
            *self._parent(parent),
            *self._others(parent, others[:2]),
            *self._failures(history),
            *self._insights(history),
            *_siblings(siblings),
            "# Now",
            f"Propose one child of {name(parent)}. Exactly two levers, the whole file, in the format as instructed.",
        )

    def repair(self, history: History, failed: Member) -> tuple[Message, ...]:
        """Return the messages that request a version of `failed` that passes."""
        parent = history.parent(failed)
        assert parent is not None
        return self._messages(
            *self._parent(parent),
            f"# A child that failed: {name(failed)}",
            f"Levers: {_changes(failed)}. Hypothesis: {failed.hypothesis}",
            *verdict(failed),
            "Its source:",
            fenced(self._source(failed), "cuda"),
            *self._insights(history),
            "# Now",
            f"Fix {name(failed)}: find the cause in its source and give the whole corrected file. Keep its two levers "
            f"(`before` as in {name(parent)}); the reply's format as instructed.",
        )

    def _messages(self, *sections: str) -> tuple[Message, ...]:
        parts = (self.brief.task.strip(), f"# Counters\n\n{self.brief.metrics.strip()}", *sections)
        return Message("system", self.brief.generate.strip()), Message("user", "\n\n".join(parts))

    def _source(self, member: Member) -> str:
        text = self.source_of(member)
        if len(text.encode()) > MOST_SOURCE_BYTES:
            raise UsageError(f"the source of {name(member)} exceeds {MOST_SOURCE_BYTES} bytes, the limit of a prompt")
        return text

    def _parent(self, parent: Member) -> tuple[str, ...]:
        counters = ""
        if parent.evaluation is not None and parent.evaluation.profile is not None:
            values = observed(parent.evaluation.profile.kernel)
            counters = ", ".join(f"{each} {values[each]:g}" for each in self.brief.counters if each in values)
        return (
            f"# The parent: {name(parent)}",
            f"{_score(parent)}\nCounters: {counters or 'none'}.",
            fenced(self._source(parent), "cuda"),
        )

    def _others(self, parent: Member, others: Sequence[Member]) -> tuple[str, ...]:
        if not others:
            return ()
        rows = ["# Other good candidates, as differences from the parent"]
        for member in others:
            rows.append(f"{name(member)}: {_score(member)} Last levers: {_changes(member)}.")
            lines = unified_diff(
                self.source_of(parent).splitlines(),
                self.source_of(member).splitlines(),
                name(parent),
                name(member),
                n=1,
                lineterm="",
            )
            rows.append(fenced(cut("\n".join(lines), MOST_DIFF_CHARS), "diff"))
        return tuple(rows)

    def _failures(self, history: History) -> tuple[str, ...]:
        """Return the latest failures, each of a different kind."""
        found: dict[str, Member] = {}
        for member in reversed(history.members):
            if member.evaluation is not None and not member.evaluation.passed:
                found.setdefault(f"{member.status} {member.evaluation.message[:80]}", member)
        rows = [
            f"- {name(member)}, {_changes(member)}: {cut(' · '.join(verdict(member)), MOST_VERDICT_CHARS // FAILURES)}"
            for member in list(found.values())[:FAILURES]
        ]
        return ("# Failures to learn from", "\n".join(rows)) if rows else ()

    def _insights(self, history: History) -> tuple[str, ...]:
        """Return one line per child: those with the largest gain, and the latest."""
        learnt = {member.id: lessons(history, member, self.settings.gain) for member in history}
        taught = [member for member in history if learnt[member.id]]
        best = sorted(taught, key=lambda member: (_ratio(history, member), member.id))[:BEST_INSIGHTS]
        chosen = {member.id for member in (*best, *taught[-LATEST_INSIGHTS:])}
        rows = [_insight(history, member, learnt[member.id]) for member in taught if member.id in chosen]
        return ("# Insights: what was expected, and what was measured", "\n".join(rows)) if rows else ()


def name(member: Member) -> str:
    """Return the candidate's name, which is the same in every run."""
    return f"candidate {member.digest[:8]}"


def verdict(member: Member) -> tuple[str, ...]:
    """Return why it failed, from the judge and the diagnosis."""
    found = member.evaluation
    if found is None:
        return ("It was not evaluated.",)
    rows = [f"Verdict: {found.status}. {cut(found.message, MOST_VERDICT_CHARS)}"]
    failure = found.failure
    if failure is not None:
        rows.append(f"Workload: {failure.label}.")
        rows += [
            f"Gate {gate.gate}: error {gate.error}, limit {gate.limit}, at {gate.worst}."
            for gate in failure.gates
            if not gate.passed
        ]
        rows += [f"At {list(each.index)}: {each.out}, expected {each.expected}." for each in failure.samples[:4]]
        rows += [cut(str(finding), MOST_VERDICT_CHARS // 4) for finding in failure.findings[:4]]
    if found.diagnosis:
        rows.append(f"Diagnosis:\n{cut(found.diagnosis, MOST_VERDICT_CHARS)}")
    return tuple(rows)


def fenced(text: str, label: str) -> str:
    """Return a fenced block that the text cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{label}\n{text.rstrip()}\n{fence}"


def cut(text: str, most: int) -> str:
    """Return the text, shortened to `most` characters with a note of what is missing."""
    return text if len(text) <= most else f"{text[:most]} ({len(text) - most} more characters)"


def _score(member: Member) -> str:
    profile = member.evaluation.profile if member.evaluation is not None else None
    if profile is None or member.score is None:
        return f"{member.status}."
    return f"{member.score:.0f} modelled cycles, limited by {member.limiter}; its bound is {profile.lb_warm}."


def _changes(member: Member) -> str:
    return ", ".join(map(str, member.changes)) or "none, it is the start"


def _siblings(siblings: Sequence[Proposal]) -> tuple[str, ...]:
    if not siblings:
        return ()
    rows = [f"- {', '.join(map(str, sibling.changes))}: {sibling.hypothesis}" for sibling in siblings[-12:]]
    return ("# Proposed already and not judged yet: propose something else", "\n".join(rows))


def _ratio(history: History, member: Member) -> float:
    parent = history.parent(member)
    if parent is None or parent.score is None or member.score is None:
        return float("inf")
    return member.score / parent.score


def _insight(history: History, member: Member, learnt: Sequence[Lesson]) -> str:
    parent = history.parent(member)
    assert parent is not None
    head = f"- {_changes(member)} ({name(parent)} → {name(member)}): {member.hypothesis}"
    if member.duplicate_of is not None:
        return f"{head} · refuted: the compiled code is that of an earlier candidate"
    return cut(" · ".join((head, *map(_measured, learnt))), MOST_INSIGHT_CHARS)


def _measured(lesson: Lesson) -> str:
    counter = str(lesson.predicted["counter"])
    if lesson.note:
        return f"refuted: {cut(lesson.note, 160)}"
    before, after = lesson.before[counter], lesson.after[counter]
    expected = "" if counter == SCORE else f", {lesson.predicted['direction']} was expected"
    proof = "confirmed" if lesson.proof is Proof.CONFIRMED else "refuted"
    return f"{counter} {before:g} → {after:g}{expected}: {proof}"
