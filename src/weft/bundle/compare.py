"""Compare a bundle's answer with this machine's: what differs, and whether the verdict differs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .records import Answer


@dataclass(frozen=True)
class Difference:
    """One value that differs: in the bundle, and here."""

    what: str
    there: str
    here: str
    verdict: bool = False
    """Whether the difference is in the verdict."""


@dataclass(frozen=True)
class Replay:
    """The result of a replay."""

    there: Answer
    here: Answer
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Return whether the verdict is the same."""
        return not any(each.verdict for each in self.differences)

    @property
    def bits(self) -> tuple[int, int]:
        """Return the number of workloads with bit-identical outputs, and the number that both have outputs for."""
        both = [name for name in self.there.outputs if name in self.here.outputs]
        return sum(self.there.outputs[name] == self.here.outputs[name] for name in both), len(both)


def compare(there: Answer, here: Answer, theirs: Mapping[str, str], ours: Mapping[str, str]) -> Replay:
    """Return the differences in the order of causes: versions, code, bits, verdict."""
    return Replay(there, here, (*_versions(theirs, ours), *_answers(there, here)))


def _versions(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys((*theirs, *ours)):
        there, here = theirs.get(name, "unknown"), ours.get(name, "unknown")
        if there != here:
            yield Difference(name, there, here)


def _answers(there: Answer, here: Answer) -> Iterator[Difference]:
    if there.ptx != here.ptx:
        yield Difference("PTX", there.ptx[:16] or "none", here.ptx[:16] or "none")
    for workload in dict.fromkeys((*there.outputs, *here.outputs)):
        before, after = there.outputs.get(workload), here.outputs.get(workload)
        if before is None or after is None:
            yield Difference(f"outputs of {workload}", _present(before), _present(after))
            continue
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                yield Difference(
                    f"bits of {name}, {workload}", before.get(name, "none")[:16], after.get(name, "none")[:16]
                )
    if there.estimate != here.estimate:
        yield Difference("EST in cycles", _cycles(there), _cycles(here))
    if there.verdict != here.verdict:
        yield Difference("verdict", verdict_text(there), verdict_text(here), verdict=True)
    elif there.message != here.message:
        yield Difference("message", there.message, here.message)


def verdict_text(answer: Answer) -> str:
    """Return the verdict as one line."""
    where = f" on {answer.failed_on}" if answer.failed_on else ""
    return f"{answer.status}{where}, {answer.judged} of {answer.planned} workloads judged"


def _present(outputs: Mapping[str, str] | None) -> str:
    return "none" if outputs is None else "present"


def _cycles(answer: Answer) -> str:
    return f"{answer.estimate[0]:.0f} to {answer.estimate[1]:.0f}" if answer.estimate is not None else "none"
