"""Workloads of Triton's tutorials and of inference, unmodified on CPU tensors, equal PyTorch, with every checker on."""

from collections.abc import Iterator
from typing import Any

import pytest

import weft.triton
from tests.triton.workloads import WORKLOADS, Workload


@pytest.fixture(scope="module", autouse=True)
def _device() -> Iterator[None]:
    with weft.triton.on("l4", check=True):
        yield


def cases() -> Iterator[Any]:
    """Yield every workload with every type; one of its types runs always, the others in `scripts/test -m sweep`."""
    for number, workload in enumerate(WORKLOADS):
        often = workload.types[number % len(workload.types)]
        for dtype in workload.types:
            marks = [pytest.mark.sweep] * (dtype != often)
            yield pytest.param(workload, dtype, id=f"{workload.name}-{dtype}", marks=marks)


@pytest.mark.parametrize(("workload", "dtype"), cases())
def test_equals_pytorch(workload: Workload, dtype: str) -> None:
    case = workload.make(dtype, 1)
    assert workload.wrong(case, case.run(), dtype) == ""
