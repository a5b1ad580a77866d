"""Launch lines and the caller's values → the number of every name, and every array."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.core.errors import LaunchError, UsageError, at_line
from weft.core.names import did_you_mean

from .arguments import Array, as_array
from .element_types import (
    ELEMENT_TYPES,
    FILLS,
    generator,
    integer_limits,
    is_float,
    poisoned,
    typed,
    uniform_between,
)
from .expressions import Expression, Number
from .launch_records import ArrayLine, LaunchLines, LeverLine, ScalarLine

Names = Mapping[str, Number | str]

_INTEGER_LITERAL = re.compile(r"(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]*")
_FLOAT_LITERAL = re.compile(r"(-?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?)[fF]?")


class NotTaken(LaunchError):
    """The launch lines exclude these sizes or macros; `why` quotes the line."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


@dataclass(frozen=True)
class Bound:
    """The numbers of one run."""

    sizes: Mapping[str, int]
    names: Names
    """Sizes, defines and scalars, for formulas."""
    defines: Mapping[str, str]
    """Macros for the compiler."""
    scalars: Mapping[str, np.generic]
    """Scalars as they are passed."""


def bind_numbers(lines: LaunchLines, file: str, *, sizes: Mapping[str, int], defines: Mapping[str, str]) -> Bound:
    """Evaluate sizes, then defines, then scalars; each may use those before it. `defines` override the file's."""
    names: dict[str, Number | str] = {**lines.sizes, **sizes}
    macros: dict[str, str] = {}
    for lever in lines.levers:
        for word, chosen in _words(lever, file, defines).items():
            names[word], macros[word] = chosen, str(chosen)
    for define in lines.defines:
        with at_line(file, define.line):
            if define.name in defines:
                value = number_of(defines[define.name])
            else:
                value = define.value.value(names) if isinstance(define.value, Expression) else define.value
        names[define.name] = value
        macros[define.name] = defines.get(define.name, _literal(value))
    scalars: dict[str, np.generic] = {}
    for scalar in lines.scalars:
        with at_line(file, scalar.line):
            scalars[scalar.name] = _scalar(scalar, names)
        typed_value: Any = scalars[scalar.name]
        names[scalar.name] = float(typed_value) if is_float(scalar.element) else typed_value.item()
    for require in lines.requires:
        if broken := require.broken(names):
            raise NotTaken(f"{file}:{require.line}: {broken}", require.text)
    return Bound({**lines.sizes, **sizes}, names, {**macros, **defines}, scalars)


def _words(lever: LeverLine, file: str, defines: Mapping[str, str]) -> dict[str, int]:
    """Return the macros of a lever of words, 1 for the chosen one; raises for a value that its line does not list."""
    value = defines.get(lever.name, lever.default)
    if value not in lever.values:
        raise UsageError(f"{file}:{lever.line}: {lever.name} is {value}; its lever line has {', '.join(lever.values)}")
    return {word: int(each == value) for word, each in lever.words.items()}


def number_of(text: str) -> Number | str:
    """Return a macro's value as a number if it is a C++ literal, else the text."""
    if match := _INTEGER_LITERAL.fullmatch(text.strip()):
        return int(match[1], 0) if "x" in match[1].lower() else int(match[1])
    if match := _FLOAT_LITERAL.fullmatch(text.strip()):
        return float(match[1])
    return {"true": 1, "false": 0}.get(text.strip(), text)


