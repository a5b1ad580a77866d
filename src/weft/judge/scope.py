"""What a verdict covers: the types, masks and sizes that a kernel takes, and the workloads that were left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.core.status import Status

from .judge import Policy, judge, smallest
from .runs import Runs
from .select import Choice, Supports, nothing_selected, settled, skipped
from .verdict import Verdict

HINT = (
    "the kernel appears to be causal only: state it in the file with `// weft: lever CAUSAL = {index} in {index}`, "
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
    """Why no workload is left; empty if some are."""
    hint: str = ""
    """What a wrong kernel seems to be made for, and the launch line that states it."""

    def lines(self) -> list[str]:
        """Return it as lines of text."""
        judged_for = [f"judged for: {', '.join(self.judged_for)}"] if self.judged_for else []
        return [*self.skip_lines, *judged_for, *([self.hint] if self.hint else [])]

    @property
    def skip_lines(self) -> tuple[str, ...]:
        """How many workloads were left out, and why."""
        return tuple(f"{count} skipped: {why}" for why, count in self.skipped.items())

    def noted(self, message: str) -> str:
        """Return a conclusion's message with what was left out, if anything was."""
        return "; ".join(filter(None, (message, *(self.lines() if self.skipped else ()))))

    def record(self) -> dict[str, Any]:
        """Return it in its JSON form."""
        return {
            "judged_for": list(self.judged_for),
            "skipped": [{"reason": why, "count": count} for why, count in self.skipped.items()],
            "hint": self.hint,
        }


def scope_of(supports: Supports, choice: Choice, verdicts: Sequence[Verdict]) -> Scope:
    """Return which part of the request the verdicts on a kernel cover."""
    supports = settled(supports, choice)
    if not verdicts:
        return Scope(skipped=skipped(supports, choice), nothing=nothing_selected(supports, choice))
    every = supports.task.workloads
    judged = [verdict.workload for verdict in verdicts if not verdict.limit]
    found = []
    for axis, name in (("dtypes", "dtype"), ("masks", "mask")):
        has = dict.fromkeys(getattr(workload, name) for workload in judged)
        if len(getattr(supports, axis)) < len(getattr(every, axis)):  # else the caller chose
            found.append(f"{'mask ' * (name == 'mask')}{' and '.join(has)}")
    found += [str(limit) for limit in supports.limits]
    found += [f"D = {supports.only_d}"] if supports.only_d is not None else []
    found += [f"D up to {supports.largest_d}"] if supports.largest_d is not None else []
    left_out = skipped(supports, choice)
    known = {limit.why for limit in supports.limits}
    found += [why for why in left_out if why.startswith("require ") and why not in known]
    return Scope(tuple(dict.fromkeys(found)), left_out)


def hint_for(runs: Runs, supports: Supports, verdicts: Sequence[Verdict]) -> str:
    """Return what a wrong kernel seems to compute, where a launch line can state it: another mask, one head dimension.

    It does not change the verdict: a kernel that was not declared causal stays wrong.
    """
    judged = [verdict for verdict in verdicts if not verdict.extra and verdict.workload.shape.sq > 1]
    if found := _one_dimension(judged):
        return found
    if not supports.any_mask:
        return _one_alignment(supports, judged)
    wrong = [verdict.workload for verdict in judged if verdict.status is Status.INCORRECT_NUMERICAL]
    if not wrong or any(verdict.passed for verdict in judged):
        return ""
    work = smallest(wrong)
    masks = supports.task.workloads.masks
    for mask in (each for each in masks if each != "none"):
        verdict = judge(runs, supports.task, replace(work, mask=mask), Policy(())).verdict
        if verdict.passed:
            return HINT.format(index=masks.index(mask), mask=mask)
    return ""


def _one_dimension(judged: Sequence[Verdict]) -> str:
    """Return the hint for a kernel that is right for one head dimension and wrong for every other."""
    right, wrong = ({each.workload.shape.d for each in judged if each.passed is passed} for passed in (True, False))
    if len(right) != 1 or not wrong or right & wrong:
        return ""
    d = min(right)
    return f"wrong only where D is not {d}: if the kernel is only for D = {d}, add `// weft: require D == {d}`"


def _one_alignment(supports: Supports, judged: Sequence[Verdict]) -> str:
    """Return the hint for a kernel that has both causal alignments by its macro, and is right in only one."""
    masks = supports.task.workloads.masks
    passed = {mask: [each.passed for each in judged if each.workload.mask == mask] for mask in masks}
    wrong = [mask for mask, found in passed.items() if mask != "none" and found and not all(found)]
    right = [mask for mask, found in passed.items() if found and all(found)]
    if len(wrong) != 1 or not any(mask != "none" for mask in right):
        return ""
    numbers = [str(masks.index(mask)) for mask in right]
    line = f"`// weft: lever CAUSAL = {numbers[0]} in {', '.join(numbers)}`"
    return f"only {wrong[0]} (CAUSAL = {masks.index(wrong[0])}) is wrong: if the kernel lacks that mask, add {line}"
