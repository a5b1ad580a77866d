"""Three other judging policies, written from their descriptions, on plain runs: no checkers, only O.

- `kernelbench_like`: five random inputs of one shape, allclose with atol = rtol = 1e-2 against float64.
- `robust_kbench_like`: five random inputs of each of the task's shapes, every mask the kernel has, allclose 1e-3.
- `loose`: the gate of `weft.judge.loose`: inputs a tenth of a unit normal, largest absolute or relative error 5e-3.

Each stops at the first run that fails. A launch that never ends or traps fails; an access outside a buffer alone does
not, because on hardware it usually hits other memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.shapes import SHAPES
from weft.core.errors import WeftError
from weft.core.finding_codes import FINDING_CODES
from weft.engines.virtual import VirtualGPU
from weft.judge import loose
from weft.judge.candidate import Candidate
from weft.judge.select import Supports
from weft.tasks.task import Problem, Workload

SEEDS = range(100, 105)
ONE_SHAPE = "validation_128"
"""(1, 4, 128, 64): a longer one would be less strict, because errors of O shrink with the number of keys."""
MAX_STEPS = 1 << 24
"""Loop budget of a launch; a right kernel needs a hundredth of it here."""

Compare = Callable[[Array, Array], bool]
Case = tuple[Problem, Compare]


def _allclose(limit: float) -> Compare:
    return lambda o, gold: bool(np.allclose(o.astype(np.float64), gold, rtol=limit, atol=limit))


def _kernelbench(supports: Supports) -> Iterator[Case]:
    plain = Workload(SHAPES[ONE_SHAPE], supports.dtypes[0], supports.masks[0], "unit_normal", 0, supports.encodings[0])
    return ((supports.task.draw(replace(plain, seed=seed)), _allclose(1e-2)) for seed in SEEDS)


def _robust_kbench(supports: Supports) -> Iterator[Case]:
    shapes = [SHAPES[name] for name in supports.task.quick.shapes if supports.takes(SHAPES[name])]
    for seed in SEEDS:
        for mask in supports.masks:
            for shape in shapes:
                chosen = Workload(shape, supports.dtypes[0], mask, "unit_normal", seed, supports.encodings[0])
                yield supports.task.draw(chosen), _allclose(1e-3)


def _loose(supports: Supports) -> Iterator[Case]:
    for shape in loose.SHAPES:
        yield loose.small_inputs(supports.task, shape, supports.dtypes[0]), loose.passes


POLICIES: Mapping[str, Callable[[Supports], Iterator[Case]]] = {
    "kernelbench_like": _kernelbench,
    "robust_kbench_like": _robust_kbench,
    "loose": _loose,
}


def passes(policy: str, candidate: Candidate, supports: Supports) -> bool:
    """Return whether a kernel passes a policy."""
    return all(_right(candidate, supports, *case) for case in POLICIES[policy](supports))


def _right(candidate: Candidate, supports: Supports, problem: Problem, compare: Compare) -> bool:
    arrays = {name: array.copy() for name, array in problem.arrays.items()}
    try:
        kernel = candidate.load(problem)
        run, found = kernel.run(VirtualGPU(kernel.arch), arrays, max_steps=MAX_STEPS)
    except WeftError:
        return False
    if any(FINDING_CODES[finding.code].ends_launch for finding in run.findings):
        return False
    with np.errstate(all="ignore"):
        return compare(found["o"], supports.task.reference(problem)["o"])
