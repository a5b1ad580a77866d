"""The modelled cost: roofline, bounds, occupancy, counters."""

from ..charts import bounds_chart, occupancy_chart, roofline_chart
from ..markup import Markup, tag
from ..records import Cost, LaunchCost
from .parts import facts, section

MODELLED = "Modelled, not measured: counters of the virtual GPU and the cubin's SASS, cycles of a model"


def cost_section(cost: Cost | None, missing: str) -> Markup:
    """Return the cost of all launches, or the reason why it is not known."""
    if cost is None:
        return section("cost", "Cost on the GPU", f"Not profiled: {missing}")
    longest = max(cost.launches, key=lambda launch: max(cycles for _, cycles in launch.bounds))
    charts = tag(
        "div",
        tag(
            "div",
            tag("h3", f"Roofline, FLOP {cost.roofline.meaning}"),
            roofline_chart(cost.roofline),
            tag("p", "▼ upper bound for every schedule · bar: estimate", class_="caption"),
            class_="panel drawn",
        ),
        tag(
            "div",
            tag("h3", f"{longest.entry}: lower bound in cycles, by unit"),
            bounds_chart(longest),
            class_="panel drawn",
        ),
        class_="two",
    )
    return section(
        "cost",
        "Cost on the GPU",
        f"{cost.title}. {MODELLED}.",
        facts(cost.facts),
        charts,
        [_launch(launch) for launch in cost.launches],
    )


def _launch(launch: LaunchCost) -> Markup:
    notes = [tag("li", text) for text in (*launch.advice, *launch.notes)]
    warps = f"Occupancy: {launch.warps[0]} of {launch.warps[1]} warps per SM"
    own = _counters("Weft's own counters", launch.own_counters) if launch.own_counters else None
    return tag(
        "div",
        tag("h3", tag("code", launch.entry), " ", tag("span", launch.shape, class_="quiet")),
        facts(launch.facts),
        tag("ul", notes, class_="advice") if notes else None,
        tag(
            "div",
            tag("div", tag("div", tag("h3", warps), occupancy_chart(launch), class_="panel drawn"), own),
            _counters("Counters under ncu's names", launch.counters),
            class_="two",
        ),
    )


def _counters(title: str, counters: tuple[tuple[str, float], ...]) -> Markup:
    lines = [tag("tr", tag("td", name), tag("td", _number(value), class_="number")) for name, value in counters]
    table = tag("table", tag("tbody", lines), class_="counters")
    scroll = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=title)
    return tag("div", tag("h3", title, class_="table-title"), scroll, class_="panel")


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
