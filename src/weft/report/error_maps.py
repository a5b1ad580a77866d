"""Arrays → maps of their error, small enough for a page."""

from dataclasses import replace
from math import ceil, prod

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.error_report import difference

from .records import ErrorMap

MOST_CELLS = 72_000
"""Of a map, all slices together."""
MOST_ROWS, MOST_COLUMNS = 512, 256
"""Of a slice."""
MOST_SLICES = 64
MOST_EXACT = 8_192
"""Elements of a slice up to which both values of the worst one are kept beside the error."""


def error_map(
    blank: ErrorMap, actual: Array, expected: Array, *, observed: Array | None = None, limits: Array | None = None
) -> ErrorMap:
    """`blank` says what it is about; the slices, the error and, where there are few elements, the values are added.

    With `limits`, one for each element, the error is in units of them.
    """
    labels = _labels(actual.shape)
    out, want = (_three_axes(array.astype(np.float64)) for array in (actual, expected))
    error = np.abs(difference(out, want))
    allowed = None if limits is None else _three_axes(np.broadcast_to(limits, actual.shape))
    if allowed is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(error == 0, 0.0, error / allowed)
    if observed is not None:
        error = np.where(_three_axes(observed), error, np.nan)
    worst = np.nanmax(np.where(np.isnan(error), -1.0, error), axis=(1, 2))
    kept = np.sort(np.argsort(-worst, kind="stable")[:MOST_SLICES])
    made = replace(
        blank,
        slices=tuple(labels[i] for i in kept),
        error=error[kept],
        first_slice=int(np.argmax(worst[kept])),
        relative=allowed is not None,
    )
    made = _pooled(made)
    if error[0].size > MOST_EXACT or made.error.shape != error[kept].shape:
        return made
    at = kept[made.first_slice]
    return replace(made, actual=out[at], expected=want[at], limits=None if allowed is None else allowed[at])


def _labels(shape: tuple[int, ...]) -> tuple[str, ...]:
    lead = shape[:-2] if len(shape) != 3 else shape[:2]
    if len(lead) == 2:
        return tuple(f"batch {b} head {h}" for b in range(lead[0]) for h in range(lead[1]))
    return tuple(f"slice {', '.join(map(str, index))}" if index else "all" for index in np.ndindex(*lead))


def _three_axes(array: Array) -> Array:
    """(b, h, rows, columns) → (slices, rows, columns); (b, h, rows) has one column."""
    if array.ndim == 3:
        array = array[..., None]
    while array.ndim < 2:
        array = array[None]
    return array.reshape(prod(array.shape[:-2]), *array.shape[-2:])


def _pooled(made: ErrorMap) -> ErrorMap:
    """The worst of each cell, with as few elements in a cell as the page can afford."""
    count, rows, columns = made.error.shape
    down, across = ceil(rows / MOST_ROWS), ceil(columns / MOST_COLUMNS)
    while count * ceil(rows / down) * ceil(columns / across) > MOST_CELLS:
        if rows / down >= columns / across or across >= columns:
            down += 1
        else:
            across += 1
    if down == across == 1:
        return made
    padded = np.full((count, ceil(rows / down) * down, ceil(columns / across) * across), -1.0)
    padded[:, :rows, :columns] = np.where(np.isnan(made.error), -1.0, made.error)
    cells = padded.reshape(count, padded.shape[1] // down, down, padded.shape[2] // across, across).max(axis=(2, 4))
    return replace(made, error=np.where(cells < 0, np.nan, cells), rows_per_cell=down, columns_per_cell=across)
