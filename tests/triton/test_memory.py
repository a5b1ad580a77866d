"""A long test suite: compiled kernels are dropped, those in use are compiled once, and dropped ones run again."""

import gc
import tracemalloc
import weakref
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import weft.triton
from weft.triton import device as devices
from weft.triton import fresh, launcher
from weft.vm.runtime import library


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


def test_triton_s_caches_are_those_of_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_numbers", {})
    kernel = triton.jit(add.fn)
    compiled: dict[str, Any] = {}
    for chip, number in (("l4", 0), ("a100", 1), ("l4", 0)):
        with weft.triton.on(chip, cuda=True):
            kernel[(1,)](torch.zeros(1, device="cuda"), AMOUNT=3)
            if number == 0:
                assert torch.cuda.current_device() == number
            (found,) = kernel.device_caches[number][0].values()
            assert found.metadata.target.arch == {"l4": 89, "a100": 80}[chip]
            assert compiled.setdefault(chip, found) is found, "compiled once"
    monkeypatch.setattr(devices, "_HAS_GPU", True)
    monkeypatch.setattr(devices, "_numbers", {})
    with weft.triton.on("l4") as device:
        assert device.number >= 1000, "a real GPU has number 0"


def flag_bytes(device: Any) -> int:
    return sum(len(flags) for _, flags in device.fresh._flags.values())


def test_flags_of_freed_and_written_tensors_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "_FEW_BYTES", 1 << 16)
    size = 1 << 14
    with weft.triton.on("l4", tools=("initcheck",), cuda=True) as device:
        held = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(3)]
        for _ in range(50):
            torch.empty(size + 512 * len(held), dtype=torch.uint8, device="cuda")
            held.append(torch.empty(1, dtype=torch.uint8, device="cuda"))  # so that addresses differ
        assert flag_bytes(device) < 3 * size + 2 * (1 << 16) + 50 * 512 * 2
        assert all(each.data_ptr() in device.fresh._flags for each in held), "those in use are known"
        add[(1,)](torch.zeros(4, device="cuda"), AMOUNT=1)
        whole = torch.empty(1, device="cuda")
        with pytest.raises(weft.triton.KernelFindings, match="I202"):
            add[(1,)](whole, AMOUNT=1)
        assert whole.data_ptr() not in device.fresh._flags, "the kernel has written all of it"
        add[(1,)](whole, AMOUNT=1)
        part = torch.empty(2, device="cuda")
        with pytest.raises(weft.triton.KernelFindings, match="I202"):
            add[(1,)](part, AMOUNT=1)
        assert part.data_ptr() in device.fresh._flags
        with pytest.raises(weft.triton.KernelFindings, match="I202"):
            add[(1,)](part[1:], AMOUNT=1)


def test_a_hook_hears_of_the_end_of_a_kernel() -> None:
    ended: list[str] = []

    def hook(module: Any, function: Any, name: str, group: Any, hash: str) -> None:
        ended.append(name)

    def loaded() -> Any:
        compiled = triton.jit(add.fn).warmup(torch.zeros(1), AMOUNT=3, grid=(1,))
        compiled._init_handles()
        return compiled

    with weft.triton.on("l4"):
        unheard = loaded()
        triton.knobs.runtime.kernel_unload_hook.add(hook)
        try:
            heard = loaded()
            unheard.__del__(), heard.__del__(), heard.__del__()
        finally:
            triton.knobs.runtime.kernel_unload_hook.remove(hook)
    assert ended == ["add"]


@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, 2 * tl.load(x_ptr + i))


def test_racecheck_keeps_no_memory_of_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_libraries", {})  # watchers that a process uses for the first time
    with weft.triton.on("l4", tools=("racecheck",)):
        x = torch.ones(1 << 20)
        tracemalloc.start()
        try:
            double[(1 << 10,)](x, BLOCK=1 << 10)
            gc.collect()
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert x.eq(2).all()
    assert peak > 12 * x.nbytes, "every byte was watched with three words"
    assert kept < x.nbytes
