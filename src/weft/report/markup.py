"""HTML from nested calls. Everything that is not Markup is text, and text is escaped."""

from collections.abc import Iterable
from html import escape

VOID = frozenset(["br", "hr", "input", "link", "meta"])


class Markup(str):
    """Text that is HTML already; only `tag`, `join` and the page's files create it."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element: `tag("a", "text", href="#x", class_="quiet")`; None and False omit an attribute."""
    opened = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{opened}>")
    return Markup(f"<{name}{opened}>{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """Return the children joined."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(escape(str(children)))
    return Markup("".join(join(child) for child in children))


def _attribute(key: str, value: Attribute) -> str:
    # viewBox and similar names keep their case; class_ and for_ avoid Python keywords.
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
