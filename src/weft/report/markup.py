"""HTML from nested calls. Everything that is not Markup is text, and text is escaped."""

from collections.abc import Iterable
from html import escape

VOID = frozenset(["br", "hr", "input", "link", "meta"])


class Markup(str):
    """Text that is HTML already: only `tag`, `join` and the page's own files make it."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """`tag("a", "text", href="#x", class_="quiet", aria_label="…")`; None and False leave an attribute out."""
    opened = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{opened}>")
    return Markup(f"<{name}{opened}>{join(children)}</{name}>")


def join(children: Child) -> Markup:
    """One after the other."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(escape(str(children)))
    return Markup("".join(join(child) for child in children))


def _attribute(key: str, value: Attribute) -> str:
    # viewBox and its kin keep their case; class_ and for_ are words of Python.
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
