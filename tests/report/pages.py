"""Artificial reports for tests, and the checks of every page."""

import base64
import hashlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from weft.report.kernel_maps import error_map
from weft.report.records import (
    Diagnosed,
    ErrorMap,
    KernelReport,
    LineCost,
    Named,
    SourceFinding,
    SourceView,
    Stage,
    StageState,
    WorkloadResult,
)

HOSTILE = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
VOID = {"br", "hr", "input", "link", "meta"}


class Page(HTMLParser):
    """A page as a parser sees it; every element that is opened must be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not (self.open and self.open[-1] == "style"):
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]

    @property
    def policy(self) -> str:
        return next(m["content"] or "" for m in self.of("meta") if m.get("http-equiv") == "Content-Security-Policy")


def check_page(text: str) -> Page:
    """Check that a page is well formed and allows only its own script. Return it parsed."""
    page = Page(text)
    digest = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy and "default-src 'none'" in page.policy
    assert "unsafe" not in page.policy and "http" not in page.policy
    assert len(page.ids()) == len(set(page.ids()))
    anchors = {a["href"] for a in page.of("a")}
    assert anchors and all((href or "").removeprefix("#") in page.ids() for href in anchors)
    for _, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("style", "src") for name in attributes)
    return page


def error_over_o(hostile: str = "") -> ErrorMap:
    """16 × 8, two heads, one wrong element, one NaN."""
    expected = np.zeros((1, 2, 16, 8))
    actual = expected.copy()
    actual[0, 1, 5, 3] = 0.25
    actual[0, 0, 2, 1] = np.nan
    blank = ErrorMap(f"O {hostile}", f"about {hostile}", "query", "column", (), expected, tiles=(8,))
    return error_map(blank, actual, expected, limits=np.full(expected.shape, 0.01))


def kernel(text: str = "int a;  // <b>") -> KernelReport:
    """Return a report in which every text is `text`."""
    finding = SourceFinding("R102", "error", text, text, 2, text, 1)
    stages = tuple(Stage(name, text, state, text) for name, state in zip("qkpou", StageState, strict=True))
    return KernelReport(
        target=text,
        status="UNSAFE",
        message=text,
        passed=False,
        sentence=text,
        facts=(Named(text, text),),
        commands=(Named(text, text),),
        results=(WorkloadResult(text, text, text, text, text, False),),
        source=SourceView(
            text, "cuda", f"{text}\n{text}\n", (finding, replace(finding, line=999)), (LineCost(1, 12.0, "lsu", text),)
        ),
        maps=(error_over_o(text),),
        diagnosed=Diagnosed(text, text, text, stages, where=text, known_as=(Named(text, text),), line=2),
        no_cost=text,
    )
