"""An array in one line: its extremes, its mean, and how many of its elements are NaN."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .arguments import Array
from .element_types import ELEMENT_TYPES

_NAMES = {dtype: name for name, dtype in ELEMENT_TYPES.items()}


@dataclass(frozen=True)
class ArraySummary:
    """Figures over the elements that are not NaN; None if there are none."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("output", "type", "shape", "min", "max", "mean", "NaN")

    name: str
    element: str
    shape: tuple[int, ...]
    least: float | int | None
    most: float | int | None
    mean: float | None
    nan_count: int

    def row(self) -> tuple[str, ...]:
        """For a table."""
        shape = "×".join(map(str, self.shape))
        figures = (_figure(value) for value in (self.least, self.most, self.mean))
        return (self.name, self.element, shape, *figures, str(self.nan_count))

    def record(self) -> dict[str, object]:
        """For JSON, which has no infinity: it is written as text."""
        return {
            "name": self.name,
            "type": self.element,
            "shape": self.shape,
            "min": _json(self.least),
            "max": _json(self.most),
            "mean": _json(self.mean),
            "nan_count": self.nan_count,
        }


def summarise(name: str, array: Array) -> ArraySummary:
    """Figures of one array, in double precision; integers keep theirs."""
    element = _NAMES[array.dtype]
    if array.dtype.kind in "iub":
        wide, nan_count = array.reshape(-1), 0
    else:
        floats = array.astype(np.float64).reshape(-1)
        wide = floats[~np.isnan(floats)]
        nan_count = floats.size - wide.size
    if not wide.size:
        return ArraySummary(name, element, array.shape, None, None, None, nan_count)
    least, most = wide.min().item(), wide.max().item()
    with np.errstate(invalid="ignore"):  # +inf and -inf have no mean
        mean = float(wide.mean(dtype=np.float64))
    return ArraySummary(name, element, array.shape, int_or_float(least), int_or_float(most), mean, nan_count)


def int_or_float(value: float | int | bool) -> float | int:
    """A bool counts as 0 or 1."""
    return int(value) if isinstance(value, bool) else value


def _figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _json(value: float | int | None) -> float | int | str | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
