"""What a verdict speaks for: the types, masks and sizes that a kernel takes, and the workloads that were left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.core.status import Status

from .judge import Policy, judge, smallest
from .runs import Runs
from .select import Choice, Supports, nothing_selected, settled, skipped
from .verdict import Verdict

HINT = (
    "looks like a kernel that is causal only: say so in the file with `// weft: lever CAUSAL = {index} in {index}`, "
    "or check it with --masks {mask}"
)


@dataclass(frozen=True)
class Scope:
    """What the verdicts on one kernel cover."""

    judged_for: tuple[str, ...] = ()
    """`f16`, `HQ = HKV`, `D = 64`: where the kernel takes less than its task has."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Why workloads were left out → how many."""
    nothing: str = ""
    """Why no workload is left, if none is."""
    hint: str = ""
    """What the kernel seems to compute instead of its task."""

    def lines(self) -> list[str]:
        """Return it for people."""
        found = [f"{count} skipped: {why}" for why, count in self.skipped.items()]
        found += [f"judged for: {', '.join(self.judged_for)}"] if self.judged_for else []
        return [*found, *([self.hint] if self.hint else [])]

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "judged_for": list(self.judged_for),
            "skipped": [{"reason": why, "count": count} for why, count in self.skipped.items()],
            "hint": self.hint,
        }


def scope_of(supports: Supports, choice: Choice, verdicts: Sequence[Verdict]) -> Scope:
    """Return what the verdicts on a kernel cover of what was asked for."""
    supports = settled(supports, choice)
    if not verdicts:
        return Scope(skipped=skipped(supports, choice), nothing=nothing_selected(supports, choice))
    every = supports.task.workloads
    judged = [verdict.workload for verdict in verdicts if not verdict.limit]
    found = []
    for axis, name in (("dtypes", "dtype"), ("masks", "mask")):
        has = dict.fromkeys(getattr(workload, name) for workload in judged)
        if len(has) < len(getattr(every, axis)):
            found.append(f"{'mask ' * (name == 'mask')}{' and '.join(has)}")
    found += [str(limit) for limit in supports.limits]
    found += [f"D = {supports.only_d}"] if supports.only_d is not None else []
    found += [f"D up to {supports.largest_d}"] if supports.largest_d is not None else []
    left_out = skipped(supports, choice)
    found += [why for why in left_out if why.startswith("require ") and all(why != each.why for each in supports.limits)]
    return Scope(tuple(dict.fromkeys(found)), left_out)


def causal_hint(runs: Runs, supports: Supports, verdicts: Sequence[Verdict]) -> str:
    """Return what to say about a kernel that fails without a mask and is right with one; empty for any other.

    It is asked only where nothing says which mask the kernel computes, and it decides nothing: a kernel that was not
    said to be causal stays wrong.
    """
    judged = [verdict for verdict in verdicts if not verdict.extra and verdict.workload.shape.sq > 1]
    wrong = [verdict.workload for verdict in judged if verdict.status is Status.INCORRECT_NUMERICAL]
    if not supports.any_mask or not wrong or any(verdict.passed for verdict in judged):
        return ""
    work = smallest(wrong)
    masks = supports.task.workloads.masks
    for mask in (each for each in masks if each != "none"):
        verdict = judge(runs, supports.task, replace(work, mask=mask), Policy(())).verdict
        if verdict.passed:
            return HINT.format(index=masks.index(mask), mask=mask)
    return ""
