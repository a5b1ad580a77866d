"""A long test suite: compiled kernels are dropped, those in use are compiled once, and dropped ones run again."""

import gc
import weakref
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import weft.triton
from weft.triton import device as devices
from weft.triton import launcher


@triton.jit
def add(x_ptr, AMOUNT: tl.constexpr):
    tl.store(x_ptr, tl.load(x_ptr) + AMOUNT)


def launch(amount: int) -> float:
    x = torch.zeros(1)
    add[(1,)](x, AMOUNT=amount)
    return x.item()


def test_compiled_kernels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MOST_PROGRAMS", 4)
    monkeypatch.setattr(launcher, "MOST_PROGRAMS", 4)
    with weft.triton.on("l4") as device:
        programs: dict[int, Any] = {}
        for amount in range(10):
            assert launch(amount) == amount
            programs[amount] = weakref.ref(next(reversed(device.gpu._programs.values())))
        gc.collect()
        alive = [amount for amount, program in programs.items() if program() is not None]
        assert alive == [6, 7, 8, 9]
        assert len(launcher._made) <= 4
        assert launch(0) == 0  # compiled again
        kept = programs[9]()
        assert launch(9) == 9
        assert kept is next(reversed(device.gpu._programs.values()))


def test_triton_s_source_is_not_kept_alive() -> None:
    def launched() -> "weakref.ref[Any]":
        made = triton.jit(add.fn)
        with weft.triton.on("l4"):
            made[(1,)](torch.zeros(1), AMOUNT=3)
        return weakref.ref(made)

    reference = launched()
    triton.jit(add.fn)  # Triton's own table has the last function of a name
    gc.collect()
    assert reference() is None
