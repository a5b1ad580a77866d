"""A problem with the caller's arrays instead of random ones."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.attention.contract import CODED, DENSE
from weft.attention.dtypes import Array
from weft.attention.quantise import QUANTISERS
from weft.attention.reference import shape_of
from weft.core.errors import UsageError
from weft.judge.select import Supports
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import PLAIN, Workload

GIVEN = "given"
"""The shape's name and the regime of such a workload."""


def given_task(
    supports: Supports, arrays: Mapping[str, Array], *, mask: str = "", dtype: str = "", encoding: str = ""
) -> tuple[Supports, Workload]:
    """Return the task with these inputs, and their workload.

    Codes are given with q, k and v before quantisation, so that the quantiser is judged too.
    """
    task = supports.task
    coded = supports.encodings != (PLAIN,)
    if task.inputs not in (DENSE.inputs, CODED.inputs) or task.macros:
        raise UsageError(
            f"--input is for attention on {', '.join(DENSE.inputs)} or on {', '.join(CODED.inputs)}, not for task "
            f"{task.name}: leave it out, and name a workload (--shape, --regime, --seed)"
        )
    names = tuple(dict.fromkeys((*task.inputs, "q", "k", "v"))) if coded else task.inputs
    if set(arrays) != set(names):
        raise UsageError(f"--input contains {', '.join(arrays)}; {task.name} needs all of {', '.join(names)}")
    shape = replace(shape_of(arrays["q"], arrays["k"], arrays["v"]), name=GIVEN)
    chosen = encoding or supports.encodings[0]
    workload = Workload(shape, dtype or supports.dtypes[0], mask or supports.masks[0], GIVEN, 0, chosen)

    def draw(workload: Workload) -> AttentionProblem:
        inputs = {name: np.ascontiguousarray(arrays[name]) for name in task.inputs}
        q, k, v = (arrays[name] for name in ("q", "k", "v"))
        if not coded:
            return AttentionProblem(workload, inputs, q, k, v)
        quantiser = QUANTISERS[chosen]
        meant = [quantiser.decode(arrays[f"{name}_code"], arrays[f"{name}_scale"]) for name in "qkv"]
        q32, k32, v32 = (x.astype(np.float32) for x in meant)
        scales = (arrays["q_scale"], arrays["k_scale"], arrays["v_scale"])
        return AttentionProblem(workload, inputs, q32, k32, v32, (q, k, v), scales)

    return replace(supports, task=replace(task, draw=draw)), workload
