"""Returns CPU tensors for requests of CUDA tensors.

While the mode is on, a tensor reports cuda:0 as its device unless it is known as a host tensor: created without a CUDA
device, by `.cpu()`, or computed only from host tensors. All tensors are in CPU memory. The mode applies to one thread.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device
from torch.utils._pytree import tree_leaves

from .stand_ins import patched

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_HOST = "_weft_host"
_TENSOR = torch.Tensor


def _wants_cuda(device: Any) -> bool:
    """Whether a device argument of PyTorch means CUDA; a plain number is a CUDA device."""
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    return (isinstance(device, int) and not isinstance(device, bool)) or getattr(device, "type", "") == "cuda"


def _is_device(value: Any) -> bool:
    names = ("cpu", "cuda")
    return isinstance(value, torch.device) or (isinstance(value, str) and value.partition(":")[0] in names)


class CudaRequests(TorchFunctionMode):  # type: ignore[misc]
    """Rewrites device arguments of PyTorch calls, and answers `.device` and `.is_cuda`."""

    def __init__(self) -> None:
        super().__init__()
        self.default_cuda = 0
        """Whether torch.set_default_device was set to CUDA."""
        self._getters: dict[Any, Callable[..., Any]] = {
            _TENSOR.device.__get__: self._device,
            _TENSOR.is_cuda.__get__: self._is_cuda,
        }
        self._methods: dict[Any, Callable[..., Any]] = {
            _TENSOR.cuda: self._cuda,
            _TENSOR.cpu: self._cpu,
            _TENSOR.to: self._to,
            _TENSOR.pin_memory: self._same,
            _TENSOR.is_pinned: lambda *_: False,
            _TENSOR.get_device: self._index,
            _TENSOR.record_stream: lambda *_: None,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        special = self._getters.get(func) if args else None
        if special is None and getattr(func, "__name__", "") != "__get__":
            special = self._methods.get(func)
        if special is not None:
            return special(*args, **kwargs)
        asked = kwargs.get("device")
        if asked is not None and _wants_cuda(asked):
            kwargs["device"] = CPU
        result = func(*args, **kwargs)
        self._mark(result, args, kwargs, asked)
        return result

    def _mark(self, result: Any, args: Any, kwargs: Any, asked: Any) -> None:
        """Record whether the result is a host tensor."""
        if not isinstance(result, torch.Tensor | tuple | list):
            return
        if asked is not None:
            host = not _wants_cuda(asked)
        else:
            inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
            host = all(_HOST in each.__dict__ for each in inputs) if inputs else not self.default_cuda
        if host:
            for each in (result,) if isinstance(result, torch.Tensor) else result:
                if isinstance(each, torch.Tensor):
                    each.__dict__[_HOST] = True

    def _device(self, tensor: Any, *_: Any) -> Any:
        real = tensor.device
        return CUDA if real.type == "cpu" and _HOST not in tensor.__dict__ else real

    def _is_cuda(self, tensor: Any, *_: Any) -> bool:
        return bool(self._device(tensor).type == "cuda")

    def _index(self, tensor: Any) -> int:
        return 0 if self._is_cuda(tensor) else -1

    def _same(self, tensor: Any, *_: Any) -> Any:
        return tensor

    def _cuda(self, tensor: Any, *_: Any, **__: Any) -> Any:
        """Return a copy of a host tensor, or the tensor itself otherwise."""
        return tensor.clone() if _HOST in tensor.__dict__ else tensor

    def _cpu(self, tensor: Any, *_: Any, **__: Any) -> Any:
        if _HOST in tensor.__dict__:
            return tensor
        copied = tensor.clone()
        copied.__dict__[_HOST] = True
        return copied

    def _to(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """to(device, dtype, …), to(dtype, …) or to(other, …): handle the move here, leave the type to PyTorch."""
        asked, dtype, copy = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("copy", False)
        rest = list(args)
        if rest and (rest[0] is None or _is_device(rest[0]) or _wants_cuda(rest[0])):
            asked = rest.pop(0)
        elif kwargs.get("other") is not None or (rest and isinstance(rest[0], torch.Tensor)):
            other = rest.pop(0) if rest else kwargs["other"]
            asked, dtype = self._device(other), other.dtype
        if rest and isinstance(rest[0], torch.dtype):
            dtype = rest.pop(0)
        elif rest and rest[0] is None:
            rest.pop(0)
        copy = rest[1] if len(rest) > 1 else copy
        result = tensor
        if asked is not None:
            result = self._cuda(tensor) if _wants_cuda(asked) else self._cpu(tensor)
        host = _HOST in result.__dict__
        layout = {"memory_format": kwargs["memory_format"]} if "memory_format" in kwargs else {}
        if dtype is not None or layout or (copy and result is tensor):
            result = result.to(dtype or tensor.dtype, copy=bool(copy and result is tensor), **layout)
        if host:
            result.__dict__[_HOST] = True
        return result


class _Generator(torch.Generator):  # type: ignore[misc]
    """torch.Generator(device="cuda") returns a CPU generator."""

    def __new__(cls, device: Any = CPU) -> Any:
        return super().__new__(cls, CPU if _wants_cuda(device) else device)


@contextmanager
def cuda_requests(answers: Mapping[str, Any]) -> Iterator[None]:
    """Handle this thread's requests of CUDA inside, with `answers` as attributes of torch.cuda."""
    mode = CudaRequests()
    with ExitStack() as stack:
        stack.enter_context(patched(torch.cuda, answers))
        stack.enter_context(patched(torch, {"Generator": _Generator}))
        stack.enter_context(patched(_device.DeviceContext, _contexts(mode)))
        stack.enter_context(patched(torch.autograd, {"_engine_run_backward": _in_mode(mode)}))
        stack.enter_context(mode)
        yield


def _in_mode(mode: CudaRequests) -> Callable[..., Any]:
    """Return a backward function that runs in the mode, which PyTorch leaves during a call."""
    run = torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return run(*args, **kwargs)

    return run_backward


def _contexts(mode: CudaRequests) -> Mapping[str, Any]:
    """Replace the context of torch.set_default_device, in which PyTorch would request a device it does not have."""
    enter, leave = (_device.DeviceContext.__dict__[name] for name in ("__enter__", "__exit__"))

    def entered(self: Any) -> Any:
        self._weft_cuda = _wants_cuda(self.device)
        if self._weft_cuda:
            self.device = CPU
        mode.default_cuda += self._weft_cuda
        return enter(self)

    def left(self: Any, *error: Any) -> Any:
        mode.default_cuda -= self._weft_cuda
        return leave(self, *error)

    return {"__enter__": entered, "__exit__": left}
