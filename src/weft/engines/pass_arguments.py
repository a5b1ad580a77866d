"""The arguments of a launch line → values for the launch, checked against the kernel's own parameters."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.errors import LaunchError, UsageError

from .arguments import Array
from .bind import Bound
from .expressions import Expression, Number
from .launch_records import Argument, MapArgument, Struct
from .map_arguments import passed_map

_INTEGERS = ("u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "u64", "s64", "b64")


_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s+(?:\.(?:global|const|shared|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"[\w$%]+(?:\[(?P<count>\d+)\])?"
)


@dataclass(frozen=True)
class Parameter:
    """One parameter. `type` is PTX's (u32, f32 …), or `bytes` for a struct or a 16-bit float."""

    type: str
    size_bytes: int


def parameters(ptx: str, entry: str) -> tuple[Parameter, ...]:
    """Return the parameters of `entry`, which is its name in the PTX."""
    match = re.search(rf"\.entry\s+{re.escape(entry)}\s*(?:\(([^)]*)\))?", ptx)
    if not match:
        raise UsageError(f"no kernel {entry!r} in this PTX")
    found = []
    for param in _PARAM.finditer(match[1] or ""):
        width = int(re.sub(r"\D", "", param["type"])) // 8
        if param["count"]:
            found.append(Parameter("bytes", width * int(param["count"])))
        else:
            found.append(Parameter(param["type"], width))
    return tuple(found)


def pass_arguments(
    arguments: Sequence[Argument], params: Sequence[Parameter], bound: Bound, arrays: Mapping[str, Array]
) -> list[object]:
    """Return one value per parameter. A value of the wrong kind is an error and is never reinterpreted."""
    if len(arguments) != len(params):
        raise LaunchError(f"the kernel takes {len(params)} arguments; its launch line passes {len(arguments)}")
    passed: list[object] = []
    for number, (argument, param) in enumerate(zip(arguments, params, strict=True), 1):
        if isinstance(argument, Struct):
            if param.type != "bytes":
                raise LaunchError(f"argument {number} is a struct; the parameter is {_described(param)}")
            passed.append(tuple(_member(member, bound, arrays) for member in argument.members))
        elif isinstance(argument, MapArgument):
            passed.append(passed_map(argument, bound.names, arrays, param.size_bytes))
        elif argument.name in arrays:
            if param.type not in ("u64", "b64", "s64"):
                raise LaunchError(f"{argument.text} is an array; parameter {number} is {_described(param)}")
            passed.append(arrays[argument.name])
        elif argument.name in bound.scalars:
            scalar = bound.scalars[argument.name]
            _check_scalar(argument.name, scalar, param, number)
            passed.append(scalar)
        else:
            passed.append(_number(argument, argument.value(bound.names), param, number))
    return passed


def _member(member: Expression, bound: Bound, arrays: Mapping[str, Array]) -> Any:
    """Return a struct member: arrays are pointers, scalars have their type, numbers are `int`, `float` or `bool`."""
    if member.name in arrays:
        return arrays[member.name]
    if member.name in bound.scalars:
        return bound.scalars[member.name]
    value = member.value(bound.names)
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, float):
        return np.float32(value)
    if not -(1 << 31) <= value < 1 << 31:
        raise LaunchError(f"{member.text} is {value}, which does not fit in an int; declare a scalar")
    return np.int32(value)


def _check_scalar(name: str, value: np.generic, param: Parameter, number: int) -> None:
    kind = {"f": ("f32", "f64"), "i": _INTEGERS, "u": _INTEGERS, "b": _INTEGERS}.get(value.dtype.kind, ())
    small_float = value.dtype.itemsize <= 2 and value.dtype.kind not in "iub"
    expected = ("bytes",) if small_float else kind  # half is a struct in C++
    if param.type not in expected or value.dtype.itemsize != param.size_bytes:
        raise LaunchError(f"{name} is declared {value.dtype}; parameter {number} is {_described(param)}")


def _number(argument: Expression, value: Number, param: Parameter, number: int) -> Number:
    if param.type in ("f32", "f64"):
        return float(value)
    if param.type not in _INTEGERS:
        described = _described(param)
        raise LaunchError(f"{argument.text} is a number; parameter {number} is {described}: declare a scalar")
    if isinstance(value, float):
        raise LaunchError(f"{argument.text} is {value}; parameter {number} is an integer ({param.type})")
    bits = 8 * param.size_bytes
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise LaunchError(f"{argument.text} is {value}, which does not fit parameter {number} ({param.type})")
    return value


def _described(param: Parameter) -> str:
    return f"{param.size_bytes} bytes (a struct or a small float)" if param.type == "bytes" else param.type
