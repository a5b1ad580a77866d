"""Python values → the bytes of a kernel's parameters; host arrays → their device addresses."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.core.errors import LaunchError

Array = npt.NDArray[Any]


class EncodedByAddress:
    """A value of the virtual GPU only, whose bytes depend on the device address of an array."""

    array: Array

    def encode(self, address: int) -> bytes:
        """Return the bytes."""
        raise NotImplementedError


def as_array(value: object) -> Array | None:
    """Return a NumPy view of an array or a CPU torch tensor; None for anything else. Never copies."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "data_ptr") and hasattr(value, "detach"):
        return _tensor_view(value)
    return None


def _tensor_view(tensor: Any) -> Array:
    if tensor.device.type != "cpu":
        raise LaunchError(f"the tensor is on {tensor.device}: the virtual GPU takes CPU tensors; call .cpu() first")
    plain = tensor.detach()
    if not plain.is_contiguous():
        raise LaunchError("the tensor is not contiguous: call .contiguous() first")
    shared = ("torch.float16", "torch.int16", "torch.int8", "torch.uint8", "torch.bool")
    if plain.dtype.itemsize <= 2 and str(plain.dtype) not in shared:
        import torch  # bfloat16 and the fp8 types have no NumPy type: pass their bits

        plain = plain.view(torch.int16 if plain.dtype.itemsize == 2 else torch.uint8)
    view: Array = plain.numpy()
    return view


def pack_parameters(
    params: Sequence[tuple[str, int, int]],
    args: Sequence[object],
    address_of: Callable[[Array, str], int],
    names: Sequence[str] = (),
) -> bytes:
    """Return the parameter block for `args`, in the kernel's layout (name, offset, size of each parameter)."""
    if len(args) != len(params):
        raise LaunchError(f"the kernel takes {len(params)} arguments; {len(args)} were given")
    block = bytearray(max((at + size for _, at, size in params), default=0))
    for number, ((_, at, size), value) in enumerate(zip(params, args, strict=True)):
        name = names[number] if names else str(number)
        data = _encode(value, size, address_of, name)
        if len(data) != size:
            raise LaunchError(f"argument {name} has {len(data)} bytes; the kernel's parameter has {size}")
        block[at : at + size] = data
    return bytes(block)


def _encode(value: object, size: int, address_of: Callable[[Array, str], int], name: str) -> bytes:
    array = as_array(value)
    if array is not None:
        return address_of(array, name).to_bytes(8, "little")
    if isinstance(value, EncodedByAddress):
        return value.encode(address_of(value.array, name))
    if isinstance(value, bytes):
        return value
    if isinstance(value, tuple):
        return _pack_struct(value, size, address_of, name)
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, bool | int):
        return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if isinstance(value, float):
        if size not in (4, 8):
            raise LaunchError(f"argument {name} is a float; the kernel's parameter has {size} bytes")
        return struct.pack("<f" if size == 4 else "<d", value)
    kind = type(value).__name__
    raise LaunchError(f"argument {name} is a {kind}; give an array, a number, bytes or a tuple (struct)")


def _pack_struct(members: tuple[object, ...], size: int, address_of: Callable[[Array, str], int], name: str) -> bytes:
    """Pack members in order with C's natural alignment; the type of each must give its size (arrays are pointers)."""
    data, largest = bytearray(), 1
    for member in members:
        if as_array(member) is None and not isinstance(member, np.generic):
            raise LaunchError(f"a member of struct {name} is a {type(member).__name__}; give arrays or NumPy scalars")
        piece = _encode(member, 8, address_of, name)
        largest = max(largest, len(piece))
        data += bytes(-len(data) % len(piece)) + piece
    data += bytes(-len(data) % largest)
    return bytes(data)


class HostArrays:
    """The host arrays of a run and their device addresses. Memory that is passed twice is one buffer.

    Places arrays one by one with `allocate(size in bytes, name)`, which returns a device address.
    """

    def __init__(self, allocate: Callable[[int, str], int]) -> None:
        self._allocate = allocate
        self.placed: dict[tuple[int, int], tuple[Array, int]] = {}

    def address(self, value: Array, name: str) -> int:
        """Return the device address of an array; a new array is placed first."""
        array = as_array(value)
        assert array is not None
        if not array.flags.c_contiguous:
            raise LaunchError("the array is not C-contiguous: pass np.ascontiguousarray(array)")
        key = (array.ctypes.data, array.nbytes)
        if key not in self.placed:
            for start, size in self.placed:
                if start < key[0] + key[1] and key[0] < start + size:
                    raise LaunchError(
                        f"argument {name} partly overlaps another array; pass copies, or the same array twice"
                    )
            self.placed[key] = (array, self._allocate(array.nbytes, name))
        return self.placed[key][1]
