"""What PyTorch's functions and methods mean for a launch line: shapes, element types, pointers."""

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence

from .host_values import (
    Facts,
    Hole,
    Items,
    NotFollowed,
    Number,
    Other,
    Pointer,
    Rank,
    Record,
    Sizes,
    Tensor,
    Type,
    Value,
    binary,
    call,
    literal,
)

_DTYPES = {
    "kFloat": "f32", "kFloat32": "f32", "kHalf": "f16", "kFloat16": "f16", "kBFloat16": "bf16", "kDouble": "f64",
    "kFloat64": "f64", "kInt": "i32", "kInt32": "i32", "kLong": "i64", "kInt64": "i64", "kByte": "u8", "kUInt8": "u8",
    "kChar": "i8", "kInt8": "i8", "kShort": "i16", "kInt16": "i16", "kBool": "bool", "kFloat8_e4m3fn": "e4m3",
    "kFloat8_e5m2": "e5m2", "Float": "f32", "Half": "f16", "BFloat16": "bf16", "Double": "f64", "Int": "i32",
    "Long": "i64", "Byte": "u8",
}  # fmt: skip
_ORIGINS = {"empty": "empty", "zeros": "zeros", "ones": "ones", "full": "full"}
_SAME = frozenset(["contiguous", "detach", "cuda", "data", "value", "requires_grad_", "set_requires_grad", "flatten"])
_QUIET = frozenset(
    [
        "is_cuda",
        "is_contiguous",
        "device",
        "get_device",
        "defined",
        "is_same_size",
        "requires_grad",
        "type",
        "layout",
        "has_value",
        "is_floating_point",
        "device_type",
        "index",
    ]
)
_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "bool": 1, "e4m3": 1, "e5m2": 1}
_POINTERS = frozenset(["data_ptr", "const_data_ptr", "mutable_data_ptr"])


