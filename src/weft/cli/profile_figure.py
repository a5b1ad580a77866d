"""`weft profile --png`: draw the roofline, the bounds by unit, and the busiest unit of each costly line."""

from pathlib import Path
from typing import Any

from weft.core.errors import UsageError
from weft.diagnose.figure import require_matplotlib
from weft.profile.kernel_profile import KernelProfile, LaunchProfile
from weft.profile.line_costs import LineCost
from weft.profile.roofline_points import Roofline, roofline

from .profile_output import place

LINES = 10
"""Lines drawn per launch."""
LAUNCHES = 3
"""Number of launches with a panel of lines: the longest ones."""
LEAST = 0.005
"""Smallest share of the costliest line that is drawn."""
CODE = 64
"""Characters of a source line."""
UNITS = {
    "tensor": "#2a6f97", "fma": "#61a5c2", "alu": "#a9d6e5", "mufu": "#9d4edd", "issue": "#8d99ae", "lsu": "#f4a261",
    "smem": "#e76f51", "tags": "#e9c46a", "sectors": "#b5838d", "l2": "#6d6875", "latency": "#ced4da",
    "dram": "#264653",
}  # fmt: skip
WASTE = "#9b2226"
STYLE = {
    "font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
    "figure.titlesize": 12, "figure.titleweight": "bold",
}  # fmt: skip


def draw(profile: KernelProfile, path: Path) -> None:
    """Draw the roofline and the bounds, and below them the lines of each launch; PNG, SVG or PDF by the file name."""
    pyplot = require_matplotlib()
    shown = sorted(profile.launches, key=lambda launch: -launch.bounds.warm)[:LAUNCHES]
    heights = [4.4, *(1.1 + 0.3 * min(LINES, len(launch.lines)) for launch in shown)]
    sizes = " ".join(f"{name}={value}" for name, value in {**profile.sizes, **profile.defines}.items())
    with pyplot.rc_context(STYLE):
        figure = pyplot.figure(figsize=(13, sum(heights) + 0.4), layout="constrained")
        # Separate rows: long labels of lines must not narrow the roofline.
        head, *rows = figure.subfigures(len(heights), 1, height_ratios=heights)
        left, right = head.subplots(1, 2, width_ratios=(1.2, 1))
        _roofline(left, roofline(profile))
        _bounds(right, profile.longest)
        for row, launch in zip(rows, shown, strict=True):
            _lines(row.subplots(), launch)
        figure.suptitle(f"{profile.target} on {profile.chip.title} · {sizes} · modelled, not measured")
        try:
            figure.savefig(path, dpi=120)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot write {path}: {error}") from error
        finally:
            pyplot.close(figure)


