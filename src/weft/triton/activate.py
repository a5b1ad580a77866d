"""Makes Triton compile for and launch on the virtual GPU."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.testing
from triton.backends import backends
from triton.runtime import driver as configured

from weft.core import knobs
from weft.core.errors import UsageError
from weft.toolchain.triton_key import key_by_times

from .cuda_device import CPU, CUDA, cuda_device
from .device import Device, active, pop, push
from .driver import VirtualDriver
from .estimates import Bench
from .fresh import Fresh, Watching
from .stand_ins import answers, patched
from .tensors import host_address
from .tuned import Tuned
from .tuning import Tuner, listening

_BINDER = "dynamic_func"
"""Triton's function that reads the address of every tensor, for its alignment."""
_held: list[ExitStack] = []


def activate(
    gpu: str = "l4",
    *,
    check: bool = False,
    tools: Sequence[str] = (),
    cuda: bool = False,
    mode: str = "hardware",
    threads: int | None = None,
) -> Device:
    """Run `kernel[grid](…)` on CPU tensors on a virtual GPU from now on; see `on` for the options."""
    stack = ExitStack()
    device = stack.enter_context(on(gpu, check=check, tools=tools, cuda=cuda, mode=mode, threads=threads))
    _held.append(stack)
    return device


def deactivate() -> None:
    """Undo the last `activate`."""
    if not _held:
        raise UsageError("no virtual GPU is active: call weft.triton.activate() first")
    _held.pop().close()


@contextmanager
def on(
    gpu: str = "l4",
    *,
    check: bool = False,
    tools: Sequence[str] = (),
    cuda: bool = False,
    mode: str = "hardware",
    threads: int | None = None,
) -> Iterator[Device]:
    """Inside, Triton compiles for `gpu` (a chip of the model: a100, rtx3090, l4 …) and launches on the virtual GPU.

    Out-of-bounds accesses, failed assertions and deadlocks always raise KernelFindings with the source line.
    `check=True` adds all checkers, `tools` chosen ones: initcheck, racecheck. With `cuda=True` PyTorch has the
    device cuda:0, in this machine's memory, and kernels take only its tensors, as on a GPU. `mode` and `threads` are
    those of VirtualGPU.
    """
    device = Device(gpu, tools=("all",) if check else tools, mode=mode, threads=threads)
    tuner, bench = Tuner(device), Bench(device)
    asked_of_cuda = answers(device)
    driver = VirtualDriver(device, SimpleNamespace(**asked_of_cuda), CUDA if cuda else CPU, tuner)
    with ExitStack() as stack:
        stack.enter_context(_own_cache())
        stack.enter_context(listening(tuner))
        stack.enter_context(patched(triton.testing, {"do_bench": bench, "do_bench_cudagraph": bench}))
        stack.enter_context(patched(torch.Tensor, {"data_ptr": _noting(device)}))
        if device.watch.keeps_written:
            device.fresh = Fresh()
            stack.enter_context(patched(torch.Tensor, _escapes(device.fresh)))
            stack.enter_context(Watching(device.fresh))
        if cuda:
            device.takes_host_tensors = False
            stack.enter_context(cuda_device(asked_of_cuda, bench))
        stack.enter_context(_backend(driver))
        before = configured._active
        push(device)
        configured.set_active(driver)
        try:
            yield device
        finally:
            configured._active = before
            pop(device)


def tunings() -> list[Tuned]:
    """Return what autotuners chose on the active device, oldest first."""
    return list(active().tuned)


@contextmanager
def _backend(driver: VirtualDriver) -> Iterator[None]:
    """Make Triton's backend for CUDA return this driver: inductor activates the driver of the backend again."""
    before = backends["nvidia"]
    found = type("VirtualDriverOfBackend", (), {"is_active": staticmethod(lambda: True), "__new__": lambda _: driver})
    backends["nvidia"] = replace(before, driver=found)
    try:
        yield
    finally:
        backends["nvidia"] = before


@contextmanager
def _own_cache() -> Iterator[None]:
    """Set Triton's cache folder to Weft's: estimates must not be reused as timings."""
    with triton.knobs.cache.scope(), key_by_times(triton):
        triton.knobs.cache.dir = str(knobs.cache_dir() / "triton_jit")
        yield


def _noting(device: Device) -> Any:
    def data_ptr(tensor: Any) -> int:
        """Return the address as before, and record it: a kernel may find the tensor by it."""
        with torch._C.DisableTorchFunction():
            if sys._getframe(1).f_code.co_name != _BINDER:
                device.known.note(tensor)
            return host_address(tensor)

    return data_ptr


def _escapes(fresh: Fresh) -> dict[str, Any]:
    """Return replacements of the methods through which a tensor may be written without PyTorch."""

    def noting(name: str) -> Any:
        original = getattr(torch.Tensor, name)

        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            fresh.forget(tensor)
            return original(tensor, *args, **kwargs)

        return method

    return {name: noting(name) for name in ("numpy", "__array__", "__dlpack__")}