def element_bytes(element: str) -> int | None:
    """Return the size of an element type of launch lines."""
    digits = re.sub(r"\D", "", element)
    return _BYTES.get(element, int(digits) // 8 if element[:1] in "iu" and digits else None)


def _root(value: Number) -> Number:
    return call("sqrt", value, floating=True)


MATHEMATICS: Mapping[str, Callable[..., Number]] = {
    **dict.fromkeys(("sqrt", "sqrtf"), _root),
    **dict.fromkeys(("rsqrt", "rsqrtf"), lambda x: binary(ast.Div, literal(1.0), _root(x))),
    **dict.fromkeys(("ceil", "ceilf"), lambda x: call("ceil", x, floating=True)),
    **dict.fromkeys(("log2", "log2f"), lambda x: call("log2", x, floating=True)),
    **dict.fromkeys(("min", "fmin", "fminf"), lambda *x: call("min", *x)),
    **dict.fromkeys(("max", "fmax", "fmaxf"), lambda *x: call("max", *x)),
}


FOLDED: Mapping[str, Callable[..., float]] = {
    **dict.fromkeys(("pow", "powf"), math.pow),
    **dict.fromkeys(("exp", "expf"), math.exp),
    **dict.fromkeys(("log", "logf"), math.log),
    **dict.fromkeys(("exp2", "exp2f"), lambda x: 2.0**x),
    **dict.fromkeys(("floor", "floorf"), math.floor),
    **dict.fromkeys(("fabs", "fabsf", "abs"), abs),
}
"""Functions that formulas lack, computed where the numbers are known."""


def factory(facts: Facts, path: Sequence[str], arguments: list[Value] | None, line: int) -> Value:
    """Return the value of a name or call of PyTorch, CUDA or the standard library; `arguments` is None for a name."""
    last, space = path[-1], path[0]
    if arguments is None:
        if last in _DTYPES and len(path) > 1:
            return Type(_DTYPES[last])
        if len(path) > 1 and space in ("torch", "at", "c10"):
            return Other()
        raise NotFollowed
    if space in ("torch", "at") and (last in _ORIGINS or last.removesuffix("_like") in _ORIGINS):
        return _created(facts, last, arguments, line)
    if last == "TensorOptions" or (space in ("torch", "at") and last in ("dtype", "device")):
        return next((each for each in arguments if isinstance(each, Type)), Type(""))
    if space in ("torch", "at", "c10", "aten") and any(isinstance(each, Tensor) for each in arguments):
        if last == "device_of":
            return Other()
        return Tensor("", "computed", line)
    harmless = ("cuda", "getCurrent", "getStream", "device_of")
    if space in ("torch", "at", "c10", "py", "pybind11") or last.startswith(harmless):
        return Other()
    raise NotFollowed


def _created(facts: Facts, name: str, arguments: list[Value], line: int) -> Value:
    kind = next((each for each in arguments if isinstance(each, Type)), Type(""))
    origin = _ORIGINS[name.removesuffix("_like")]
    tensor = Tensor("", origin, line, _element(kind))
    first = arguments[0] if arguments else Other()
    match first:
        case Tensor():
            tensor.like, tensor.element = first, tensor.element or first.element
        case Sizes(tensor=other):
            tensor.like = other
        case Items(values=values):
            sizes = [each for each in values if isinstance(each, Number)]
            if len(sizes) == len(values):
                tensor.shape = tuple(sizes)
            else:
                facts.notes[f"the shape of the tensor made here cannot be followed: {_why(values)}"] = line
        case Number():
            tensor.shape = (first,)
    if name.endswith("_like") and kind.element == "" and isinstance(first, Tensor):
        tensor.element = first.element
    return tensor


def _why(values: Sequence[Value]) -> str:
    return next((each.why for each in values if isinstance(each, Hole)), "no formula")


def _element(kind: Type) -> str:
    return kind.element or (kind.of.element if kind.of is not None else "")


def method(facts: Facts, value: Value, name: str, type_text: str, arguments: list[Value]) -> Value:
    """`value.name<type_text>(arguments)`"""
    match value:
        case Tensor():
            return _of_tensor(facts, value, name, type_text, arguments)
        case Sizes(tensor=tensor):
            if name == "size":
                return Rank(tensor)
            return value if name == "vec" else Other()
        case Type():
            given = next((each for each in arguments if isinstance(each, Type)), None)
            return given if name == "dtype" and given is not None else value
        case Other() | Hole():
            return value
        case Pointer():
            return value if name in ("get", "data") else Other()
        case Record():
            return value.get("size") or Hole("the length of a vector", facts.line) if name == "size" else Other()
    raise NotFollowed


def _of_tensor(facts: Facts, tensor: Tensor, name: str, type_text: str, arguments: list[Value]) -> Value:
    axis = arguments[0].constant if arguments and isinstance(arguments[0], Number) else None
    if name == "size" and isinstance(axis, int):
        return facts.size(tensor, axis)
    if name == "sizes":
        return Sizes(tensor)
    if name in ("dim", "ndimension"):
        return Rank(tensor)
    if name == "numel":
        return facts.numel(tensor)
    if name in _POINTERS:
        return Pointer(tensor, type_text)
    if name in ("options", "dtype", "scalar_type"):
        return Type("", tensor)
    if name in _SAME or (name == "to" and not any(isinstance(each, Type) for each in arguments)):
        return tensor
    if name in _QUIET:
        return Other()
    if name == "element_size":
        width = element_bytes(tensor.element)
        return literal(width) if width else Hole(f"the element type of {tensor.name}", tensor.line)
    if name == "stride" and isinstance(axis, int):
        return _stride(facts, tensor, axis)
    if name == "zero_":
        tensor.origin = "zeros"
        return tensor
    if name in ("view", "reshape"):
        return _view(tensor, arguments)
    if name in ("new_empty", "new_zeros"):
        made = _created(facts, name.removeprefix("new_"), arguments, facts.line)
        assert isinstance(made, Tensor)
        made.element = made.element or tensor.element
        return made
    if name == "clone":
        return Tensor("", "computed", facts.line, tensor.element, like=tensor)
    if name in ("item", "packed_accessor32", "packed_accessor64", "packed_accessor", "accessor"):
        return Hole(f".{name}() of {tensor.name}", facts.line)
    return Tensor("", "computed", facts.line)


def _stride(facts: Facts, tensor: Tensor, axis: int) -> Value:
    """Return the stride of a contiguous tensor: the product of the sizes after the axis."""
    shape = facts.shape(tensor)
    if shape is None:
        return Hole(f"the stride of {tensor.name}, whose shape is not known", facts.line)
    total = literal(1)
    for size in shape[axis % len(shape) + 1 :]:
        total = binary(ast.Mult, total, size)
    return total


def _view(tensor: Tensor, arguments: list[Value]) -> Value:
    values = arguments[0].values if arguments and isinstance(arguments[0], Items) else tuple(arguments)
    sizes = tuple(each for each in values if isinstance(each, Number))
    known = len(sizes) == len(values) and all(size.constant is None or size.constant >= 0 for size in sizes)
    return Tensor(tensor.name, tensor.origin, tensor.line, tensor.element, sizes if known else None, base=tensor)
