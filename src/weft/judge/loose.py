"""A loose gate that was used in practice, kept to show which wrong kernels it accepts.

Inputs `randn * 0.1`, no mask, one seed; passed if the largest absolute OR the largest relative error of O is at most
5e-3. Its shapes are scaled down, which only makes it stricter: errors of O shrink with the number of keys. It
cannot reject what it never tests: masks, LSE, ragged lengths, GQA, other seeds.
"""

from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.shapes import Shape, square
from weft.core.errors import UsageError
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Outputs, Problem, Task, Workload

from .certify import Certificate, Progress, hold

LIMIT = 5e-3
SHAPES = (
    square("loose_64", 1, 2, 64, 64),
    square("loose_128", 1, 2, 128, 64),
    square("loose_128_b2", 2, 1, 128, 64),
    square("loose_128_d128", 1, 1, 128, 128),
    square("loose_256", 1, 1, 256, 64),
)


def certify_loose(task: Task, dtype: str = "", *, progress: Progress | None = None) -> Certificate:
    """Judge the implementations of an attention task by the loose gate."""
    chosen = dtype or task.certified_on[0].dtype
    problems = [small_inputs(task, shape, chosen) for shape in SHAPES]

    def gate(problem: Problem, outputs: Outputs) -> str:
        return "" if passes(outputs["o"], task.reference(problem)["o"]) else "loose"

    return hold(task, chosen, problems, gate, progress=progress)


def passes(o: Array, gold: Array) -> bool:
    """Whether the loose gate accepts O."""
    error = np.abs(o.astype(np.float64) - gold)
    return bool(error.max() <= LIMIT or (error / np.abs(gold)).max() <= LIMIT)


def small_inputs(task: Task, shape: Shape, dtype: str) -> AttentionProblem:
    """Return inputs of 0.1 times a unit normal, as numbers and scales, not as codes."""
    problem = task.draw(Workload(shape, dtype, "none", "unit_normal", 0, task.workloads.encodings[0]))
    if not isinstance(problem, AttentionProblem) or task.outputs[0].name != "o":
        raise UsageError(f"the loose gate judges attention; task {task.name} is not attention")
    if problem.contract.layout != "dense":
        raise UsageError(f"the loose gate judges dense arrays; those of task {task.name} are {problem.contract.layout}")
    factor = np.float32(0.1)
    arrays = {
        name: x if x.dtype == np.uint8 else (x.astype(np.float32) * factor).astype(x.dtype)
        for name, x in problem.arrays.items()
    }
    if problem.scales is None:
        return replace(problem, arrays=arrays, q=arrays["q"], k=arrays["k"], v=arrays["v"])
    q, k, v = (problem.quantiser.decode(arrays[f"{x}_code"], arrays[f"{x}_scale"]) for x in "qkv")
    of_q, of_k, of_v = (arrays[f"{x}_scale"] for x in "qkv")
    return replace(problem, arrays=arrays, q=q, k=k, v=v, scales=(of_q, of_k, of_v))
