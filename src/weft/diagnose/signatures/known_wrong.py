"""Outputs that are those of a wrong implementation which the task's gate is tested with.

For backward passes, windows, soft caps, sinks, packed and paged sequences: each names the stage it breaks. Where other
recognisers do not compute outputs, mistakes of plain attention are compared too.
"""

from collections.abc import Iterator

import numpy as np

from weft.attention.dtypes import Array
from weft.diagnose.records import Case, Signature
from weft.tasks.task import PLAIN, Declared, Mutant, Outputs

from .evidence import EXPLAINED, rank_of, remaining


def wrong_implementation(case: Case) -> Signature | None:
    """Compare the wrong outputs with those of wrong implementations; the nearest is named."""
    has_others = case.attention is not None or case.recipe is not None
    mutants = [mutant for mutant in case.task.mutants if mutant.stage or not has_others]
    names = [output.name for output in case.task.outputs if output.name in case.arrays]
    required = [output.name for output in case.task.outputs if not output.optional]
    if case.verdict.passed or not mutants or not set(required) <= set(names):
        return None
    right = {name: case.task.reference(case.problem)[name] for name in names}
    if any(case.arrays[name].shape != right[name].shape for name in names):
        return None
    outputs = {name: case.arrays[name] for name in names}
    wrong = [name for name in names if _is_wrong(case, outputs, right, name)]
    compared = [each for each in _compared(case, mutants, outputs, right, wrong) if each[0] <= EXPLAINED]
    if not compared:
        return None
    # Those of plain attention ignore what the task adds, so an error there may look like any of them.
    left, mutant = min(compared, key=lambda each: (not each[1].stage, each[0]))
    where = "" if len(wrong) == len(names) else f" in what becomes {' and '.join(wrong)}"
    cure = _cure(mutant.stage, where, coded=case.problem.workload.encoding != PLAIN)
    message = f"{mutant.what}{where}: the wrong outputs are those of this mistake (`{mutant.name}`)"
    return Signature(
        "wrong_implementation",
        message,
        cure,
        rank_of(left, seen=True),
        explained=1 - left,
        stage=mutant.stage,
    )


def _cure(stage: str, where: str, *, coded: bool) -> str:
    """Return what to correct; empty if the mistake has no stage."""
    if stage == "masked":
        return f"correct which keys each query sees{where}"
    if stage in ("k", "v"):
        return f"correct the index with which {stage} is read{' or how its codes are decoded' if coded else ''}{where}"
    return f"correct the computation of {stage}{where}" if stage else ""


def _is_wrong(case: Case, outputs: Outputs, right: Outputs, name: str) -> bool:
    """Whether the gates reject an output if all others are right."""
    rest = {key: value.astype(outputs[key].dtype) for key, value in right.items()}
    return not case.task.judge(case.problem, {**rest, name: outputs[name]}, Declared()).passed


def _compared(
    case: Case, mutants: list[Mutant], outputs: Outputs, right: Outputs, wrong: list[str]
) -> Iterator[tuple[float, Mutant]]:
    """Yield the share of the error that each mutant leaves in the wrong outputs; only numbers are compared, and both
    must have them at the same places.
    """
    for mutant in mutants if wrong else ():
        with np.errstate(all="ignore"):
            given = mutant.run(case.problem)
        sizes = {name: np.abs(right[name][np.isfinite(right[name])]).max(initial=0.0) or 1.0 for name in wrong}
        actual, like, exact = (
            np.concatenate([(x[name].astype(np.float64) / sizes[name]).ravel() for name in wrong])
            for x in (outputs, given, right)
        )
        numbers = np.isfinite(actual)
        if np.array_equal(numbers, np.isfinite(like)):
            yield remaining(*(_finite(x[numbers]) for x in (actual, like, exact))), mutant


def _finite(x: Array) -> Array:
    """Return x with 0 for infinities: LSE of a row without visible keys, where the kernel has a number."""
    return np.where(np.isfinite(x), x, 0.0)
