"""The sections of a search: result, lineage with diffs, levers, insights, cost."""

from math import log

from ..lineage import KINDS, lineage_chart, mark
from ..markup import Child, Markup, tag
from ..records import CandidateView, DiffLine, InsightView, LeverView, SearchReport
from .parts import commands, facts, rows, section

SIGNS = {"confirmed": ("good", "✓"), "refuted": ("bad", "✕"), "open": ("warn", "○")}
SIGN_CLASSES = {"+": "added", "-": "removed", "@": "gap"}
BAR = 120


def outcome_section(report: SearchReport) -> Markup:
    """Return the top of the page."""
    kind = {"done": "good", "running": "warn"}.get(report.state, "warn")
    return tag(
        "section",
        tag("span", report.state, class_=f"badge {kind}"),
        tag("h1", f"Search {report.run}: {report.title}"),
        tag("p", report.sentence, class_="sentence"),
        facts(report.facts),
        commands(report.commands),
        id="verdict",
        class_="verdict",
    )


def lineage_section(report: SearchReport) -> Markup:
    """Return a tree to choose from, and the chosen candidate next to it."""
    present = [kind for kind in KINDS if any(each.kind == kind for each in report.candidates)]
    key = [
        tag("span", tag("svg", mark(kind, 9, 9), width=18, height=18, aria_hidden="true"), KINDS[kind])
        for kind in present
    ]
    lead = "Choose a candidate to see what it changed from its parent. A node shows the candidate's number and score."
    tree = tag("div", lineage_chart(report), class_="tree scroll", id="tree")
    cards = tag(
        "div", [_card(each, report) for each in report.candidates], class_="cards", id="cards", aria_live="polite"
    )
    grid = tag(
        "div",
        tag("div", tree, tag("div", key, class_="keys marks"), class_="tree-side"),
        cards,
        class_="lineage-grid panel",
    )
    return section("lineage", "Lineage", lead, grid)


def _card(each: CandidateView, report: SearchReport) -> Markup:
    good = each.kind not in ("failed",)
    listed: list[tuple[str, Child]] = []
    if each.parents:
        links = [
            [tag("a", f"candidate {parent}", href=f"#c{parent}", data_candidate=parent), " "] for parent in each.parents
        ]
        listed.append(("parent" if len(each.parents) == 1 else "parents", links))
    if each.changes:
        listed.append(
            ("changes", tag("ul", [tag("li", tag("code", change)) for change in each.changes], class_="plain"))
        )
    if each.hypothesis:
        listed.append(("expected", each.hypothesis))
    more: list[tuple[str, Child]] = [(fact.name, fact.value) for fact in each.facts]
    learnt = [insight for insight in report.insights if insight.candidate == each.id]
    if learnt:
        more.insert(0, ("learnt", tag("ul", [_lesson(insight) for insight in learnt], class_="plain")))
    score = f"{each.score:,.0f}" if each.score is not None else "no score"
    detail = f" {report.unit}" if each.score is not None else ""
    if each.against_parent is not None:
        detail += f" · ×{each.against_parent:.2f} of its parent"
    return tag(
        "article",
        tag("h3", f"Candidate {each.id} ", tag("span", each.status, class_=f"badge {'good' if good else 'bad'}")),
        tag("p", tag("b", score), f"{detail} · {KINDS[each.kind]}", class_="card-line"),
        rows(listed) if each.parents else None,
        [tag("h4", f"Against candidate {each.parents[0]}"), _diff(each.diff)] if each.diff else None,
        rows(more),
        id=f"c{each.id}",
        class_="candidate",
        tabindex=-1,
    )


def _lesson(insight: InsightView) -> Markup:
    kind, sign = SIGNS.get(insight.outcome, ("warn", "○"))
    return tag("li", tag("span", sign, class_=f"sign-{kind}"), f" {insight.hypothesis}: {_moved(insight)}")


def _moved(insight: InsightView) -> str:
    if insight.after is None:
        return insight.note
    moved = f"{insight.before:,.0f} → {insight.after:,.0f}"
    return f"{moved} · {insight.note}" if insight.note else moved


