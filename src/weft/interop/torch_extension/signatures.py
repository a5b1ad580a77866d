"""Heads of functions: a kernel's parameters and template parameters, a host function's parameters and body."""

from collections.abc import Iterable
from dataclasses import dataclass

from .cpp_items import Item
from .cpp_tokens import CppSource

_ATTRIBUTES = ("__launch_bounds__", "C10_LAUNCH_BOUNDS", "__attribute__", "__maxnreg__", "__align__")


@dataclass(frozen=True)
class Parameter:
    """`type` is its text without the name; `default` the tokens of its default."""

    name: str
    type: str
    default: tuple[int, int] | None = None


@dataclass(frozen=True)
class Function:
    """A host function: its parameters, and the tokens between the braces of its body."""

    name: str
    parameters: tuple[Parameter, ...]
    start: int
    end: int
    line: int


@dataclass(frozen=True)
class KernelSignature:
    """A `__global__` function."""

    name: str
    qualified: str
    template: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    line: int


def kernel_signatures(source: CppSource, items: Iterable[Item]) -> dict[str, KernelSignature]:
    """By plain name."""
    found: dict[str, KernelSignature] = {}
    for item in items:
        if item.kind != "function" or "__global__" not in item.head or not item.body:
            continue
        name_at, parameters = _parameters(source, item)
        name = source.tokens[name_at].text
        template = _template(source, item)
        qualified = "::".join((*item.scope, name))
        found[name] = KernelSignature(name, qualified, template, parameters, source.tokens[name_at].line)
    return found


def host_functions(source: CppSource, items: Iterable[Item]) -> dict[str, Function]:
    """Host functions with a body, by plain name."""
    found: dict[str, Function] = {}
    for item in items:
        if item.kind == "function" and item.body:
            name_at, parameters = _parameters(source, item)
            token = source.tokens[name_at]
            found[token.text] = Function(token.text, parameters, item.body + 1, source.partner[item.body], token.line)
    return found


def _parameters(source: CppSource, item: Item) -> tuple[int, tuple[Parameter, ...]]:
    """The index of the function's name, and what stands in its parentheses: the last pair before the body.

    Attributes such as __launch_bounds__(128) have parentheses too, in front of the name.
    """
    name_at = open_at = 0
    at = item.start
    while at < item.body:
        token = source.tokens[at]
        before = source.tokens[at - 1]
        if token.text == "(" and before.kind == "word" and not before.text.startswith(_ATTRIBUTES):
            name_at, open_at = at - 1, at
            break
        at = source.after(at)
    ranges = source.split(open_at + 1, source.partner[open_at]) if open_at else []
    return name_at, tuple(_parameter(source, *each) for each in ranges if source.spelled(*each) != "void")


def _parameter(source: CppSource, start: int, end: int) -> Parameter:
    equals = next((at for at in range(start, end) if source.tokens[at].text == "="), None)
    default = (equals + 1, end) if equals is not None else None
    last = (equals if equals is not None else end) - 1
    while last > start and source.tokens[last].text == "]":  # an array is a pointer
        last = source.partner[last] - 1
    star = " *" if last != (equals if equals is not None else end) - 1 else ""
    name = source.tokens[last].text if source.tokens[last].kind == "word" and last > start else ""
    text = source.spelled(start, last if name else last + 1)
    return Parameter(name, text + star, default)


def _template(source: CppSource, item: Item) -> tuple[Parameter, ...]:
    opening = item.start + 1
    if source.tokens[item.start].text != "template" or opening not in source.angles:
        return ()
    return tuple(_parameter(source, *each) for each in source.split(opening + 1, source.angles[opening]))
