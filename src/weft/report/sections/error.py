"""The error over the output: a canvas that error_map.js paints from the levels in the page."""

import base64
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array

from ..markup import Markup, tag
from ..records import ErrorMap, KernelReport
from .parts import data_block, section

TOP, UNSEEN, BROKEN = 250, 254, 255
"""Levels: 0 is no error, 1 to 250 a logarithmic scale; the same as in error_map.js."""
KNEE = 90
"""The level of an element's limit, if it is known: errors within the limit stay pale."""
DECADES = 6
BELOW = 3
"""Decades below the limit, and at least as many above it."""
LEAST = 1e-12


@dataclass(frozen=True)
class Scale:
    """The scale's ends as powers of ten; for errors in units of their limit, the limit is between them."""

    low: float
    high: float
    relative: bool

    def levels(self, error: Array) -> Array:
        """Return one byte for each cell."""
        with np.errstate(divide="ignore", invalid="ignore"):
            power = np.log10(error)
        if self.relative:
            beyond = _between(power, 0, self.high, KNEE + 1, TOP)
            shown = np.where(error <= 1, _between(power, self.low, 0, 1, KNEE), beyond)
        else:
            shown = _between(power, self.low, self.high, 1, TOP)
        shown = np.where(error > 10**self.low, shown, 0)
        shown = np.where(np.isnan(error), UNSEEN, np.where(np.isinf(error), BROKEN, np.nan_to_num(shown)))
        return np.asarray(shown.astype(np.uint8))


def _between(power: Array, low: float, high: float, first: int, last: int) -> Array:
    share = np.clip((power - low) / max(high - low, 1e-9), 0, 1)
    return np.asarray(np.rint(first + share * (last - first)))


def error_section(report: KernelReport) -> Markup:
    """Return the maps to choose from, or the reason why there is none."""
    if not report.maps:
        return section("error", "Error over the output", f"There is no map: {report.no_map}.")
    lead = "The error of each element, on a logarithmic scale"
    lead += ", in units of its limit." if report.maps[0].relative else "."
    single = len(report.maps) == 1
    radios = [
        tag(
            "label",
            tag("input", type="radio", name="map", value=number, checked=number == 0),
            tag("span", each.name),
        )
        for number, each in enumerate(report.maps)
    ]
    controls = tag(
        "div",
        tag("fieldset", tag("legend", "Map"), radios, hidden=single),
        tag("label", tag("span", "Batch and head", class_="visually-hidden"), tag("select", id="map-slice")),
        class_="map-controls",
    )
    label = "Error over the output; arrow keys move from element to element"
    canvas = tag(
        "canvas", id="map-canvas", tabindex=0, role="application", aria_label=label, aria_describedby="map-readout"
    )
    body = tag("div", tag("div", canvas, class_="map-frame"), _readout(), class_="map-body")
    panel = tag(
        "div", controls, body, tag("p", id="map-about", class_="map-about"), class_="panel", id="map", hidden=True
    )
    without = tag("noscript", tag("p", "The map needs the script inside this file; the figures above do not."))
    return section(
        "error", "Error over the output", lead, panel, without, data_block("map-data", map_data(report.maps))
    )


def _readout() -> Markup:
    names = (("row", "query"), ("column", "column"))
    pairs = [[tag("dt", text, id=f"map-{name}-name"), tag("dd", id=f"map-{name}")] for name, text in names]
    for name, text in (("expected", "expected"), ("actual", "actual"), ("tile", "tile of queries"), ("warp", "warp")):
        pairs.append([tag("dt", text), tag("dd", id=f"map-{name}")])
    stops = [f'<stop offset="{i / 5}" class="stop-{i}"/>' for i in range(6)]
    gradient = Markup(
        '<svg viewBox="0 0 200 10" preserveAspectRatio="none" height="10" aria-hidden="true"><defs>'
        f'<linearGradient id="ramp">{"".join(stops)}</linearGradient></defs>'
        '<rect width="200" height="10" rx="2" fill="url(#ramp)"/>'
        f'<path id="map-knee" class="knee" d="M{200 * KNEE / TOP:.0f} 0v10"/></svg>'
    )
    keys = tag(
        "div",
        tag("span", tag("i", class_="tile"), "tile", id="map-key-tile"),
        tag("span", tag("i", class_="warp"), "warp", id="map-key-warp"),
        tag("span", tag("i", class_="nan"), "NaN"),
        tag("span", tag("i", class_="unseen"), "not observed"),
        class_="keys",
    )
    moves = (("←↑→↓", "element"), ("PgUp PgDn", "tile"), ("Home End", "row's ends"), ("w", "worst"))
    helped = [[tag("kbd", key), f" {text}", Markup(" · ") if key != "w" else None] for key, text in moves]
    return tag(
        "div",
        tag(
            "div",
            tag("p", id="map-error", class_="big"),
            tag("p", id="map-against", class_="verdict-line"),
            tag("dl", pairs),
            id="map-readout",
            aria_live="polite",
        ),
        tag(
            "div",
            gradient,
            tag("div", [tag("span", id=f"map-{end}") for end in ("low", "middle", "high")], class_="scale"),
            class_="legend",
        ),
        keys,
        tag("p", helped, class_="help"),
        class_="readout",
    )


def map_data(maps: tuple[ErrorMap, ...]) -> list[dict[str, object]]:
    """Return the data for the script."""
    return [_map(each) for each in maps]


def _map(each: ErrorMap) -> dict[str, object]:
    finite = each.error[np.isfinite(each.error) & (each.error > LEAST)]
    high = float(np.log10(finite.max())) if finite.size else 0.0
    low = max(high - DECADES, float(np.log10(LEAST)))
    if each.relative:
        low, high = -float(BELOW), max(high, float(BELOW))
    scale = Scale(low, high, each.relative)
    _, rows, columns = each.error.shape
    return {
        "about": each.about + _pooling(each),
        "rowName": each.row_name,
        "columnName": each.column_name,
        "rows": rows,
        "columns": columns,
        "firstRow": each.first_row,
        "firstColumn": each.first_column,
        "downPerCell": each.rows_per_cell,
        "acrossPerCell": each.columns_per_cell,
        "first": each.first_slice,
        "low": low,
        "high": high,
        "relative": each.relative,
        "tiles": each.tiles,
        "warps": each.warps,
        "warpColumns": each.warp_columns,
        "slices": [
            {"label": label, "worst": _worst(error, each.relative), "levels": _base64(scale.levels(error))}
            for label, error in zip(each.slices, each.error, strict=True)
        ],
        "actual": _base64(each.actual.astype("<f4")) if each.actual is not None else None,
        "expected": _base64(each.expected.astype("<f4")) if each.expected is not None else None,
        "limits": _base64(each.limits.astype("<f4")) if each.limits is not None else None,
    }


def _pooling(each: ErrorMap) -> str:
    if each.rows_per_cell == each.columns_per_cell == 1:
        return ""
    return f" · a cell is the worst of {each.rows_per_cell} × {each.columns_per_cell} elements"


def _worst(error: Array, relative: bool) -> str:
    seen = error[~np.isnan(error)]
    if not seen.size:
        return "not observed"
    if not np.isfinite(seen.max()):
        return "NaN"
    return f"{seen.max():,.3g} × its limit" if relative else f"{seen.max():.2g}"


def _base64(array: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
