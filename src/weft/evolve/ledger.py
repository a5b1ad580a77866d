"""The lessons of a child: every expectation with its measurement, confirmed or refuted. Nothing is omitted."""

from dataclasses import dataclass
from typing import Any

from weft.store.records import Proof
from weft.store.store import Store

from .history import History
from .levers.effects import observed
from .records import Member

SCORE = "est_cycles"
TIME = "microseconds"
"""The name of the score: the model's, or a GPU's."""


@dataclass(frozen=True)
class Lesson:
    """One row of the ledger."""

    hypothesis: str
    predicted: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    proof: Proof
    note: str = ""


def lessons(history: History, member: Member, gain: float) -> tuple[Lesson, ...]:
    """Return the lessons of a child whose evaluation ended; none if its parent was not measured."""
    parent = history.parent(member)
    if parent is None or parent.evaluation is None or parent.evaluation.profile is None or parent.score is None:
        return ()
    score = TIME if member.timing is not None else SCORE
    faster = {"counter": score, "direction": "falls", "why": f"by at least {gain:.0%}"}
    if member.duplicate_of is not None:
        note = f"the compiled code is the same as that of candidate {member.duplicate_of}"
        return (Lesson(member.hypothesis, faster, {SCORE: parent.score}, {}, Proof.REFUTED, note),)
    if member.evaluation is None:
        return ()
    if member.evaluation.profile is None or member.score is None:
        note = f"{member.evaluation.status}: {member.evaluation.message}".strip(": ")
        return (Lesson(member.hypothesis, faster, {SCORE: parent.score}, {}, Proof.REFUTED, note),)
    before, after = observed(parent.evaluation.profile.kernel), observed(member.evaluation.profile.kernel)
    better = member.passed and member.beats(parent, gain)
    note = f"it spills {member.spills} bytes per thread" if member.spills else member.refused
    scores = {score: parent.score}, {score: member.score}
    found = [Lesson(member.hypothesis, faster, *scores, _proof(better), note)]
    for effect in member.predicted:
        name = effect.counter
        if name not in before or name not in after:
            continue
        expected = {"counter": name, "direction": effect.direction, "why": effect.why}
        holds = effect.holds(before[name], after[name])
        found.append(Lesson(str(effect), expected, {name: before[name]}, {name: after[name]}, _proof(holds)))
    return tuple(found)


def write_lessons(store: Store, run_id: int, history: History, member: Member, gain: float) -> None:
    """Write the lessons to the store; further calls have no effect."""
    for lesson in lessons(history, member, gain):
        store.add_insight(
            run_id,
            member.id,
            hypothesis=lesson.hypothesis,
            levers={"changes": [str(each) for each in member.changes]},
            predicted=lesson.predicted,
            before=lesson.before,
            after=lesson.after,
            outcome=lesson.proof,
            note=lesson.note,
        )


def _proof(holds: bool) -> Proof:
    return Proof.CONFIRMED if holds else Proof.REFUTED
