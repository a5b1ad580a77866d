"""A kernel's page: complete, well formed, and safe whatever a source or a message contains."""

import json
from dataclasses import replace

import pytest

from tests.report.pages import HOSTILE, check_page, kernel
from weft.report.markup import Markup, join, tag
from weft.report.page import kernel_page
from weft.report.sections.source import highlighted


def test_text_is_text_and_only_markup_is_markup() -> None:
    assert tag("p", "<b>", Markup("<i></i>"), class_='a"b') == '<p class="a&quot;b">&lt;b&gt;<i></i></p>'
    assert tag("input", value=0, checked=True, hidden=False, id=None) == '<input value="0" checked>'
    assert join(["a", [1, None, ("<",)]]) == "a1&lt;"


@pytest.mark.parametrize("hostile", [HOSTILE, "<!--<script>", "</style></title>", "&lt;\u2028'\"`", "*/ // \\ \x0b"])
def test_nothing_in_a_kernel_becomes_part_of_the_page(hostile: str) -> None:
    harmless, page = check_page(kernel_page(kernel("plain"))), check_page(kernel_page(kernel(hostile)))
    # The same elements, whatever the text is; only spans of colour may differ.
    names, expected = ([name for name, _ in each.elements if name != "span"] for each in (page, harmless))
    assert names == expected
    assert hostile in page.text or len(hostile.splitlines()) > 1
    assert json.loads(page.scripts[0])[0]["about"].startswith(f"about {hostile}")


def test_each_line_of_the_source_is_there_once_with_its_finding_and_its_cost() -> None:
    page = check_page(kernel_page(kernel()))
    rows = [attributes for attributes in page.of("tr") if (attributes.get("id") or "").startswith("L")]
    assert [row["id"] for row in rows] == ["L1", "L2"]
    assert rows[0].get("class") is None and rows[1]["class"] == "lit error"
    assert {"#L1", "#L2"} <= {a["href"] for a in page.of("a")}
    bars = [rect for rect in page.of("rect") if rect.get("class") == "heat"]
    assert len(bars) == 1


def test_a_part_that_is_not_known_has_no_section_or_says_why() -> None:
    bare = replace(kernel(), maps=(), no_map="the kernel does not end", diagnosed=None, source=None)
    page = check_page(kernel_page(bare))
    assert "There is no map: the kernel does not end." in page.text
    assert not {"stages", "source", "map-canvas"} & set(page.ids()) and {"verdict", "error", "cost"} <= set(page.ids())


@pytest.mark.parametrize(
    ("language", "text", "kinds"),
    [
        (
            "cuda",
            '#define N 1\nint x = 0x1f; /* a\n b */ // "no"\nchar* s = "/*";\n',
            ["p", "d", "k", "d", "m", "m", "m"],
        ),
        ("python", 'def f():\n    """a\n    b"""\n    return 1  # "no"\n', ["k", "s", "s", "k", "d", "m"]),
        ("ptx", ".visible .entry k()\n\tmov.u32 %r1, 7; // x\n", ["p", "s", "d", "m"]),
    ],
)
def test_colours_keep_every_sign_of_the_source(language: str, text: str, kinds: list[str]) -> None:
    lines = highlighted(text, language)
    assert len(lines) == text.count("\n")
    page = "".join(f"{line}\n" for line in lines)
    stripped = page.replace("</span>", "")
    found = []
    while "<span class=" in stripped:
        before, _, rest = stripped.partition('<span class="')
        kind, _, after = rest.partition('">')
        found.append(kind)
        stripped = before + after
    assert join(text) == stripped and found[: len(kinds)] == kinds
