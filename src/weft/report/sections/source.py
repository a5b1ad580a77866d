"""The kernel's file: findings in a list and at their lines, the cost of each line, the faulty line highlighted."""

import re
from collections import defaultdict

from ..markup import Markup, join, tag
from ..records import LineCost, SourceFinding, SourceView
from .parts import section

ORDER = ("cause", "error", "warning", "info")
COSTLY = 5
"""Number of lines whose advice is listed."""
BAR = 44
"""Pixels."""

_C_WORDS = (
    "alignas alignof asm auto bool break case char class const constexpr continue decltype default delete do double "
    "else enum explicit extern false float for goto half if inline int long namespace new nullptr operator private "
    "public register return short signed sizeof size_t static static_assert static_cast reinterpret_cast struct switch "
    "template this true typedef typename union unsigned using virtual void volatile while uint8_t uint16_t uint32_t "
    "uint64_t int8_t int32_t int64_t __global__ __device__ __host__ __shared__ __constant__ __restrict__ "
    "__forceinline__ __launch_bounds__ __noinline__ __syncthreads __syncwarp"
)
_PYTHON_WORDS = (
    "False None True and as assert async await break class continue def del elif else except finally for from global "
    "if import in is lambda nonlocal not or pass raise return try while with yield"
)
_NUMBER = r"(?<![\w.])(?:0[xX][0-9a-fA-F']+|\d[\d']*(?:\.\d*)?(?:[eE][+-]?\d+)?)[fFuUlL]*\b"
_CUDA = re.compile(
    r"(?P<m>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r'|(?P<s>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\')'
    r"|(?P<p>^[ \t]*\#[ \t]*\w+)"
    rf"|(?P<k>\b(?:{'|'.join(_C_WORDS.split())})\b)"
    rf"|(?P<d>{_NUMBER})",
    re.MULTILINE | re.DOTALL,
)
_PTX = re.compile(
    rf"(?P<m>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<p>^[ \t]*\.\w+)|(?P<s>%\w[\w.]*)|(?P<d>{_NUMBER})", re.MULTILINE | re.DOTALL
)
_PYTHON = re.compile(
    r'(?P<s>"""(?:.*?)(?:"""|\Z)|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
    r"|(?P<m>\#[^\n]*)"
    r"|(?P<p>^[ \t]*@[\w.]+)"
    rf"|(?P<k>\b(?:{'|'.join(_PYTHON_WORDS.split())})\b)"
    rf"|(?P<d>{_NUMBER})",
    re.MULTILINE | re.DOTALL,
)
_LANGUAGES = {"cuda": _CUDA, "ptx": _PTX, "python": _PYTHON}


def source_section(source: SourceView) -> Markup:
    """Return the list of findings and the lines."""
    dearest = sorted(source.costs, key=lambda each: -each.cycles)[:COSTLY]
    code = highlighted(source.text, source.language)
    items = [_item(each, len(code)) for each in source.findings]
    items += [_cost_item(each) for each in dearest if each.line <= len(code)]
    lead = "Findings and the costliest lines; choose one to jump to it"
    lead += ". The keys j and k select the next and the previous one." if items else "."
    if source.runs:
        missed = sum(not runs for runs in source.runs.values())
        lead += f" {missed} of {len(source.runs)} lines with code were never executed" if missed else " Every line ran"
        lead += ": their line numbers are red." if missed else "."
    if source.costs:
        lead += " The bar is the line's cost relative to the costliest line, with the unit it keeps busy."
    columns = tag("ul", items, class_="findings") if items else None
    view = tag(
        "div",
        _table(source, code),
        class_="source",
        id="source-view",
        tabindex=0,
        role="region",
        aria_label=f"Source of {source.name}",
    )
    grid = tag("div", columns, view, class_="source-grid" if items else "panel")
    return section("source", f"Source: {source.name}", lead, grid)


