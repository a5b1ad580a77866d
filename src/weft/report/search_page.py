"""A search's report → its page."""

from .page import Section, page
from .records import SearchReport
from .sections.progress import progress_section
from .sections.search import cost_section, insights_section, levers_section, lineage_section, outcome_section

STYLES = ("base.css", "kernel.css", "search.css")
SCRIPTS = ("page.js", "search.js")


def search_page(report: SearchReport) -> str:
    """One HTML file."""
    sections = [
        Section("verdict", "Outcome", outcome_section(report)),
        Section("progress", "Progress", progress_section(report)),
        Section("lineage", "Lineage", lineage_section(report)),
        Section("levers", "Levers", levers_section(report)),
        Section("insights", "Insights", insights_section(report)),
        Section("cost", "Cost", cost_section(report)),
    ]
    return page(f"Search {report.run}: {report.sentence}", sections, styles=STYLES, scripts=SCRIPTS)
