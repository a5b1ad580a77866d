"""A picture of a diagnosis: the error over O and over the first wrong stage, with the outlines of tiles and warps."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from weft.attention.dtypes import Array
from weft.core.errors import ToolMissing, UsageError

from .compare import BY_KEY, Mask
from .outlines import outlines
from .records import Case, Diagnosis, Divergence
from .taps import StageTap

INSTALL = "pip install matplotlib"
LEAST = 1e-9
"""Errors are drawn on a logarithmic scale from here."""


def require_matplotlib() -> Any:
    """Return matplotlib.pyplot without a screen; raises ToolMissing with the install command where it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ToolMissing(f"--png needs matplotlib: {INSTALL}") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(diagnosis: Diagnosis, path: Path) -> bool:
    """Write the picture; False if there is nothing to draw: the kernel did not run, or its task is not attention."""
    pyplot = require_matplotlib()
    case, first = diagnosis.case, diagnosis.first
    if case.attention is None or case.o is None or diagnosis.healthy:
        return False
    panels = 1 if first is None or first.stage == "o" else 2
    figure, axes = pyplot.subplots(1, panels, figsize=(7.5 * panels, 6), squeeze=False)
    head = first.index[:2] if first is not None else (0, 0)
    kv_group = case.attention.workload.shape.group
    q_head = (head[0], head[1] * kv_group) if first is not None and first.stage in ("k", "v") else head
    error = np.abs(case.o.astype(np.float64) - case.attention.gold.o)[q_head]
    title = f"|O - reference|, batch {q_head[0]} head {q_head[1]}"
    _panel(figure, axes[0][0], error, title, ("column", "query"), nan=np.isnan(case.o.astype(np.float64))[q_head])
    _boundaries(axes[0][0], case, case.taps.at("o") if case.taps is not None else None, q_head)
    if panels == 2 and first is not None:
        _stage(figure, axes[0][1], case, first)
    figure.suptitle(f"{case.candidate.path.name}: {case.verdict.status}")
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error_writing:
        raise UsageError(f"cannot write {path}: {error_writing}") from error_writing
    finally:
        pyplot.close(figure)
    return True


def _stage(figure: Any, axis: Any, case: Case, first: Divergence) -> None:
    with np.errstate(invalid="ignore"):
        error = np.abs(first.actual - first.expected)
    error = np.where(first.actual == first.expected, 0.0, error)[first.index[:2]]
    error = np.where(first.observed[first.index[:2]], error, np.nan)
    nan = (first.observed & np.isnan(first.actual))[first.index[:2]]
    by_key = first.stage in BY_KEY
    names = ("key" if by_key else "column", "key" if first.stage in ("k", "v") else "query")
    if error.ndim == 1:
        error, nan, names = error[:, None], nan[:, None], ("", names[1])
    title = f"|{first.stage} - expected|" + ("" if first.tile is None else f", KV tile {first.tile}")
    left = first.keys.start if by_key else 0
    top = first.keys.start if first.stage in ("k", "v") else 0
    _panel(figure, axis, error, f"{title}, grey: not observed", names, nan=nan, origin=(left, top))
    if first.stage not in ("k", "v"):
        tap = case.taps.at(first.stage, first.tile) if case.taps is not None else None
        _boundaries(axis, case, tap, first.index[:2])


def _panel(
    figure: Any,
    axis: Any,
    error: Array,
    title: str,
    names: tuple[str, str],
    *,
    nan: Mask,
    origin: tuple[int, int] = (0, 0),
) -> None:
    shown = np.log10(np.maximum(error, LEAST))
    rows, columns = error.shape
    left, top = origin
    extent = (left - 0.5, left + columns - 0.5, top + rows - 0.5, top - 0.5)
    finite = shown[np.isfinite(shown)]
    high = max(float(finite.max()) if finite.size else 0.0, math.log10(LEAST) + 1)
    axis.set_facecolor("0.8")
    image = axis.imshow(
        np.where(np.isposinf(shown), high, shown),
        aspect="auto",
        interpolation="nearest",
        extent=extent,
        vmax=high,
        vmin=max(high - 6, math.log10(LEAST)),
        cmap="inferno",
    )
    figure.colorbar(image, ax=axis, label="log10 of the error")
    if nan.any():
        title += f", red: NaN ({int(nan.sum())} of {nan.size})"
        red = np.where(nan, 1.0, np.nan)
        axis.imshow(red, aspect="auto", interpolation="nearest", extent=extent, cmap="Set1", vmin=1, vmax=9)
    axis.set(title=title, xlabel=names[0], ylabel=names[1])


def _boundaries(axis: Any, case: Case, tap: StageTap | None, head: tuple[int, ...]) -> None:
    """Draw the CTAs' tiles of queries as solid lines, and changes of the warp as dotted ones."""
    lines = outlines(case, tap, head)
    for row in lines.tiles:
        axis.axhline(row - 0.5, color="white", linewidth=1.2)
    for row in lines.warp_rows:
        axis.axhline(row - 0.5, color="cyan", linewidth=1.4, linestyle=":")
    left = math.ceil(axis.get_xlim()[0])
    for column in lines.warp_columns:
        axis.axvline(left + column - 0.5, color="cyan", linewidth=1.4, linestyle=":")