def _item(finding: SourceFinding, lines: int) -> Markup:
    """Return a list item; it is a link if the file has that line: `#line` may name any number."""
    inside = [
        tag(
            "div",
            tag("span", finding.code, class_=f"level-{finding.level}"),
            tag("span", finding.place, class_="where"),
            class_="head",
        ),
        tag("div", finding.message, class_="text"),
        tag("div", f"Cure: {finding.cure}", class_="remedy") if finding.cure else None,
    ]
    if finding.line is None or finding.line > lines:
        return tag("li", tag("div", inside, class_="no-line"))
    return tag("li", tag("a", inside, href=f"#L{finding.line}"))


def _cost_item(cost: LineCost) -> Markup:
    inside = [
        tag(
            "div",
            tag("span", f"{cost.cycles:,.0f} cycles", class_="level-cost"),
            tag("span", f"line {cost.line} · {cost.unit}", class_="where"),
            class_="head",
        ),
        tag("div", cost.advice, class_="text"),
    ]
    return tag("li", tag("a", inside, href=f"#L{cost.line}"))


def _table(source: SourceView, code: list[Markup]) -> Markup:
    said: dict[int, list[SourceFinding]] = defaultdict(list)
    for finding in source.findings:
        if finding.line is not None:
            said[finding.line].append(finding)
    costs = {cost.line: cost for cost in source.costs}
    most = max((cost.cycles for cost in source.costs), default=0.0)
    lines: list[Markup] = []
    for number, text in enumerate(code, 1):
        here = sorted(said.get(number, []), key=lambda each: ORDER.index(each.level))
        kind = f"lit {here[0].level}" if here else None
        cells = [_number_cell(number, source.runs.get(number))]
        if most:
            cells.append(_cost_cell(costs.get(number), most))
        lines.append(tag("tr", cells, tag("td", tag("code", text), class_="t"), id=f"L{number}", class_=kind))
        lines += [_note(each, len(cells)) for each in here]
    return tag("table", tag("tbody", lines))


def _number_cell(number: int, runs: int | None) -> Markup:
    """Return the line number: green if the line ran, red if it has code that no workload executed."""
    if runs is None:
        return tag("td", number, class_="n")
    return tag(
        "td",
        number,
        class_="n ran" if runs else "n never",
        title=f"executed {runs:,} times" if runs else "never executed",
    )


def _cost_cell(cost: LineCost | None, most: float) -> Markup:
    if cost is None:
        return tag("td", class_="c")
    share = max(1.0, BAR * cost.cycles / most)
    bar = tag(
        "svg",
        tag("rect", class_="track", width=BAR, height=6, rx=1),
        tag("rect", class_="heat", width=f"{share:.1f}", height=6, rx=1),
        width=BAR,
        height=6,
        aria_hidden="true",
    )
    tip = f"{cost.cycles:,.0f} cycles of {cost.unit}: {cost.advice}"
    return tag("td", bar, tag("span", cost.unit, class_="unit"), class_="c", title=tip)


def _note(finding: SourceFinding, columns: int) -> Markup:
    other = f" (and line {finding.other_line})" if finding.other_line is not None else ""
    text = tag(
        "div", tag("b", finding.code, class_=f"level-{finding.level}"), f" {finding.message}{other}", class_="said"
    )
    gutter = [tag("td", class_="n")] + [tag("td", class_="c")] * (columns - 1)
    return tag("tr", gutter, tag("td", text, class_="t"), class_=f"note lit {finding.level}")


def highlighted(text: str, language: str) -> list[Markup]:
    """Return HTML per line; a comment over several lines is a span in each."""
    lines: list[list[str]] = [[]]
    at = 0
    for found in _LANGUAGES[language].finditer(text):
        _put(lines, text[at : found.start()], None)
        _put(lines, found.group(), found.lastgroup)
        at = found.end()
    _put(lines, text[at:], None)
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [join(parts) for parts in lines]


def _put(lines: list[list[str]], text: str, kind: str | None) -> None:
    for number, piece in enumerate(text.split("\n")):
        if number:
            lines.append([])
        if piece:
            lines[-1].append(tag("span", piece, class_=kind) if kind else piece)