def _roofline(axis: Any, roofs: Roofline) -> None:
    """Draw with logarithmic axes. The thick bar is the estimate's range; the triangle is the upper bound."""
    slope = roofs.bytes_per_second / 1e12
    top = max(ceiling.flops for ceiling in roofs.ceilings if ceiling.sure) / 1e12
    wide = [*(point.intensity for point in roofs.points), top / slope]
    left, right = min(wide) / 12, max(wide) * 12
    high = [ceiling.flops / 1e12 for ceiling in roofs.ceilings]
    low = [*(point.flop / point.estimate_seconds[1] / 1e12 for point in roofs.points), left * slope]
    axis.set(xscale="log", yscale="log", xlim=(left, right), ylim=(min(low) / 3, max(high) * 2))
    axis.plot([left, top / slope], [left * slope, top], color=UNITS["dram"], linewidth=1.8)
    axis.annotate(
        f"DRAM {slope * 1e3:.0f} GB/s",
        (left * 1.5, left * 1.5 * slope),
        xytext=(10, -10),
        textcoords="offset points",
        color=UNITS["dram"],
    )
    for ceiling in roofs.ceilings:
        height = ceiling.flops / 1e12
        style = "-" if ceiling.sure else (0, (4, 3))
        axis.plot([min(height, top) / slope, right], [height, height], color="#6c757d", linewidth=1.4, linestyle=style)
        text = f"{ceiling.label}: {height:.1f}"
        axis.annotate(text, (right, height), xytext=(-2, 2), textcoords="offset points", ha="right", va="bottom")
    for number, point in enumerate(roofs.points):
        colour = f"C{number}"
        worst, best = (point.flop / seconds / 1e12 for seconds in reversed(point.estimate_seconds))
        bound = point.flop / point.bound_seconds / 1e12
        axis.plot([point.intensity] * 2, [worst, best], color=colour, linewidth=8, alpha=0.45, solid_capstyle="butt")
        axis.plot(point.intensity, bound, "v", color=colour, markersize=8)
        text = f"{point.label}\nLB_cold: at most {bound:.3g}\nEST_cold: {worst:.3g} to {best:.3g}"
        axis.annotate(
            text,
            (point.intensity, worst),
            xytext=(9, 4),
            textcoords="offset points",
            color=colour,
            va="top",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
    if not roofs.points:
        axis.text(0.5, 0.3, "no floating-point work: no point", transform=axis.transAxes, ha="center")
    for labels in (axis.xaxis, axis.yaxis):
        labels.set_minor_formatter("")
    axis.set(xlabel="FLOP per byte that DRAM must move", ylabel="TFLOP/s")
    axis.set_title(f"Roofline, FLOP {roofs.meaning}", loc="left")
    axis.grid(which="major", alpha=0.25)


def _bounds(axis: Any, launch: LaunchProfile) -> None:
    terms = sorted(launch.bounds.terms.items(), key=lambda term: -term[1])
    axis.barh(range(len(terms)), [cycles for _, cycles in terms], color=[UNITS[name] for name, _ in terms])
    axis.set_yticks(range(len(terms)), [name for name, _ in terms])
    for at, (_, cycles) in enumerate(terms):
        axis.annotate(
            f"{cycles:,.0f}", (cycles, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axis.axvspan(launch.warm.low, max(launch.warm.high, launch.warm.low * 1.004), alpha=0.25, color="#f4a261", zorder=0)
    axis.annotate(
        "EST_warm", (launch.warm.low, len(terms) - 0.6), xytext=(4, 0), textcoords="offset points", color="#bc6c25"
    )
    axis.set_xlim(0, 1.12 * max(launch.warm.high, terms[0][1]))
    axis.invert_yaxis()
    axis.set_xlabel("cycles at least, by unit")
    axis.locator_params(axis="x", nbins=5)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    warm, cold = launch.bounds.warm_limiter, launch.bounds.cold_limiter
    axis.set_title(f"{launch.entry}: {warm} limits it" + (f", {cold} if cold" if cold != warm else ""), loc="left")


def _lines(axis: Any, launch: LaunchProfile) -> None:
    """Draw the costliest line on top; the hatched part is lost to bank conflicts."""
    shown = [line for line in launch.lines[:LINES] if line.cycles > LEAST * launch.lines[0].cycles]
    axis.barh(
        range(len(shown)), [line.cycles for line in shown], color=[UNITS[line.unit] for line in shown], height=0.72
    )
    for at, line in enumerate(shown):
        wasted = line.cycles * line.excess / line.wavefronts if line.unit == "smem" and line.wavefronts else 0.0
        if wasted:
            axis.barh(at, wasted, left=line.cycles - wasted, height=0.72, color="none", edgecolor=WASTE, hatch="////")
        text = f"{line.cycles:,.0f} {line.unit}" + (", hatched: bank conflicts" if wasted else "")
        axis.annotate(text, (line.cycles, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(range(len(shown)), [_label(line) for line in shown], family="monospace", fontsize=8)
    axis.set_xlim(0, 1.35 * max((line.cycles for line in shown), default=1.0))
    axis.invert_yaxis()
    axis.set_xlabel("cycles of the line's busiest unit")
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.set_title(f"{launch.entry}: lines that cost most", loc="left")


def _label(line: LineCost) -> str:
    """Return the line's code and place."""
    if line.place is None:
        return place(None)
    code = _code(line.place.file, line.place.line).replace("$", r"\$")
    number = place(line.place).rpartition("/")[2]
    return f"{code if len(code) <= CODE else code[: CODE - 1] + '…'}  {number}"


def _code(file: str, line: int) -> str:
    """Return the source line, or an empty text for a file that cannot be read."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return " ".join(lines[line - 1].partition("//")[0].split()) if 0 < line <= len(lines) else ""
