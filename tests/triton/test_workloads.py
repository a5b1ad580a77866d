"""Workloads of Triton's tutorials and of inference, unmodified on CPU tensors, equal PyTorch, with every checker on."""

from collections.abc import Iterator

import pytest

import weft.triton
from tests.triton.workloads import WORKLOADS, Workload


@pytest.fixture(scope="module", autouse=True)
def _device() -> Iterator[None]:
    with weft.triton.on("l4", check=True):
        yield


@pytest.mark.parametrize(
    ("workload", "dtype"),
    [pytest.param(each, dtype, id=f"{each.name}-{dtype}") for each in WORKLOADS for dtype in each.types],
)
def test_equals_pytorch(workload: Workload, dtype: str) -> None:
    case = workload.make(dtype, 1)
    assert workload.wrong(case, case.run(), dtype) == ""
