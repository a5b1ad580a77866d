"""torch.compile for cuda:0 of the virtual GPU: inductor's Triton kernels are launched on it.

Inductor keeps references to functions of torch.cuda, calls some of the C++ functions under them, and chooses by timing.
They are replaced when torch.compile is first called, because importing inductor takes seconds. Kernels are compiled in
this process, and what would be timed is estimated.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from .cuda_memory import allocate
from .stand_ins import patched

_INTERFACE, _TRITON = "torch._dynamo.device_interface", "torch.utils._triton"
_CONFIG, _BENCHMARKING = "torch._inductor.config", "torch._inductor.runtime.benchmarking"
_SETTINGS: Mapping[str, Any] = {
    "deterministic": True,
    "compile_threads": 1,
    "use_static_cuda_launcher": False,
    "triton.autotune_pointwise": False,
}

Estimate = Callable[[Callable[[], object]], Any]
"""Runs work and returns its milliseconds."""


@contextmanager
def inductor(estimate: Estimate) -> Iterator[None]:
    """Inside, code that torch.compile makes for cuda:0 runs on the virtual GPU; torch.cuda must describe it already."""
    with ExitStack() as stack:
        stack.enter_context(patched(torch._C._dynamo.guards, {"_empty_strided_cuda": _empty_strided}))
        original, ready = torch.compile, _CONFIG in sys.modules
        if ready:
            _prepare(stack, estimate)

        def compile_(*args: Any, **kwargs: Any) -> Any:
            nonlocal ready
            if not ready:
                ready = True
                _prepare(stack, estimate)
            return original(*args, **kwargs)

        stack.enter_context(patched(torch, {"compile": compile_}))
        yield


def _prepare(stack: ExitStack, estimate: Estimate) -> None:
    modules = [importlib.import_module(name) for name in (_CONFIG, _BENCHMARKING, _INTERFACE)]
    config, benchmarking, interface = modules
    stack.enter_context(config.patch(_SETTINGS))
    for name in ("TritonBenchmarker", "InductorBenchmarker"):
        benchmarker = getattr(benchmarking, name)
        stack.enter_context(patched(benchmarker, {"benchmark_gpu": lambda _, work, *args, **kwargs: estimate(work)}))
    stack.enter_context(patched(interface, {"caching_worker_device_properties": {}}))
    stack.enter_context(patched(interface.CudaInterface, _current(interface.CudaInterface)))
    _forget_answers()
    stack.callback(_forget_answers)


def _forget_answers() -> None:
    """Empty the caches of has_triton() and similar functions: they keep the answer for the device before."""
    for function in vars(importlib.import_module(_TRITON)).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _current(interface: Any) -> dict[str, Any]:
    """Return name in inductor's interface of the device → what torch.cuda has under it now."""
    found: dict[str, Any] = {name: getattr(torch.cuda, name) for name in ("device", "Event", "Stream")}
    for name, before in vars(interface).items():
        now = getattr(torch.cuda, name, getattr(torch.cuda, f"_{name}", None))
        if isinstance(before, staticmethod) and getattr(before.__func__, "__module__", "") != _INTERFACE and now:
            found[name] = staticmethod(now)
    return found | {"get_raw_stream": staticmethod(torch._C._cuda_getCurrentRawStream)}


def _empty_strided(size: Any, stride: Any, dtype: Any) -> Any:
    return allocate(dtype, size, stride)
