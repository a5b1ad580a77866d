"""Compares two arrays: the figures that show what kind of error there is, and where."""

from dataclasses import dataclass

import numpy as np

from .dtypes import Array
from .errors import ContractError

BLOCK_ROWS = 64
"""Rows judged together, so that one bad block does not disappear in an average."""


@dataclass(frozen=True)
class Block:
    """Up to 64 rows of one head."""

    batch: int
    head: int
    first_row: int

    def __str__(self) -> str:
        return f"batch {self.batch} head {self.head} rows from {self.first_row}"


@dataclass(frozen=True)
class ErrorReport:
    """actual - expected over (b, h, s, d). A NaN on either side is an infinite error, so no comparison passes it."""

    max: float
    mean: float
    """The mean of magnitudes."""
    bias: float
    """The signed mean: rounding causes none, a wrong constant does. NaN if any element is."""
    rel_l2: float
    cosine: float
    rmse: float
    bad_share: float
    """The share of elements off by more than 0.05 of the largest expected magnitude."""
    sign_flips: int
    worst: tuple[int, ...]
    """The index of the largest error."""

    @property
    def worst_block(self) -> Block:
        """The block with the largest error."""
        batch, head, row = self.worst[:3]
        return Block(batch, head, row - row % BLOCK_ROWS)


def difference(actual: Array, expected: Array) -> Array:
    """Return actual - expected in float64; equal infinities differ by 0, anything with NaN by infinity."""
    if actual.shape != expected.shape:
        raise ContractError(f"cannot compare {actual.shape} with {expected.shape}")
    a, e = actual.astype(np.float64, copy=False), expected.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):  # equal infinities are taken care of
        apart = a - e
    apart += 0.0  # -0 becomes 0
    unclear = np.isnan(apart)
    if unclear.any():
        apart[unclear] = np.where(a[unclear] == e[unclear], 0.0, np.inf)
    return apart


def block_max(values: Array) -> Array:
    """Return the largest value of each block of 64 rows: (b, h, s, d) → (b, h, blocks)."""
    return np.asarray(np.maximum.reduceat(values.max(axis=-1), _starts(values), axis=2))


def block_mean(values: Array) -> Array:
    """Return the mean of each block of 64 rows: (b, h, s, d) → (b, h, blocks)."""
    starts = _starts(values)
    rows = np.diff(np.append(starts, values.shape[2]))
    return np.asarray(np.add.reduceat(values.mean(axis=-1), starts, axis=2) / rows)


def block_rms(values: Array) -> Array:
    """Return the root mean square of each block of 64 rows; scaled, so that squares stay finite."""
    unit = float(np.abs(values).max(initial=0.0))
    if unit == 0 or not np.isfinite(unit):
        return block_max(np.abs(values))
    return np.asarray(np.sqrt(block_mean((values / unit) ** 2)) * unit)


def _starts(values: Array) -> Array:
    return np.arange(0, values.shape[2], BLOCK_ROWS)


def compare(actual: Array, expected: Array, *, bad_above: float = 0.05) -> ErrorReport:
    """Return the report on (b, h, s, d) arrays. An element is bad if off by more than `bad_above` of max|expected|."""
    if actual.ndim != 4 or not actual.size:
        raise ContractError(f"a report needs (b, h, s, d) arrays that are not empty, not {actual.shape}")
    apart = difference(actual, expected)
    size = np.abs(apart)
    a, e = actual.astype(np.float64), expected.astype(np.float64)
    finite_e = np.abs(e[np.isfinite(e)])
    threshold = bad_above * (finite_e.max() if finite_e.size else 0.0)
    # All figures are scaled by the largest magnitude, so that squares of values near a type's limit stay finite.
    unit = max(float(size.max()) if np.isfinite(size.max()) else 0.0, float(finite_e.max(initial=0.0))) or 1.0
    squares, energy = float(((size / unit) ** 2).mean()), float(((finite_e / unit) ** 2).sum() / e.size)
    broken = not np.isfinite(size).all()
    place = np.unravel_index(int(size.argmax()), size.shape)
    return ErrorReport(
        max=float(size.max()),
        mean=float(size.mean()),
        bias=float("nan") if broken else float(apart.mean()),
        rel_l2=_ratio(squares, energy) ** 0.5,
        cosine=float("nan") if broken else _cosine(a / unit, e / unit),
        rmse=squares**0.5 * unit,
        bad_share=float((size > threshold).mean()),
        sign_flips=int((np.sign(a) * np.sign(e) < 0).sum()),
        worst=tuple(int(i) for i in place),
    )


def _ratio(part: float, whole: float) -> float:
    if whole > 0:
        return part / whole
    return 0.0 if part == 0 else float("inf")


def _cosine(a: Array, e: Array) -> float:
    """Return 1 for the same direction and for two zeros, 0 for a zero and another value."""
    both = np.isfinite(a) & np.isfinite(e)  # only equal infinities are left out
    a, e = a[both], e[both]
    norms = float(np.linalg.norm(a) * np.linalg.norm(e))
    if norms == 0:
        return 1.0 if not a.any() and not e.any() else 0.0
    return float((a * e).sum() / norms)
