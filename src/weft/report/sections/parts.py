"""Elements that several sections share."""

import json
from collections.abc import Iterable

from ..markup import Child, Markup, tag
from ..records import Named


def section(id_: str, title: str, lead: str, *children: Child) -> Markup:
    """Return a section with a heading and a short description."""
    head = tag("h2", title)
    return tag("section", head, tag("p", lead, class_="lead") if lead else None, *children, id=id_)


def facts(rows: Iterable[Named]) -> Markup:
    """Return a grid of names above values."""
    return tag("dl", [tag("div", tag("dt", row.name), tag("dd", row.value)) for row in rows], class_="facts")


def rows(named: Iterable[tuple[str, Child]]) -> Markup:
    """Return rows of names and contents."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", content)) for name, content in named], class_="rows")


def commands(named: Iterable[Named]) -> Markup | None:
    """Return the commands, each with a copy button."""
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
    """Return JSON in which `<`, `>` and `&` are escaped, so that an HTML parser does not end the block early."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return tag("script", Markup(text), type="application/json", id=id_)
