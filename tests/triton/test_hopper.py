"""Triton's kernels, compiled for sm_90a and sm_120a, unmodified on CPU tensors, equal PyTorch with every checker on.

On sm_90 the products of four warps are `wgmma`; on sm_120 Triton writes `f32x2` arithmetic and maxima of three values.
"""

import pytest

import weft.triton
from tests.in_turn import one_in
from tests.triton.workloads import WORKLOADS, Workload

NAMES = ("softmax", "layer_norm", "matmul", "matmul_strided", "attention", "attention_causal", "attention_fp8")
CASES = [
    (gpu, workload, dtype)
    for dtype_of in range(3)
    for gpu in ("h100", "rtx5090")
    for workload in WORKLOADS
    if workload.name in NAMES
    for dtype in workload.types[dtype_of : dtype_of + 1]
]


@pytest.mark.parametrize(("gpu", "workload", "dtype"), one_in(3, CASES, several=True))
def test_equals_pytorch(gpu: str, workload: Workload, dtype: str) -> None:
    with weft.triton.on(gpu, check=True):
        case = workload.make(dtype, 1)
        assert workload.wrong(case, case.run(), dtype) == ""
