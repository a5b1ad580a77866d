"""Operators of PyTorch on the CUDA tensors of `cuda_memory.py`: each runs its CPU kernel on the same memory.

They are registered for PyTorch's dispatch key CUDA. So the dispatcher decides as it does with a GPU: an operator that a
library has registered for CUDA is called, one that it has not is an error, autograd and autocast work above them, in
every thread.
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from weft.core.errors import Unsupported

from .cuda_memory import CPU_KERNEL, allocate, on_cpu, on_cuda, tensor_in
from .cuda_precision import call, products

CPU = torch.device("cpu")
_COMPOSED = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
"""Kernels that call other operators: they need none for CUDA."""
_TWO_DEVICES = frozenset(["aten::copy_", "aten::_copy_from", "aten::set_", "aten::index", "aten::index_put_"])
_TWO_DEVICES |= frozenset(["aten::index_put", "aten::_index_put_impl_", "aten::is_set_to"])
"""Operators that take tensors of two devices."""

_BY_DEVICE = ("native_layer_norm", "convolution_backward")
"""Operators that are composed of others and choose by the device in C++: CUDA's choices are not there."""

_registered: list[Any] = []
_open: list[Any] = []
"""One entry for each device that represents cuda:0 now."""


@contextmanager
def registered() -> Iterator[None]:
    """Register the kernels. A PyTorch that has no kernels for CUDA keeps them afterwards."""
    if not _registered:
        library = torch.library.Library("aten", "IMPL")
        _registered.append(library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that kernels are replaced is intended
            for name, kernel in _kernels().items():
                library.impl(name, kernel, "CUDA", allow_override=True)
    _open.append(library := _registered[0])
    try:
        yield
    finally:
        _open.remove(library)
        if torch.backends.cuda.is_built():
            _registered.pop()._destroy()


def _kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernel for each operator that does not call only others."""
    known = torch._C._dispatch_get_registrations_for_dispatch_key
    composed = {name for key in _COMPOSED for name in known(key)}
    found: dict[str, Callable[..., Any]] = {}
    own = set(known("CUDA"))
    for name in {*known("CPU"), *own}:
        if not name.startswith("aten::") or (name in composed and name not in own):
            continue
        operator = _operator(name)
        if operator is not None:
            found[name.removeprefix("aten::")] = functools.partial(_run, operator)
    for name in ("copy_", "_copy_from", *_BY_DEVICE):
        found[name] = functools.partial(_run, _operator(f"aten::{name}"))
    return (
        found
        | products()
        | {
            "empty.memory_format": _empty,
            "empty_strided": _empty_strided,
            "resize_": _resize,
            "_pin_memory": lambda tensor, device=None: tensor,
            "record_stream": lambda tensor, stream: None,
        }
    )


def _operator(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return getattr(found, overload or "default", None)


def _run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator's CPU kernel on the memory of its CUDA tensors."""
    if _is_view(operator):  # the kernel only makes a tensor in the same storage, of the same device
        return operator.redispatch(CPU_KERNEL, *args, **kwargs)
    args = tuple(
        _as_tensor(value) if isinstance(value, int | float | complex) and _takes_tensor(operator, at) else value
        for at, value in enumerate(args)
    )
    given = list(_tensors((args, *kwargs.values())))
    _check_devices(operator, given)
    outputs = {id(each) for each in given if not each.numel()} if operator._schema.is_mutable else set()
    with torch._C.DisableTorchFunction():
        aliases: dict[int, Any] = {}
        for each in given:
            if each.is_cuda and id(each) not in aliases:
                if each.layout is not torch.strided:
                    raise Unsupported(f"{operator} of a tensor with layout {each.layout} is not supported on cuda:0")
                aliases[id(each)] = _resizable(each) if id(each) in outputs else on_cpu(each)
        inputs = {id(aliases[id(each)]): each for each in given if each.is_cuda}
        result = call(operator, _replaced(aliases, args), {key: _replaced(aliases, kwargs[key]) for key in kwargs})
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted).type == "cpu":
            return result
        for original in inputs.values():
            if id(original) in outputs:
                _adopt(original, aliases[id(original)])
        return _returned(inputs, result)


def _takes_tensor(operator: Any, at: int) -> bool:
    return str(operator._schema.arguments[at].type) == "Tensor"


def _as_tensor(value: complex) -> Any:
    """Return a number, which PyTorch passes for a Tensor of a number, as a tensor that does not widen results."""
    kind = torch.get_default_dtype() if isinstance(value, float) else None
    return torch.tensor(value, dtype=kind, device="cpu")


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _resizable(tensor: Any) -> Any:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)


def _replaced(aliases: Mapping[int, Any], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return aliases.get(id(value), value)
    if isinstance(value, list | tuple):
        return type(value)([_replaced(aliases, each) for each in value])
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    return value


def _returned(inputs: Mapping[int, Any], value: Any) -> Any:
    """Return a result on cuda:0: an input that was written, a view of an input, or a copy."""
    if isinstance(value, list | tuple):
        return type(value)([_returned(inputs, each) for each in value])
    if not isinstance(value, torch.Tensor) or value.is_cuda:
        return value
    original = inputs.get(id(value))
    if original is not None:
        return original
    place = value.untyped_storage().data_ptr()
    for original in inputs.values() if place else ():
        if original.untyped_storage().data_ptr() == place:
            storage = original.untyped_storage()
            return tensor_in(storage, value.dtype, value.size(), value.stride(), value.storage_offset())
    return on_cuda(value)


def _adopt(original: Any, made: Any) -> None:
    """Give an empty output what its operator made of it."""
    if made.size() != original.size():
        moved = on_cuda(made)
        place = moved.untyped_storage(), 0, made.size(), made.stride()
        torch.ops.aten.set_.source_Storage_storage_offset.redispatch(CPU_KERNEL, original, *place)


def _is_view(operator: Any) -> bool:
    schema = operator._schema
    return not schema.is_mutable and any(each.alias_info is not None for each in schema.returns)


def _check_devices(operator: Any, given: list[Any]) -> None:
    if operator._schema.name in _TWO_DEVICES or not any(each.is_cuda for each in given):
        return
    if any(each.device.type == "cpu" and each.dim() for each in given):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"(in {operator._schema.name})"
        )


def _empty(
    size: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Any:
    _require_device()
    if layout not in (None, torch.strided):
        raise Unsupported(f"a tensor with layout {layout} is not supported on cuda:0")
    like = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    return allocate(like.dtype, like.size(), like.stride())


def _empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    _require_device()
    return allocate(dtype or torch.get_default_dtype(), size, stride)


def _require_device() -> None:
    if not _open:
        raise RuntimeError("Torch not compiled with CUDA enabled, and no virtual GPU is active (weft.triton.activate)")


def _resize(tensor: Any, size: Any, *, memory_format: Any = None) -> Any:
    """Change the size in place; the contents stay where they fit."""
    like = torch.empty(size, dtype=tensor.dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    storage, offset = tensor.untyped_storage(), tensor.storage_offset()
    if (offset + like.numel()) * tensor.dtype.itemsize > storage.nbytes():
        larger = allocate(tensor.dtype, (offset + like.numel(),), (1,))
        old = on_cpu(tensor_in(storage, torch.uint8, (storage.nbytes(),), (1,), 0))
        on_cpu(larger).view(torch.uint8)[: storage.nbytes()].copy_(old)
        storage = larger.untyped_storage()
    set_storage = torch.ops.aten.set_.source_Storage_storage_offset
    return set_storage.redispatch(CPU_KERNEL, tensor, storage, offset, like.size(), like.stride())
