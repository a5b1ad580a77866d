"""Element types of launch lines, and how `weft run` fills an array that the caller does not pass."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from weft.core.errors import UsageError

from .arguments import Array

ELEMENT_TYPES: Mapping[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}") for sign in "iu" for bits in (8, 16, 32, 64)},
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "bool": np.dtype(np.bool_),
}
"""Name in a launch line → NumPy type."""

CPP_TYPES: Mapping[str, str] = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "__nv_bfloat16": "bf16", "bool": "bool",
    "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "int": "i32", "unsigned": "u32", "unsigned int": "u32",
    "char": "i8", "signed char": "i8", "unsigned char": "u8", "short": "i16", "unsigned short": "u16",
    "long": "i64", "unsigned long": "u64", "long long": "i64", "unsigned long long": "u64", "size_t": "u64",
    **{f"int{bits}_t": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Name in C++ → name in a launch line."""

TYPE_WORDS: Mapping[str, str] = {
    **{name: element for name, element in CPP_TYPES.items() if name.isidentifier()},
    "fp16": "f16", "float16": "f16", "bfloat16": "bf16", "nv_bfloat16": "bf16", "fp32": "f32", "float32": "f32",
    "fp64": "f64", "float64": "f64", "fp8_e4m3": "e4m3", "float8_e4m3fn": "e4m3", "fp8_e5m2": "e5m2",
    "float8_e5m2": "e5m2",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}, **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Name of a type in C++, NumPy or PyTorch → its name in a launch line."""

WITHOUT_TWIN = frozenset(("bf16", "e4m3", "e5m2"))
"""Types that NumPy lacks: a tensor or a saved file gives their bits."""


def is_float(element: str) -> bool:
    """Whether the type is a floating-point type."""
    return element[0] in "fbe" and element != "bool"


def integer_limits(element: str) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type or of bool."""
    if element == "bool":
        return 0, 1
    limits = np.iinfo(ELEMENT_TYPES[element])
    return int(limits.min), int(limits.max)


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return bytes of 0xFF, NaN in every float type, so that an element that was never written shows."""
    size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.full(size_bytes, 0xFF, np.uint8).view(dtype).reshape(shape)


def typed(array: Array, element: str) -> Array:
    """Return the array as its declared type; for types that NumPy lacks, as bits. Never copies."""
    dtype = ELEMENT_TYPES[element]
    if array.dtype == dtype:
        return array
    bits = element in WITHOUT_TWIN and array.dtype.kind in "iuV"
    if array.dtype.itemsize == dtype.itemsize and (bits or (element == "bool" and array.dtype == np.uint8)):
        return array.view(dtype)
    raise UsageError(f"is {array.dtype}, declared {element} ({dtype})")


Fill = Callable[[np.random.Generator, tuple[int, ...], str], Array]


def _normal(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> Array:
    if not is_float(element):
        others = "uniform(low, high), arange, zeros or ones"
        raise UsageError(f"normal is only for floating-point types, not {element}; use {others}")
    return rng.standard_normal(shape)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> Array:
    if is_float(element):
        return rng.random(shape)
    if element == "bool":
        return rng.integers(0, 2, shape)
    raise UsageError(f"uniform of {element} needs its range: uniform(low, high), high excluded")


FILLS: Mapping[str, Fill] = {
    "normal": _normal,
    "uniform": _uniform,
    "zeros": lambda rng, shape, element: np.zeros(shape),
    "ones": lambda rng, shape, element: np.ones(shape),
    "arange": lambda rng, shape, element: np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape),
}
"""Initialiser → values, rounded to the array's type afterwards."""


def uniform_between(rng: np.random.Generator, shape: tuple[int, ...], element: str, low: float, high: float) -> Array:
    """Return random values with low <= x < high."""
    if not low < high:
        raise UsageError(f"uniform({low}, {high}) is empty")
    if is_float(element):
        return rng.uniform(low, high, shape)
    least, most = integer_limits(element)
    if isinstance(low, float) or isinstance(high, float) or low < least or high - 1 > most:
        raise UsageError(f"uniform({low}, {high}) does not fit {element}")
    return rng.integers(low, high, shape, dtype=np.int64 if low < 0 else np.uint64)


def generator(seed: int, name: str) -> np.random.Generator:
    """Return a random stream per array, so that adding an array changes no other."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])
