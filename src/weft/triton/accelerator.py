"""Makes the C++ parts of a PyTorch without a GPU accept tensors of device cuda:0.

Two tables in PyTorch's libraries are asked whenever a tensor of a device type is used; both can be filled only in C++:

- the device guards, which return the current device and stream of a device type. The guard that PyTorch offers for
  backends written in Python (`torch._C._acc`) is entered for CUDA;
- the hooks of CUDA, which answer whether there is a GPU. Autograd asks them which streams to wait for. Two answers are
  replaced: there is a GPU, and no stream of it is in use.

The hooks are a C++ object without data. Its table of functions is replaced by a copy in which these two are others.
Their places are not assumed: each place is tested until PyTorch behaves as needed, otherwise CUDA tensors are refused.
"""

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from weft.core.errors import Unsupported
from weft.vm import jit

_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_CUDA, _PYTHON = 1, 20
"""Numbers in c10::DeviceType (CUDA, PrivateUse1), which are part of PyTorch's file format."""
_FUNCTIONS, _HEAD = 128, 2
"""Entries of a table of functions that are copied, and words in front of its first entry."""
_ANSWERS = """
define i64 @yes() { ret i64 1 }
define i64 @no() { ret i64 0 }
"""

_kept: list[Any] = []
"""What PyTorch's tables point to, until the process ends."""


@contextmanager
def accelerated() -> Iterator[None]:
    """Inside, PyTorch takes operators, autograd and streams of cuda:0."""
    prepare_guard()
    hooks, table = _replaced_hooks()
    before = hooks.value
    hooks.value = table
    try:
        yield
    finally:
        hooks.value = before


@functools.cache
def prepare_guard() -> None:
    """Enter a guard for CUDA where PyTorch has none."""
    torch._C._ensureCUDADeviceGuardSet()  # a build with CUDA has one for machines without a GPU
    guards = (ctypes.c_void_p * (_PYTHON + 1)).in_dll(_library("libc10.so"), _GUARDS)
    if guards[_CUDA]:
        return

    class Guard(torch._C._acc.DeviceGuard):  # type: ignore[misc]
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.CUDA

    _kept.append(Guard())
    before = guards[_PYTHON]
    torch._C._acc.register_python_privateuseone_device_guard(_kept[-1])
    guards[_CUDA], guards[_PYTHON] = guards[_PYTHON], before


@functools.cache
def _replaced_hooks() -> tuple[ctypes.c_void_p, int | None]:
    """Return the pointer to the functions of CUDA's hooks, and the address of their replacement."""
    address = _library("libtorch_cpu.so")[_HOOKS]
    address.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(address())
    original = hooks.value
    if torch._C._accelerator_getAccelerator() is not None:
        return hooks, original  # there is a GPU
    answers = jit.load(jit.compile_object(_ANSWERS, "the answers of CUDA's hooks"), ["yes", "no"], {}, "hooks")
    start = (original or 0) - ctypes.sizeof(ctypes.c_void_p) * _HEAD
    table = (ctypes.c_void_p * (_HEAD + _FUNCTIONS)).from_buffer_copy(
        ctypes.string_at(start, ctypes.sizeof(ctypes.c_void_p) * (_HEAD + _FUNCTIONS))
    )
    _kept.extend([table, answers])
    hooks.value = ctypes.addressof(table) + ctypes.sizeof(ctypes.c_void_p) * _HEAD
    try:
        for answer, works in (("yes", _sees_a_gpu), ("no", _runs_backward)):
            _replace(table, answers[answer], works)
        return hooks, hooks.value
    finally:
        hooks.value = original


def _replace(table: Any, answer: int, works: Callable[[], bool]) -> None:
    """Find the function that has to be replaced by `answer`: afterwards PyTorch works as needed."""
    for at in range(_HEAD + 2, len(table)):  # the first two are destructors
        before, table[at] = table[at], answer
        if before and works():
            return
        table[at] = before
    raise Unsupported(f"CUDA tensors without a GPU are not supported with PyTorch {torch.__version__}")


def _sees_a_gpu() -> bool:
    found = torch._C._accelerator_getAccelerator()
    return found is not None and torch.device(found).type == "cuda"


def _runs_backward() -> bool:
    from .cuda_memory import allocate

    leaf = allocate(torch.float32, (1,), (1,)).requires_grad_()
    try:
        with single_threaded():
            torch.autograd.grad(leaf.view(1), leaf, leaf.detach())
        return True
    except RuntimeError:
        return False


def single_threaded() -> Any:
    """Backward passes run in the thread that calls them: PyTorch has no threads for a device it was built without."""
    return torch.autograd.set_multithreading_enabled(False)


@functools.cache
def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name))
