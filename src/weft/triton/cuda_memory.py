"""PyTorch tensors of device cuda:0 whose memory is the host's, made in a PyTorch without CUDA.

DLPack describes memory of any device. A block of host memory that is described as CUDA memory becomes a tensor whose
device is cuda:0 for all of PyTorch: dispatcher, autograd, views, torch.compile. Nothing in the tensor itself needs a
GPU; its operators are in `cuda_operators.py`. A block is header, then data; `free` releases it, so that no code of
Python runs when PyTorch drops a storage.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

CUDA = torch.device("cuda", 0)
_HEADER_BYTES = _ALIGN = 512
"""PyTorch's allocator of CUDA memory rounds to this many bytes."""
_DLPACK_CUDA, _DLPACK_UNSIGNED = 2, 1

CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_aten = torch.ops.aten


class _Managed(ctypes.Structure):
    """DLManagedTensor with one dimension, and the numbers its pointers lead to."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("stride", ctypes.c_int64),
    )


@functools.cache
def _functions() -> tuple[Any, Any, int]:
    libc = ctypes.CDLL(None)
    allocate = libc.aligned_alloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return allocate, capsule, ctypes.cast(libc.free, ctypes.c_void_p).value or 0


def _block(size_bytes: int) -> Any:
    """Return a one-dimensional uint8 tensor of cuda:0 with arbitrary contents."""
    allocate, capsule, free = _functions()
    start = allocate(_ALIGN, _HEADER_BYTES + -(-size_bytes // _ALIGN) * _ALIGN)
    if not start:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size_bytes} bytes of the host's memory.")
    block = _Managed.from_address(start)
    block.data, block.device_type, block.device_id = start + _HEADER_BYTES, _DLPACK_CUDA, 0
    block.ndim, block.code, block.bits, block.lanes = 1, _DLPACK_UNSIGNED, 8, 1
    block.shape, block.strides = start + _Managed.size.offset, start + _Managed.stride.offset
    block.byte_offset, block.context, block.deleter = 0, None, free
    block.size, block.stride = size_bytes, 1
    return torch._C._from_dlpack(capsule(start, b"dltensor", None))


def tensor_in(storage: Any, dtype: Any, size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """Return a tensor of cuda:0 in an existing storage."""
    fresh = _aten.view.dtype.redispatch(CPU_KERNEL, _block(0), dtype)
    return _aten.set_.source_Storage_storage_offset.redispatch(CPU_KERNEL, fresh, storage, offset, size, stride)


def allocate(dtype: Any, size: Sequence[int], stride: Sequence[int]) -> Any:
    """Return a new tensor of cuda:0 with arbitrary contents."""
    elements = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return tensor_in(_block(elements * dtype.itemsize).untyped_storage(), dtype, size, stride, 0)


def on_cpu(tensor: Any) -> Any:
    """Return the memory of a CUDA tensor as a CPU tensor, which must not outlive it."""
    storage = tensor.untyped_storage()
    same = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
    made = torch.empty(0, dtype=tensor.dtype, device="cpu")
    made.set_(same, tensor.storage_offset(), tensor.size(), tensor.stride())
    # Some operators, such as vdot and matmul, take tensors that are conjugated or negated only when they are read.
    made = made.conj() if tensor.is_conj() else made
    return torch._neg_view(made) if tensor.is_neg() else made


def on_cuda(tensor: Any) -> Any:
    """Return a copy of a CPU tensor on cuda:0, with the same strides."""
    made = allocate(tensor.dtype, tensor.size(), tensor.stride())
    on_cpu(made).copy_(tensor)
    return made
