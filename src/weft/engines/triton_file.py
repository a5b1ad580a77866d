"""A launch of a Triton file → Binary: constants from the name expression, types from what is passed.

# weft: launch  attention<num_warps=4, CAUSAL={MASK == 1}>(q, k, o, S, scale) grid(cdiv(S, BLOCK)) block(128)

What stands between < and > is what a caller of Triton writes by name: num_warps, num_stages, constexprs. A constexpr
that is not there takes the size, define or scalar of its name.
"""

import functools
import hashlib
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.core.errors import LaunchError, Unsupported, UsageError
from weft.core.records import Binary
from weft.toolchain.triton_aot import compile_triton, parameter_names, require_triton

from .bind import Bound
from .expressions import Number
from .launch_records import LaunchLine, LaunchLines, Struct

TRITON_TYPES: Mapping[str, str] = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "e4m3": "fp8e4nv", "e5m2": "fp8e5", "bool": "i1",
    **{f"{sign}{bits}": f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Type of an array or scalar → Triton's name of it."""

_CALLEE = re.compile(r"(?P<name>\w+)\s*(?:<(?P<constants>.*)>)?")
_SETTINGS = ("num_warps", "num_stages", "maxnreg")
ALIGNED = 16
"""What Triton specialises for: pointers to so many bytes, integers that are a multiple of it."""


def compile_launch(path: str, arch: str, entry: str, launch: LaunchLine, lines: LaunchLines, bound: Bound) -> Binary:
    """The kernel that `entry` names, for the types and numbers of this launch."""
    name, constants = _callee(entry)
    function = getattr(_module(path, hashlib.sha256(Path(path).read_bytes()).hexdigest()), name, None)
    if function is None:
        raise UsageError(f"{path} has no function {name}")
    settings = {key: constants.pop(key) for key in _SETTINGS if key in constants}
    runtime, constexprs = parameter_names(function)
    parameters = [each for each in runtime if each not in constants]
    if len(parameters) != len(launch.arguments):
        raise LaunchError(f"{name} takes {', '.join(parameters)}; the line passes {len(launch.arguments)} arguments")
    for constexpr in constexprs:
        if constexpr not in constants and constexpr not in bound.names:
            raise LaunchError(f"no value for {constexpr}: write {name}<{constexpr}=…>, or declare one of this name")
        constants.setdefault(constexpr, bound.names.get(constexpr))
    signature: dict[str, str] = {}
    aligned: dict[str, int] = {}
    elements = {line.name: line.element for line in lines.arrays}
    scalars = {line.name: line.element for line in lines.scalars}
    for parameter, argument in zip(parameters, launch.arguments, strict=True):
        if isinstance(argument, Struct):
            raise Unsupported(f"{name}: a Triton kernel takes no struct")
        if argument.name in elements:
            signature[parameter], aligned[parameter] = f"*{_type(elements[argument.name])}", ALIGNED
            continue
        value: Number = argument.value(bound.names)
        signature[parameter] = _type(scalars[argument.name]) if argument.name in scalars else _type_of(value)
        if isinstance(value, int) and value % ALIGNED == 0:
            aligned[parameter] = ALIGNED
    warps = int(settings.pop("num_warps", 4))
    binary = compile_triton(
        function,
        signature=signature,
        constexprs=constants,
        arch=arch,
        attrs=aligned,
        num_warps=warps,
        num_stages=int(settings.pop("num_stages", 3)),
        options=settings,
    )
    (symbol,) = binary.entries.values()
    return replace(binary, entries={entry: symbol}, defines=bound.defines)


@functools.lru_cache(maxsize=64)
def _module(path: str, digest: str) -> ModuleType:
    """The file as a module of its own; `digest` is that of its text, so that a changed file is read again."""
    require_triton()
    spec = importlib.util.spec_from_file_location(f"weft_triton_{digest[:16]}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


def _callee(entry: str) -> tuple[str, dict[str, Any]]:
    match = _CALLEE.fullmatch(entry)
    if match is None:
        raise UsageError(f"{entry!r} is not of the form kernel<D=64>")
    constants: dict[str, Any] = {}
    for item in (match["constants"] or "").split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not item.strip():
            continue
        if not equals:
            raise UsageError(f"{item.strip()!r} in {entry!r}: a constant stands by name, as in D={{D}}")
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
    raise UsageError(f"{text} is no constant: write a number, True, False or a text in quotes")


def _type(element: str) -> str:
    if element not in TRITON_TYPES:
        raise UsageError(f"Triton has no type for {element}")
    return TRITON_TYPES[element]


def _type_of(value: Number) -> str:
    """As Triton types a Python number."""
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
