"""`fp8_sdpa`: the gate on the total error accepts errors that are rare and large."""

import numpy as np
import pytest

from weft.attention.dtypes import numpy_dtype
from weft.attention.gates import quantised_gate
from weft.attention.shapes import SHAPES
from weft.tasks.fp8_sdpa import FP8_SDPA
from weft.tasks.task import Declared, Workload

RARE = [
    Workload(SHAPES["decode_draft"], "f16", "top_left", "logits_32", 1, "e4m3"),
    Workload(SHAPES["decode_draft"], "bf16", "bottom_right", "logits_32", 2, "sim_fp8"),
    Workload(SHAPES["decode_draft"], "bf16", "none", "outlier_channels", 1, "sim_fp8"),
]
"""Five queries per head; one of them, in one head, depends on two keys whose scores are nearly the same."""


@pytest.mark.parametrize("workload", RARE, ids=str)
def test_a_row_that_depends_on_two_keys_passes(workload: Workload) -> None:
    problem = FP8_SDPA.draw(workload)
    exact = FP8_SDPA.reference(problem)
    out = {"o": exact["o"].astype(numpy_dtype(workload.dtype)), "lse": exact["lse"].astype(np.float32)}
    assert not quantised_gate(out["o"], problem.exact.o, problem.noise, exact["o"], exact["o"], workload.dtype).passed
    judged = FP8_SDPA.judge(problem, out, Declared("fp8_scalar"))
    assert judged.passed, "\n".join(map(str, judged.gates))
