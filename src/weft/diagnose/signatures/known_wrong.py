"""Outputs that are those of a wrong implementation which the task's gate is tested with.

For the backward pass: each wrong implementation names the stage it breaks.
"""

from collections.abc import Iterator

import numpy as np

from weft.attention.dtypes import Array
from weft.diagnose.records import Case, Signature
from weft.tasks.task import Declared, Mutant, Outputs

from .evidence import EXPLAINED, rank_of, remaining


def wrong_implementation(case: Case) -> Signature | None:
    """Compare the wrong outputs with those of each wrong implementation that has a stage; the nearest is named."""
    mutants = [mutant for mutant in case.task.mutants if mutant.stage]
    names = [output.name for output in case.task.outputs if output.name in case.arrays]
    if case.verdict.passed or not mutants or len(names) < len(case.task.outputs):
        return None
    right = case.task.reference(case.problem)
    if any(case.arrays[name].shape != right[name].shape for name in names):
        return None
    outputs = {name: case.arrays[name] for name in names}
    wrong = [name for name in names if _is_wrong(case, outputs, right, name)]
    found = min(_compared(case, mutants, outputs, right, wrong), key=lambda each: each[0], default=None)
    if found is None or found[0] > EXPLAINED:
        return None
    left, mutant = found
    where = "" if len(wrong) == len(names) else f" in what becomes {' and '.join(wrong)}"
    message = f"{mutant.what}{where}: the wrong outputs are those of this mistake (`{mutant.name}`)"
    cure = f"correct the computation of {mutant.stage}{where}"
    return Signature(
        "wrong_implementation", message, cure, rank_of(left, seen=True), explained=1 - left, stage=mutant.stage
    )


def _is_wrong(case: Case, outputs: Outputs, right: Outputs, name: str) -> bool:
    """Whether the gates reject an output if all others are right."""
    rest = {key: value.astype(outputs[key].dtype) for key, value in right.items()}
    return not case.task.judge(case.problem, {**rest, name: outputs[name]}, Declared()).passed


def _compared(
    case: Case, mutants: list[Mutant], outputs: Outputs, right: Outputs, wrong: list[str]
) -> Iterator[tuple[float, Mutant]]:
    """Yield the share of the error that each mutant leaves in the wrong outputs; NaN must be at the same places."""
    for mutant in mutants if wrong else ():
        with np.errstate(all="ignore"):
            given = mutant.run(case.problem)
        sizes = {name: np.abs(right[name]).max() or 1.0 for name in wrong}
        actual, like, exact = (
            np.concatenate([(x[name].astype(np.float64) / sizes[name]).ravel() for name in wrong])
            for x in (outputs, given, right)
        )
        if np.array_equal(np.isnan(actual), np.isnan(like)):
            yield remaining(*(_numbers(x, np.isnan(actual)) for x in (actual, like, exact))), mutant


def _numbers(x: Array, nan: Array) -> Array:
    """Return x with 1 where both have NaN, which no right value is near to."""
    return np.where(nan, 1.0, x)
