"""`tensormap(q, box=(64, 64), swizzle=128)` in a launch line: a tensor map of an array, passed by value."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.errors import LaunchError, UsageError
from weft.vm.tensor_map import BYTES, FILL_NAN, FILL_ZERO, SWIZZLES, TYPES, of_array

from .arguments import Array, EncodedByAddress
from .expressions import Expression, Number
from .launch_records import MapArgument

CALL = "tensormap("
_WORDS = ("box", "swizzle", "shape", "fill")


def parse_map(text: str) -> MapArgument:
    """Read `tensormap(array, box=(…), swizzle=…, shape=(…), fill=nan)`; only the box is required."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"{text!r}: {error.msg}") from None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
        raise UsageError(f"{text!r}: write tensormap(array, box=(rows, columns), swizzle=128)")
    given = {word.arg: word.value for word in call.keywords}
    if unknown := [str(word) for word in given if word not in _WORDS]:
        raise UsageError(f"{text!r}: tensormap takes {', '.join(_WORDS)}, not {', '.join(unknown)}")
    if "box" not in given:
        raise UsageError(f"{text!r}: the box is missing, as in box=(64, 64)")
    fill = ast.unparse(given["fill"]) if "fill" in given else "zero"
    if fill not in ("zero", "nan"):
        raise UsageError(f"{text!r}: fill is zero or nan, not {fill}")
    swizzle = Expression.parse(ast.unparse(given["swizzle"])) if "swizzle" in given else None
    shape = _formulas(given["shape"]) if "shape" in given else ()
    return MapArgument(text, call.args[0].id, _formulas(given["box"]), shape, swizzle, fill == "nan")


def _formulas(tree: ast.expr) -> tuple[Expression, ...]:
    items = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return tuple(Expression.parse(ast.unparse(item)) for item in items)


@dataclass(frozen=True)
class PassedMap(EncodedByAddress):
    """A tensor map whose array has no device address yet."""

    array: Array
    shape: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    fill: int

    def encode(self, address: int) -> bytes:
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * size)
        made = of_array(
            address, self.shape, strides, self.box, _elemtype(self.array), swizzle=self.swizzle, fill=self.fill
        )
        return made.encode()


def _elemtype(array: Array) -> int:
    """Return the number of the type; types that tensor maps do not know are their bits."""
    known = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int32": "s32", "int64": "s64"}
    return TYPES.index(known.get(array.dtype.name, f"u{8 * array.itemsize}"))


def passed_map(of: MapArgument, names: Mapping[str, Number | str], arrays: Mapping[str, Array], size: int) -> PassedMap:
    """Return the value of a map for a parameter of `size` bytes."""
    if of.array not in arrays:
        raise LaunchError(f"{of.text}: {of.array} is not an array")
    if size != BYTES:
        raise LaunchError(f"{of.text} has {BYTES} bytes; the kernel's parameter has {size}")
    array = arrays[of.array]
    shape = tuple(each.integer(names, "shape") for each in of.shape) or array.shape
    if of.shape and int(array.size) < _product(shape):
        raise LaunchError(f"{of.text}: {of.array} has {array.size} elements, the map {_product(shape)}")
    width = of.swizzle.integer(names, "swizzle") if of.swizzle is not None else 0
    if width not in SWIZZLES:
        raise LaunchError(f"{of.text}: swizzle {width} does not exist; it is 0, 32, 64 or 128 bytes")
    box = tuple(each.integer(names, "box") for each in of.box)
    return PassedMap(array, shape, box, SWIZZLES[width], FILL_NAN if of.nan else FILL_ZERO)


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
