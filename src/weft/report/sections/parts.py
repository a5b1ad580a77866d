"""Pieces that several sections are made of."""

import json
from collections.abc import Iterable

from ..markup import Child, Markup, tag
from ..records import Named


def section(id_: str, title: str, lead: str, *children: Child) -> Markup:
    """With a heading, and a quiet sentence under it."""
    head = tag("h2", title)
    return tag("section", head, tag("p", lead, class_="lead") if lead else None, *children, id=id_)


def facts(rows: Iterable[Named]) -> Markup:
    """A grid of names over values."""
    return tag("dl", [tag("div", tag("dt", row.name), tag("dd", row.value)) for row in rows], class_="facts")


def rows(named: Iterable[tuple[str, Child]]) -> Markup:
    """Names beside contents."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", content)) for name, content in named], class_="rows")


def commands(named: Iterable[Named]) -> Markup | None:
    """Each with a button that copies it."""
    lines = [
        tag(
            "div",
            tag("span", each.name, class_="label"),
            tag("code", each.value),
            tag("button", "Copy", class_="button", type="button", data_copy=True, hidden=True),
            class_="command",
        )
        for each in named
    ]
    return tag("div", lines, class_="commands", role="group", aria_label="How to reproduce") if lines else None


def data_block(id_: str, value: object) -> Markup:
    """JSON that no HTML parser leaves early: `<`, `>` and `&` are spelled as escapes."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Markup(text), type="application/json", id=id_)
