"""A launch of a Triton file → Binary: constants from the name expression, types from what is passed.

# weft: launch  attention<num_warps=4, CAUSAL={MASK == 1}>(q, k, o, S, scale) grid(cdiv(S, BLOCK)) block(128)

Between < and > are Triton's keyword arguments: num_warps, num_stages, constexprs. A constexpr that is not listed takes
the size, define or scalar of its name.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.core.errors import Unsupported, UsageError
from weft.core.records import Binary

from .bind import Bound
from .expressions import Number
from .launch_records import LaunchLine, LaunchLines, MapArgument, Struct
from .triton_child import compile_in_child
from .triton_import import ALIGNED

TRITON_TYPES: Mapping[str, str] = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "e4m3": "fp8e4nv", "e5m2": "fp8e5", "bool": "i1",
    **{f"{sign}{bits}": f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Type of an array or scalar → its name in Triton."""

_CALLEE = re.compile(r"(?P<name>\w+)\s*(?:<(?P<constants>.*)>)?")
_SETTINGS = ("num_warps", "num_stages", "maxnreg")


def compile_launch(path: str, arch: str, entry: str, launch: LaunchLine, lines: LaunchLines, bound: Bound) -> Binary:
    """Compile the kernel that `entry` names for the types and numbers of this launch, in a child process."""
    name, constants = _callee(entry)
    settings = {key: constants.pop(key) for key in _SETTINGS if key in constants}
    elements = {line.name: line.element for line in lines.arrays}
    scalars = {line.name: line.element for line in lines.scalars}
    arguments: list[tuple[str, bool]] = []
    for argument in launch.arguments:
        if isinstance(argument, Struct | MapArgument):
            raise Unsupported(f"{name}: a Triton kernel takes no struct and no tensor map of a launch line")
        if argument.name in elements:
            arguments.append((f"*{_type(elements[argument.name])}", True))
            continue
        value: Number = argument.value(bound.names)
        kind = _type(scalars[argument.name]) if argument.name in scalars else _type_of(value)
        arguments.append((kind, isinstance(value, int) and value % ALIGNED == 0))
    question = {
        "arch": arch,
        "name": name,
        "constants": constants,
        "settings": settings,
        "arguments": arguments,
        "names": dict(bound.names),
    }
    binary = compile_in_child(path, hashlib.sha256(Path(path).read_bytes()).hexdigest(), question)
    (symbol,) = binary.entries.values()
    return replace(binary, entries={entry: symbol}, defines=bound.defines)


def _callee(entry: str) -> tuple[str, dict[str, Any]]:
    match = _CALLEE.fullmatch(entry)
    if match is None:
        raise UsageError(f"{entry!r} must have the form kernel<D=64>")
    constants: dict[str, Any] = {}
    for item in (match["constants"] or "").split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not item.strip():
            continue
        if not equals:
            raise UsageError(f"{item.strip()!r} in {entry!r}: pass a constant by name, as in D={{D}}")
        constants[key] = _constant(value)
    return match["name"], constants


def _constant(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    raise UsageError(f"{text} is not a constant: write a number, True, False or a string in quotes")


def _type(element: str) -> str:
    if element not in TRITON_TYPES:
        raise UsageError(f"Triton has no type for {element}")
    return TRITON_TYPES[element]


def _type_of(value: Number) -> str:
    """Return the type that Triton gives a Python number."""
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