def _diff(lines: tuple[DiffLine, ...]) -> Markup:
    made = [
        tag(
            "span", (f"{line.sign} " if line.sign != "@" else "") + line.text + "\n", class_=SIGN_CLASSES.get(line.sign)
        )
        for line in lines
    ]
    return tag("pre", tag("code", made), class_="diff", tabindex=0)


def levers_section(report: SearchReport) -> Markup:
    """Return the effect of each change of a lever."""
    if not report.levers:
        return section("levers", "Levers", "No lever was changed.")
    lead = "Every change of a lever. A child changes two levers at once: both share its effect."
    head = [
        ("change", ""),
        ("children", "number"),
        ("passed", "number"),
        ("kept", "number"),
        ("score over parent's", ""),
    ]
    titles = tag("tr", [tag("th", name, scope="col", class_=kind or None) for name, kind in head])
    table = tag("table", tag("thead", titles), tag("tbody", map(_lever, report.levers)), class_="levers")
    return section("levers", "Levers", lead, _framed(table, "Levers"))


def _lever(row: LeverView) -> Markup:
    cells = [tag("td", tag("code", row.change))]
    cells += [tag("td", count, class_="number") for count in (row.tried, row.passed, row.kept)]
    if row.ratio is None:
        return tag("tr", cells, tag("td", "–", class_="quiet"))
    half = BAR / 2
    long = min(half, half * abs(log(row.ratio)) / log(4))
    left = half - long if row.ratio < 1 else half
    bar = tag(
        "svg",
        tag("line", x1=half, x2=half, y1=0, y2=12, class_="axis"),
        tag(
            "rect",
            x=f"{left:.1f}",
            y=2,
            width=f"{max(long, 1):.1f}",
            height=8,
            rx=1,
            class_="faster" if row.ratio < 1 else "slower",
        ),
        width=BAR,
        height=12,
        class_="chart inline",
        aria_hidden="true",
    )
    return tag("tr", cells, tag("td", bar, tag("span", f"×{row.ratio:.2f}", class_="mono"), class_="ratio"))


def insights_section(report: SearchReport) -> Markup:
    """Return every expectation, confirmed or refuted."""
    if not report.insights:
        return section("insights", "Insights", "There are no insights yet.")
    counts = {name: sum(row.outcome == name for row in report.insights) for name in SIGNS}
    choices = [("all", len(report.insights)), *((name, count) for name, count in counts.items() if count)]
    radios = [
        tag(
            "label",
            tag("input", type="radio", name="proof", value=name, checked=name == "all"),
            tag("span", f"{name} {count}"),
        )
        for name, count in choices
    ]
    chosen = tag("div", tag("fieldset", tag("legend", "Show"), radios), class_="map-controls", id="proof", hidden=True)
    head = tag("tr", [tag("th", name, scope="col") for name in ("", "candidate", "expected", "counter", "measured")])
    table = tag(
        "table", tag("thead", head), tag("tbody", [_insight(row) for row in report.insights], id="insight-rows")
    )
    lead = "The expected effect of a change, compared with the counters of child and parent."
    return section("insights", "Insights", lead, tag("div", chosen, _scroll(table, "Insights"), class_="panel clipped"))


def _insight(row: InsightView) -> Markup:
    kind, sign = SIGNS.get(row.outcome, ("warn", "○"))
    return tag(
        "tr",
        tag("td", tag("span", f"{sign} {row.outcome}", class_=f"sign-{kind} nowrap")),
        tag("td", tag("a", row.candidate, href=f"#c{row.candidate}", data_candidate=row.candidate), class_="number"),
        tag("td", row.hypothesis, class_="long"),
        tag("td", tag("code", row.counter)),
        tag("td", _moved(row), class_="nowrap" if len(_moved(row)) < 40 else None),
        data_proof=row.outcome,
    )


def cost_section(report: SearchReport) -> Markup:
    """Return time, tokens and money."""
    return section("cost", "Cost of the search", "", facts(report.cost))


def _scroll(table: Markup, label: str) -> Markup:
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def _framed(table: Markup, label: str) -> Markup:
    return tag("div", _scroll(table, label), class_="panel table-panel")