def _literal(value: Number | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _scalar(scalar: ScalarLine, names: Names) -> np.generic:
    value = scalar.value.value(names)
    dtype = ELEMENT_TYPES[scalar.element]
    if not is_float(scalar.element):
        value = scalar.value.integer(names, scalar.name)
        least, most = integer_limits(scalar.element)
        if not least <= value <= most:
            raise UsageError(f"{scalar.name} is {value}, which does not fit {scalar.element}")
    rounded: Any = np.array(value).astype(dtype)
    scalar_value: np.generic = rounded[()]
    return scalar_value


def infer_sizes(lines: LaunchLines, given: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the caller's sizes and those from the shapes of the given arrays; a contradiction is an error."""
    for name, size in sizes.items():
        if name not in lines.sizes:
            known = ", ".join(lines.sizes) or "none"
            hint = did_you_mean(name, lines.sizes)
            raise UsageError(f"{name!r} is not a size of this kernel{hint}; it has {known}")
        if size < 0:
            raise UsageError(f"size {name} is {size}")
    found = {name: (size, "the caller") for name, size in sizes.items()}
    for line in lines.arrays:
        if line.name not in given:
            continue
        shape = given[line.name].shape
        if len(shape) != len(line.shape):
            declared = ", ".join(size.text for size in line.shape)
            raise UsageError(f"array {line.name} has the shape {shape}, declared [{declared}]")
        for formula, size in zip(line.shape, shape, strict=True):
            if formula.name in lines.sizes:
                before = found.setdefault(formula.name, (size, f"array {line.name}"))
                if before[0] != size:
                    one, other = f"{before[0]} from {before[1]}", f"{size} from array {line.name}"
                    message = f"{formula.name} is {one} and {other}"
                    if formula.name in sizes:
                        raise UsageError(message)
                    raise NotTaken(f"{message}: the kernel has one size for both", f"the kernel has one {formula.name}")
    return {name: size for name, (size, _) in found.items()}


def take_arrays(lines: LaunchLines, arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Return NumPy views of the caller's arrays, in their declared types; shapes are not yet checked."""
    declared = {line.name: line for line in lines.arrays}
    taken: dict[str, Array] = {}
    for name, value in arrays.items():
        if name not in declared:
            known = ", ".join(declared) or "none"
            raise UsageError(f"{name!r} is not an array of this kernel{did_you_mean(name, declared)}; it has {known}")
        array = as_array(value)
        if array is None:
            raise UsageError(f"array {name} is a {type(value).__name__}; give a NumPy array or a CPU tensor")
        try:
            taken[name] = typed(array, declared[name].element)
        except UsageError as error:
            raise UsageError(f"array {name} {error}") from error
    return taken


def bind_arrays(
    lines: LaunchLines, file: str, taken: Mapping[str, Array], names: Names, *, seed: int
) -> dict[str, Array]:
    """Return every array of the file: the caller's, else generated; arrays that the kernel must fill are poisoned."""
    bound: dict[str, Array] = {}
    for line in lines.arrays:
        with at_line(file, line.line):
            shape = tuple(size.integer(names, f"the shape of {line.name}") for size in line.shape)
            if any(size < 0 for size in shape):
                raise UsageError(f"{line.name} would have the shape {shape}")
            if line.name in taken:
                bound[line.name] = _given(line, taken[line.name], shape)
            elif line.role in ("out", "workspace"):
                bound[line.name] = poisoned(shape, ELEMENT_TYPES[line.element])
            else:
                bound[line.name] = _generated(line, shape, names, seed)
    _refuse_overlap(lines, taken)
    for line in lines.arrays:
        if line.role in ("out", "workspace") and line.name in taken:
            bound[line.name].reshape(-1).view(np.uint8)[:] = 0xFF
    return bound


def outline_arrays(lines: LaunchLines, file: str, names: Names) -> dict[str, Array]:
    """Return every array of the file with type and shape only: one element represents all, so any size is cheap."""
    outlined: dict[str, Array] = {}
    for line in lines.arrays:
        with at_line(file, line.line):
            shape = tuple(size.integer(names, f"the shape of {line.name}") for size in line.shape)
            if any(size < 0 for size in shape):
                raise UsageError(f"{line.name} would have the shape {shape}")
            outlined[line.name] = np.broadcast_to(np.zeros((), ELEMENT_TYPES[line.element]), shape)
    return outlined


def _given(line: ArrayLine, array: Array, shape: tuple[int, ...]) -> Array:
    if array.shape != shape:
        raise UsageError(f"array {line.name} has the shape {array.shape}, declared {shape}")
    if line.role in ("in", "constant"):
        # Copy where the launch could not write back, so that a write by mistake is still detected.
        return array if array.flags.c_contiguous and array.flags.writeable else np.array(array, order="C")
    if not array.flags.writeable:
        raise LaunchError(f"array {line.name} is read-only and the kernel writes it")
    if not array.flags.c_contiguous:
        raise LaunchError(f"array {line.name} is not C-contiguous: pass np.ascontiguousarray({line.name})")
    return array


def _refuse_overlap(lines: LaunchLines, taken: Mapping[str, Array]) -> None:
    """Refuse arrays that share memory: poisoning an output must not destroy an input."""
    for line in lines.arrays:
        if line.role not in ("out", "workspace") or line.name not in taken:
            continue
        for other, array in taken.items():
            if other != line.name and np.may_share_memory(array, taken[line.name]):
                raise UsageError(f"{line.name} and {other} share memory; declare the array once, as inout")


def _generated(line: ArrayLine, shape: tuple[int, ...], names: Names, seed: int) -> Array:
    start = line.initialiser
    if start is None:
        raise UsageError(f"array {line.name} was not given, and its line has no initialiser such as `= normal`")
    rng = generator(seed, line.name)
    if start.bounds:
        low, high = (bound.value(names) for bound in start.bounds)
        values = uniform_between(rng, shape, line.element, low, high)
    else:
        values = FILLS[start.name](rng, shape, line.element)
    return np.ascontiguousarray(values.astype(ELEMENT_TYPES[line.element]))
