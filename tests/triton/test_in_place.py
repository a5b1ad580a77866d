"""In-place updates: threads that load a value without using it do not race, threads that use it do.

The last element of a 16-bit tensor of odd length is updated atomically through the aligned word.
"""

from typing import Any

import pytest
import torch

import weft.triton
from tests.triton import in_place_kernels as kernels

SIZES = {"increment": 128, "scale": 32, "normalise": 32, "cross_entropy": 32, "divergence": 32}
SIZES |= {"follow": 128, "branch": 128}
"""Kernel → its block; the CTA has 128 threads, so scalars and small tensors are held several times."""
EXPECTED = {"scale": (2, 1), "normalise": (1 / 32, 1 / 32), "cross_entropy": (1 / 32, 1 / 32), "divergence": (1, 1)}
"""Kernel → first and last element of 32 ones afterwards, if not 2 and 1."""


def run(name: str, *, wrong: bool) -> torch.Tensor:
    x = torch.ones(32)
    kernel: Any = getattr(kernels, name)
    kernel[(1,)](x, torch.zeros(128), BLOCK=SIZES[name], WRONG=wrong, num_warps=4)
    return x


@pytest.mark.parametrize("name", SIZES)
def test_a_loaded_value_that_has_no_effect_is_no_race(name: str, recwarn: pytest.WarningsRecorder) -> None:
    with weft.triton.on("l4", check=True):
        x = run(name, wrong=False)
    first, last = EXPECTED.get(name, (2, 1))
    assert (x[0].item(), x[-1].item()) == pytest.approx((first, last), rel=1e-5)
    assert not [str(each.message) for each in recwarn if "R10" in str(each.message)]


@pytest.mark.parametrize("name", SIZES)
def test_a_loaded_value_that_is_used_races(name: str) -> None:
    with weft.triton.on("l4", check=True), pytest.raises(weft.triton.KernelFindings, match=r"R10[123]"):
        run(name, wrong=True)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 5, 63])
def test_an_atomic_add_reaches_the_last_element_of_odd_tensors(kind: torch.dtype, length: int) -> None:
    x = torch.full((length,), 2.0, dtype=kind)
    with weft.triton.on("l4", check=True):
        kernels.add_atomically[(2,)](x, length, BLOCK=32)
    assert x.tolist() == [3.0] * length


def test_an_atomic_add_behind_the_end_is_found() -> None:
    x = torch.zeros(5, dtype=torch.bfloat16)
    with weft.triton.on("l4"), pytest.raises(weft.triton.KernelFindings, match="M101"):
        kernels.add_atomically[(1,)](x, 7, BLOCK=32)


def test_a_plain_access_of_the_last_word_s_other_half_is_found() -> None:
    x = torch.zeros(5, dtype=torch.bfloat16)
    with weft.triton.on("l4"), pytest.raises(weft.triton.KernelFindings, match="M101"):
        kernels.add_plainly[(1,)](x, 6, BLOCK=32)
