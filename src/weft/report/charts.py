"""Charts as SVG in the page's colours."""

from collections.abc import Sequence
from math import ceil, floor, log10

from weft.profile.roofline_points import Roofline

from .markup import Markup, tag
from .records import LaunchCost

WIDTH = 520
_LABEL = 122
_ROOM = WIDTH - _LABEL - 82
"""Width of bars, between their labels and their values."""


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line."""
    return tag("line", x1=_n(x1), y1=_n(y1), x2=_n(x2), y2=_n(y2), class_=kind)


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str | None = None) -> Markup:
    """Return one line of text."""
    return tag("text", content, x=_n(x), y=_n(y), text_anchor=anchor, class_=kind)


def chart(height: float, children: Sequence[Markup], label: str, *, width: float = WIDTH) -> Markup:
    """Return the frame of a chart."""
    return tag("svg", children, viewBox=f"0 0 {_n(width)} {_n(height)}", class_="chart", role="img", aria_label=label)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def bars(rows: Sequence[tuple[str, float, str]], *, most: float, marked: Sequence[int]) -> list[Markup]:
    """Return one row per bar: label, bar, value."""
    made = []
    for at, (label, value, value_text) in enumerate(rows):
        y = 10 + at * 24
        long = max(1.5, _ROOM * value / most) if most else 1.5
        strong = at in marked
        made.append(text(_LABEL - 8, y + 12, label, anchor="end", kind="strong" if strong else None))
        kind = "bound limiter" if strong else "bound"
        made.append(tag("rect", x=_LABEL, y=_n(y), width=_n(long), height=16, rx=2, class_=kind))
        made.append(text(_LABEL + long + 6, y + 12, value_text, kind="value"))
    return made


def bounds_chart(launch: LaunchCost) -> Markup:
    """Return the chart of the lower bounds by unit, with the range of the estimate."""
    low, high = launch.estimate
    most = max(high, *(cycles for _, cycles in launch.bounds))
    left, right = (_LABEL + _ROOM * end / most for end in (low, high))
    y = 18 + 24 * len(launch.bounds)
    rows = [(name, cycles, f"{cycles:,.0f}") for name, cycles in launch.bounds]
    limiter = [at for at, (name, _) in enumerate(launch.bounds) if name == launch.limiter]
    value_text = f"{low:,.0f} to {high:,.0f}" if low != high else f"{low:,.0f}"
    guess = [
        line(10, y - 7, WIDTH - 10, y - 7, "grid"),
        text(_LABEL - 8, y + 12, "estimate", anchor="end"),
        tag("rect", x=_n(left), y=_n(y), width=_n(max(3.0, right - left)), height=16, rx=2, class_="estimate"),
        text(left - 6, y + 12, value_text, anchor="end", kind="value"),
    ]
    return chart(y + 28, [*bars(rows, most=most, marked=limiter), *guess], f"Bounds of {launch.entry}")


def occupancy_chart(launch: LaunchCost) -> Markup:
    """Return the chart of the blocks per SM that each limit allows."""
    fewest = min(blocks for _, blocks in launch.occupancy)
    # A limit that is far away is not drawn to scale.
    most = min(max(blocks for _, blocks in launch.occupancy), 4 * fewest + 4)
    rows = [(name, float(min(blocks, most)), f"{blocks} blocks") for name, blocks in launch.occupancy]
    limits = [at for at, (_, blocks) in enumerate(launch.occupancy) if blocks == fewest]
    return chart(14 + 24 * len(rows), bars(rows, most=most, marked=limits), "Blocks per SM by each limit")


def roofline_chart(roofs: Roofline) -> Markup:
    """Return the roofline with logarithmic axes. The thick bar is the estimate's range, the triangle the bound."""
    left, right, top, bottom = 44, WIDTH - 22, 14, 240
    slope = roofs.bytes_per_second / 1e12
    high = [ceiling.flops / 1e12 for ceiling in roofs.ceilings]
    sure = max(ceiling.flops for ceiling in roofs.ceilings if ceiling.sure) / 1e12
    wide = [*(point.intensity for point in roofs.points), sure / slope]
    x0, x1 = floor(log10(min(wide) / 4)), ceil(log10(max(wide) * 4))
    low = [*(point.flop / point.estimate_seconds[1] / 1e12 for point in roofs.points), 10**x0 * slope]
    y0, y1 = floor(log10(min(low) / 1.5)), ceil(log10(max(high) * 1.3))

    def x(value: float) -> float:
        return left + (right - left) * (log10(value) - x0) / (x1 - x0)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (log10(value) - y0) / (y1 - y0)

    made: list[Markup] = []
    for power in range(x0, x1 + 1):
        made += [
            line(x(10.0**power), top, x(10.0**power), bottom, "grid"),
            text(x(10.0**power), bottom + 16, f"{10.0**power:,g}", anchor="middle"),
        ]
    for power in range(y0, y1 + 1):
        made += [
            line(left, y(10.0**power), right, y(10.0**power), "grid"),
            text(left - 6, y(10.0**power) + 4, f"{10.0**power:,g}", anchor="end"),
        ]
    made.append(line(left, y(10**x0 * slope), x(sure / slope), y(sure), "roof"))
    lowest = max(10.0**x0 * 1.3, 10.0**y0 / slope * 1.6)
    made.append(text(x(lowest) + 16, y(lowest * slope) + 16, f"DRAM {slope * 1e3:.0f} GB/s"))
    for ceiling in roofs.ceilings:
        height = ceiling.flops / 1e12
        kind = "roof" if ceiling.sure else "roof unsure"
        made.append(line(x(min(height, sure) / slope), y(height), right, y(height), kind))
        made.append(text(right - 2, y(height) - 5, f"{ceiling.label} {height:.1f}", anchor="end"))
    for point in roofs.points:
        made += _point(
            point.label,
            x(point.intensity),
            [y(point.flop / s / 1e12) for s in (*point.estimate_seconds, point.bound_seconds)],
            right,
        )
    if not roofs.points:
        made.append(text((left + right) / 2, (top + bottom) / 2, "no floating-point work: no point", anchor="middle"))
    made.append(text((left + right) / 2, bottom + 34, "FLOP per byte that DRAM must move", anchor="middle"))
    made.append(text(left + 4, top + 10, "TFLOP/s"))
    return chart(bottom + 42, made, "Roofline")


def _point(label: str, x: float, heights: Sequence[float], right: float) -> list[Markup]:
    best, worst, bound = heights
    anchor, side = ("end", -12) if x > right - 170 else ("start", 12)
    triangle = f"M{_n(x - 6)} {_n(bound - 4)}h12l-6 9z"
    return [
        line(x, worst, x, best, "span"),
        tag("path", d=triangle, class_="point"),
        text(x + side, worst + 4, label, anchor=anchor, kind="strong"),
    ]
