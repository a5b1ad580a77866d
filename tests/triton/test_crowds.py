"""Thousands of programs at one address: racecheck takes seconds, not minutes, and still finds what differs."""

import time
from typing import Any

import pytest
import torch

import weft.triton
from tests.triton import crowd_kernels as kernels
from weft.probes import crowds

PROGRAMS = 2048


def seconds_of(kernel: Any, programs: int, *args: Any, **constants: Any) -> float:
    start = time.process_time()
    kernel[(programs,)](*args, **constants)
    return time.process_time() - start


def test_all_programs_store_the_same_value() -> None:
    x = torch.zeros(2, dtype=torch.int32)
    with weft.triton.on("l4", tools=("racecheck",)):
        seconds_of(kernels.all_store, 16, x, SAME=True)
        few, many = (seconds_of(kernels.all_store, count, x, SAME=True) for count in (PROGRAMS, 4 * PROGRAMS))
    assert x.tolist() == [4 * PROGRAMS, 1]
    assert many < 8 * few + 2  # 16 times the pairs
    assert many < 30


def test_one_of_thousands_stores_another_value() -> None:
    x = torch.zeros(2, dtype=torch.int32)
    with (
        weft.triton.on("l4", tools=("racecheck",)),
        pytest.raises(weft.triton.KernelFindings, match="R101") as caught,
    ):
        seconds_of(kernels.all_store, PROGRAMS, x, SAME=False)
    assert [finding.code for finding in caught.value.findings] == ["R101"]


def test_a_lock_that_many_take_is_no_race(recwarn: pytest.WarningsRecorder) -> None:
    x, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with weft.triton.on("l4", tools=("racecheck",)):
        assert seconds_of(kernels.take_a_lock, 512, x, count, FORGETS=-1) < 30
    assert count.item() == 512
    assert not [each for each in recwarn if "R10" in str(each.message)]


def test_one_of_many_forgets_the_lock() -> None:
    x, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with weft.triton.on("l4", tools=("racecheck",)), pytest.raises(weft.triton.KernelFindings, match=r"R10[123]"):
        seconds_of(kernels.take_a_lock, 512, x, count, FORGETS=401)


def test_the_vector_clocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "MOST_CLOCKS", 1 << 16)
    x, count = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with weft.triton.on("l4", tools=("racecheck",)):
        kernels.take_a_lock[(512,)](x, count, FORGETS=-1)  # the rest of the log is a note
        with pytest.raises(weft.triton.KernelFindings, match=r"R10[123]"):
            kernels.take_a_lock[(512,)](x, count, FORGETS=7)
