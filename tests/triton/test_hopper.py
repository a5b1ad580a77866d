"""Triton's kernels, compiled for sm_90a and sm_120a, unmodified on CPU tensors, equal PyTorch with every checker on.

On sm_90 the products of four warps are `wgmma`; on sm_120 Triton writes `f32x2` arithmetic and maxima of three values.
Tensor descriptors are TMA copies on both. `benchmarks/hopper_survey.py` runs all of them.
"""

import pytest
import torch

import weft.triton
from tests.in_turn import one_in
from tests.triton.cluster_kernels import total
from tests.triton.descriptor_workloads import DESCRIPTORS
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


TMA = [
    ("h100", "attention_specialised"),
    ("h100", "attention_host_causal"),
    ("rtx5090", "attention_device"),
    ("h100", "matmul_host"),
    ("h100", "matmul_persistent"),
    ("rtx5090", "gather"),
    ("h100", "reduce"),
    ("rtx5090", "boxes"),
]


@pytest.mark.parametrize(("gpu", "name"), one_in(2, TMA, several=True))
def test_descriptors_equal_pytorch(gpu: str, name: str) -> None:
    workload = next(each for each in DESCRIPTORS if each.name == name)
    with weft.triton.on(gpu, check=True):
        case = workload.make(workload.types[-1], 1)
        assert workload.wrong(case, case.run(), workload.types[-1]) == ""


def test_a_program_on_several_ctas() -> None:
    """`num_ctas`: the CTAs of a cluster execute a program together, and exchange values in shared memory."""
    with weft.triton.on("h100", check=True):
        x, y = torch.arange(1024, dtype=torch.float32), torch.zeros(1)
        total[(1,)](x, y, 1024, num_ctas=2)
    assert y.item() == x.sum().item()
