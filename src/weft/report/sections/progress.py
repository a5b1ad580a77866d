"""The score over evaluations: every candidate, and the best so far."""

from collections.abc import Callable
from math import log10

from ..charts import line, text
from ..lineage import mark
from ..markup import Markup, tag
from ..records import CandidateView, SearchReport
from .parts import section

WIDTH, HEIGHT = 960, 280
LEFT, RIGHT, TOP, BOTTOM = 66, 16, 14, 40


def progress_section(report: SearchReport) -> Markup:
    """Return the chart: scores on a logarithmic scale; failed candidates are at the upper edge."""
    scored = [each for each in report.candidates if each.score]
    if not scored:
        return section("progress", "Progress", "Nothing has a score yet.")
    lead = (
        f"Score of each candidate in {report.unit}, lower is better; the line is the best so far of those that passed."
    )
    panel = tag("div", _chart(report), class_="panel drawn")
    return section("progress", "Progress", lead, panel)


def _chart(report: SearchReport) -> Markup:
    scores = [each.score for each in report.candidates if each.score]
    low, high = log10(min(scores) / 1.12), log10(max(scores) * 1.25)
    count = len(report.candidates)

    def x(order: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (order - 0.5) / count

    def y(score: float | None) -> float:
        return TOP + 6 if not score else TOP + (HEIGHT - TOP - BOTTOM) * (high - log10(score)) / (high - low)

    made: list[Markup] = []
    for tick in _ticks(10**low, 10**high):
        made += [
            line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "grid"),
            text(LEFT - 8, y(tick) + 4, f"{tick:,g}", anchor="end", kind="value"),
        ]
    step = max(1, round(count / 12))
    for order in range(1, count + 1, step):
        made.append(text(x(order), HEIGHT - 22, str(order), anchor="middle", kind="value"))
    made.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, "candidate, in the order proposed", anchor="middle"))
    made.append(tag("path", d=_best_so_far(report.candidates, x, y), class_="best-line"))
    for each in report.candidates:
        score = f"{each.score:,.0f}" if each.score else each.status
        dot = mark(each.kind, x(each.order), y(each.score))
        label = f"candidate {each.id}: {score}"
        made.append(
            tag(
                "a",
                tag("title", label),
                dot,
                href=f"#c{each.id}",
                class_="node dot",
                tabindex=-1,
                data_candidate=each.id,
                aria_label=label,
            )
        )
    return tag("svg", made, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="chart wide", role="group", aria_label="Progress")


def _best_so_far(
    candidates: tuple[CandidateView, ...], x: Callable[[int], float], y: Callable[[float | None], float]
) -> str:
    best: float | None = None
    path = ""
    for each in candidates:
        if each.kind in ("failed", "duplicate", "waiting") or not each.score:
            continue
        if best is None:
            path, best = f"M{x(each.order):.1f} {y(each.score):.1f}", each.score
        elif each.score < best:
            path, best = f"{path}H{x(each.order):.1f}V{y(each.score):.1f}", each.score
    return f"{path}H{x(candidates[-1].order):.1f}" if path else "M0 0"


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten."""
    found = [digit * 10.0**power for power in range(-3, 13) for digit in (1, 2, 5)]
    return [tick for tick in found if low <= tick <= high]
