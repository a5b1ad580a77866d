"""The inputs of a second call on one device: all different from the first call's, or half of them the same."""

from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.tasks.task import Problem, Task

from .runs import Call, same_bits

OTHER_SEED = 1_000_003
"""Added to a workload's seed for the second call on its device."""


def other_inputs(task: Task, problem: Problem) -> Problem | None:
    """Return the workload with another seed, in a regime that depends on it; None if the task has no other inputs."""
    workload = replace(problem.workload, seed=problem.workload.seed + OTHER_SEED)
    for regime in dict.fromkeys((workload.regime, *task.quick.regimes[:1])):
        other = task.draw(replace(workload, regime=regime))
        if not same_bits(problem.arrays, other.arrays):
            return other
    return None


def half_shared(call: Call) -> Call:
    """Return the call with the second half of every input in reverse order: a fingerprint may be in the first half."""
    return replace(call, inputs={name: _half_reversed(array) for name, array in call.inputs.items()})


def _half_reversed(array: Array) -> Array:
    """Return the array with its second half reversed; integers that may be lengths or positions stay as they are."""
    if array.dtype.kind in "iu" and array.itemsize > 1:
        return array
    mixed = np.ascontiguousarray(array).copy()
    half = mixed.reshape(-1)[mixed.size // 2 :]
    half[:] = half[::-1].copy()
    return mixed
