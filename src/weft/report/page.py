"""A report → one self-contained HTML file: style and script inside, no network access."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import weft

from .markup import Markup, join, tag
from .records import KernelReport, SearchReport
from .sections import cost, error, progress, search, source, stages, verdict

LOGO = Markup(
    '<svg width="22" height="22" viewBox="0 0 22 22" fill="none" stroke-width="2.4" stroke-linecap="round" '
    'aria-hidden="true"><path class="warp" d="M5 2v18M11 2v18M17 2v18"/>'
    '<path class="weft" d="M1.5 6.5H4M6.2 6.5h9.6M18 6.5h2.5M1.5 11h7.7M12.8 11h7.7M1.5 15.5H4M6.2 15.5h9.6M18 '
    '15.5h2.5"/>'
    "</svg>"
)
KERNEL_STYLES = ("base.css", "kernel.css")
KERNEL_SCRIPTS = ("page.js", "error_map.js", "source.js")
SEARCH_STYLES = ("base.css", "kernel.css", "search.css")
SEARCH_SCRIPTS = ("page.js", "search.js")


@dataclass(frozen=True)
class Section:
    """A section of the page, and its name in the navigation bar."""

    id: str
    name: str
    body: Markup


def kernel_page(report: KernelReport) -> str:
    """Return a kernel's page: one HTML file."""
    sections = [Section("verdict", "Verdict", verdict.verdict_section(report))]
    if report.maps or report.no_map:
        sections.append(Section("error", "Error", error.error_section(report)))
    if report.diagnosed is not None:
        sections.append(Section("stages", "Stages", stages.stages_section(report.diagnosed)))
    if report.source is not None:
        sections.append(Section("source", "Source", source.source_section(report.source)))
    if report.cost is not None or report.no_cost:
        sections.append(Section("cost", "Cost", cost.cost_section(report.cost, report.no_cost)))
    return _page(f"{report.target}: {report.status}", sections, styles=KERNEL_STYLES, scripts=KERNEL_SCRIPTS)


def search_page(report: SearchReport) -> str:
    """Return a search's page: one HTML file."""
    sections = [
        Section("verdict", "Outcome", search.outcome_section(report)),
        Section("progress", "Progress", progress.progress_section(report)),
        Section("lineage", "Lineage", search.lineage_section(report)),
        Section("levers", "Levers", search.levers_section(report)),
        Section("insights", "Insights", search.insights_section(report)),
        Section("cost", "Cost", search.cost_section(report)),
    ]
    title = f"Search {report.run}: {report.sentence}"
    return _page(title, sections, styles=SEARCH_STYLES, scripts=SEARCH_SCRIPTS)


@cache
def asset(name: str) -> str:
    """Return the text of a style or script file of the package."""
    return (files("weft.report") / "static" / name).read_text(encoding="utf-8")


def _page(title: str, sections: Sequence[Section], *, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return the file. Its policy allows only this script and style by their hashes, so injected code cannot run."""
    style = "\n".join(asset(name) for name in styles)
    script = "\n".join(asset(name) for name in scripts)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    bar = tag(
        "header",
        tag(
            "div",
            tag("div", LOGO, tag("span", "weft report"), class_="brand"),
            tag(
                "nav",
                [tag("a", each.name, href=f"#{each.id}") for each in sections],
                class_="sections",
                aria_label="Sections",
            ),
            tag("button", "Theme: auto", id="theme", class_="button", type="button", hidden=True),
            class_="bar-inner",
        ),
        class_="bar",
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#main", class_="skip"),
        bar,
        tag("main", [each.body for each in sections], id="main"),
        tag(
            "footer",
            f"Written by weft {weft.__version__}. This file is self-contained: it loads nothing and sends nothing.",
        ),
        tag("script", Markup(script)),
    )
    return join([Markup("<!doctype html>\n"), tag("html", head, Markup("\n"), body, lang="en"), Markup("\n")])


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
