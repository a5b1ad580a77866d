"""A kernel's report → its page."""

from .page import Section, page
from .records import KernelReport
from .sections.cost import cost_section
from .sections.error import error_section
from .sections.source import source_section
from .sections.stages import stages_section
from .sections.verdict import verdict_section

STYLES = ("base.css", "kernel.css")
SCRIPTS = ("page.js", "error_map.js", "source.js")


def kernel_page(report: KernelReport) -> str:
    """One HTML file."""
    sections = [Section("verdict", "Verdict", verdict_section(report))]
    if report.maps or report.no_map:
        sections.append(Section("error", "Error", error_section(report)))
    if report.diagnosed is not None:
        sections.append(Section("stages", "Stages", stages_section(report.diagnosed)))
    if report.source is not None:
        sections.append(Section("source", "Source", source_section(report.source)))
    if report.cost is not None or report.no_cost:
        sections.append(Section("cost", "Cost", cost_section(report.cost, report.no_cost)))
    title = f"{report.target}: {report.status}"
    return page(title, sections, styles=STYLES, scripts=SCRIPTS)
