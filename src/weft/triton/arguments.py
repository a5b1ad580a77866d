"""The arguments of a Triton launch → the bytes of the kernel's parameters.

Triton passes every parameter of the Python function; those it made constants are not parameters of the PTX. Tuples
are flattened, tensor descriptors are a tensor map (from sm_90 on) or a base pointer with shapes and strides, and two
scratch pointers come last.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.core.errors import LaunchError, Unsupported
from weft.vm.tensor_map import FILL_NAN, FILL_ZERO, of_array

CONSTANT = "constexpr"
MAP = "tensor map"
_INTEGERS = {"i1": 1, "u1": 1, **{f"{sign}{bits}": bits // 8 for sign in "iu" for bits in (8, 16, 32, 64)}}
_FLOATS: Mapping[str, Any] = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64,
}  # fmt: skip

AddressOf = Callable[[Any, str], int]
"""Returns the device address of a tensor, with its name for findings."""


class Parameters:
    """How one compiled kernel takes its arguments."""

    def __init__(self, signature: Mapping[str, Any], tensordesc_meta: Any) -> None:
        self._signature = dict(signature)
        self._maps = list(tensordesc_meta or [])
        """How each tensor descriptor becomes a tensor map, in order; empty: they are pointers."""
        self._flat = not any(_nested(kind) for kind in signature.values())
        self._plain = [
            (at, kind, name)
            for at, (name, kind) in enumerate(signature.items())
            if not _nested(kind) and kind != CONSTANT
        ]

    def pack(
        self,
        layout: Sequence[tuple[str, int, int]],
        args: Sequence[Any],
        address_of: AddressOf,
        number: Callable[[int], int],
        scratch: Sequence[int],
    ) -> bytes:
        """Return the parameter block. `layout` is the PTX's: name, offset and size of each parameter."""
        given = list(self._arguments(args))
        if len(given) + len(scratch) != len(layout):
            raise LaunchError(f"the PTX takes {len(layout)} parameters; Triton passes {len(given)} and two for scratch")
        block = bytearray(max((at + size for _, at, size in layout), default=0))
        for (kind, value, name), (_, at, size) in zip(given, layout, strict=False):
            data = _encode(kind, value, name, address_of, number)
            if len(data) != size:
                raise LaunchError(f"argument {name} ({kind}) has {len(data)} bytes; the PTX takes {size}")
            block[at : at + size] = data
        for pointer, (_, at, _) in zip(scratch, layout[len(given) :], strict=True):
            struct.pack_into("<Q", block, at, pointer)
        return bytes(block)

    def _arguments(self, args: Sequence[Any]) -> Iterator[tuple[str, Any, str]]:
        if self._flat:
            for at, kind, name in self._plain:
                yield kind, args[at], name
            return
        maps = iter(self._maps)
        for (name, kind), value in zip(self._signature.items(), args, strict=True):
            yield from _flattened(kind, value, name, maps)


def _nested(kind: Any) -> bool:
    return isinstance(kind, tuple) or str(kind).startswith("tensordesc")


def _flattened(kind: Any, value: Any, name: str, maps: Iterator[Any]) -> Iterator[tuple[str, Any, str]]:
    if isinstance(kind, tuple):
        for number, (inner, member) in enumerate(zip(kind, value, strict=True)):
            yield from _flattened(inner, member, f"{name}[{number}]", maps)
    elif str(kind).startswith("tensordesc"):
        meta = next(maps, None)
        members = [(MAP, (meta, value))] if meta else _decomposed(kind, value)
        for member in [*members, *_typed("i32", value.shape), *_typed("i64", value.strides)]:
            yield *member, name
    elif kind != CONSTANT:
        yield kind, value, name


def _decomposed(kind: str, descriptor: Any) -> list[tuple[str, Any]]:
    """Return a tensor descriptor that is no tensor map: pointer, shape, strides and its options.

    Shape and strides stand behind it once more, as they do behind a map. The last option is new in Triton 3.7.
    """
    options = [descriptor.padding == "nan"]
    if hasattr(descriptor, "round_f32_to_tf32"):
        options.append(descriptor.round_f32_to_tf32)
    element = kind.partition("<")[2].partition("[")[0]
    sizes = [*descriptor.shape, *descriptor.strides]
    return [("*" + element, descriptor.base), *_typed("i64", sizes), *_typed("i1", options)]


def _typed(kind: str, values: Sequence[int]) -> list[tuple[str, int]]:
    return [(kind, value) for value in values]


def _encode(kind: str, value: Any, name: str, address_of: AddressOf, number: Callable[[int], int]) -> bytes:
    if kind == MAP:
        meta, descriptor = value
        return _tensor_map(meta, descriptor, name, address_of)
    if kind[0] == "*":
        if value is None:
            return bytes(8)
        at = number(value) if isinstance(value, int) else address_of(value, name)
        return at.to_bytes(8, "little")
    if kind in _INTEGERS:
        size = _INTEGERS[kind]
        whole = number(int(value)) if size == 8 else int(value)
        return (whole & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if kind in _FLOATS:
        with np.errstate(over="ignore"):  # as C narrows a double
            data: bytes = _FLOATS[kind](value).tobytes()
        return data
    raise Unsupported(f"argument {name} has Triton's type {kind}, which is not supported")


def _tensor_map(meta: Mapping[str, Any], descriptor: Any, name: str, address_of: AddressOf) -> bytes:
    """Return the tensor map of a TensorDescriptor: the kernel chose box, swizzle and type of its elements."""
    refused = {
        "im2col": meta.get("is_im2col"),
        "padded fp4": meta.get("fp4_padded"),
        "rounding to tf32": getattr(descriptor, "round_f32_to_tf32", False),
    }
    for what, given in refused.items():
        if given:
            raise Unsupported(f"argument {name}: a tensor descriptor with {what} is not supported")
    fill = FILL_NAN if descriptor.padding == "nan" else FILL_ZERO
    place = (address_of(descriptor.base, name), descriptor.shape, descriptor.strides)
    made = of_array(*place, meta["block_size"], meta["elem_type"], swizzle=meta["swizzle"], fill=fill)
    return made.encode()
