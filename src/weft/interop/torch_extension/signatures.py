"""Heads of functions: a kernel's parameters and template parameters, a host function's parameters and body."""

from collections.abc import Iterable
from dataclasses import dataclass

from .cpp_items import Item
from .cpp_tokens import CppSource

_ATTRIBUTES = (
    "__launch_bounds__",
    "C10_LAUNCH_BOUNDS",
    "__attribute__",
    "__maxnreg__",
    "__align__",
    "__block_size__",
    "__cluster_dims__",
)


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
    template: tuple[Parameter, ...] = ()
    result: str = ""
    """The text of its type, with the words before it."""

    @property
    def variadic(self) -> bool:
        return bool(self.parameters) and "..." in self.parameters[-1].type

    def takes(self, count: int) -> bool:
        """Whether it can be called with this many arguments."""
        least = sum(each.default is None and "..." not in each.type for each in self.parameters)
        return least <= count and (self.variadic or count <= len(self.parameters))


@dataclass(frozen=True)
class KernelSignature:
    """A `__global__` function."""

    name: str
    qualified: str
    template: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    line: int


def kernel_signatures(source: CppSource, items: Iterable[Item]) -> dict[str, KernelSignature]:
    """Return the kernels by unqualified name."""
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


def host_functions(source: CppSource, items: Iterable[Item]) -> dict[str, tuple[Function, ...]]:
    """Return functions with a body that a host may call, by unqualified name: overloads in order."""
    found: dict[str, tuple[Function, ...]] = {}
    for item in items:
        only_device = {"__global__"} & set(item.head) or ("__device__" in item.head and "__host__" not in item.head)
        if item.kind != "function" or not item.body or only_device:
            continue
        name_at, parameters = _parameters(source, item)
        token = source.tokens[name_at]
        body = (item.body + 1, source.partner[item.body])
        result = source.spelled(item.start, name_at)
        function = Function(token.text, parameters, *body, token.line, _template(source, item), result)
        found[token.text] = (*found.get(token.text, ()), function)
    return found


def struct_fields(source: CppSource, items: Iterable[Item]) -> dict[str, tuple[Parameter, ...]]:
    """`struct P { const half* q; int n, m = 1; };` → its members in order; none for a struct with more than that."""
    found: dict[str, tuple[Parameter, ...]] = {}
    for item in items:
        opening = next((at for at in range(item.start, item.end) if source.tokens[at].text == "{"), None)
        first = source.tokens[item.start].text
        if item.kind != "other" or opening is None or first not in ("struct", "typedef"):
            continue
        words = [token.text for token in source.tokens[item.start : opening] if token.kind == "word"]
        after = source.tokens[source.partner[opening] + 1].text
        name = after if first == "typedef" else words[-1]
        members: list[Parameter] = []
        for start, end in source.split(opening + 1, source.partner[opening], ";"):
            if any(source.tokens[at].text in ("(", "static", ":", "[") for at in range(start, end)):
                break
            members += _members(source, start, end)
        else:
            found[name] = tuple(members)
    return found


def _members(source: CppSource, start: int, end: int) -> Iterable[Parameter]:
    if start >= end:
        return
    kind = ""
    for first, last in source.split(start, end):
        member = _parameter(source, first, last)
        if not member.name and source.tokens[last - 1].kind == "word":  # `m` of `int n, m`
            member = Parameter(source.tokens[last - 1].text, source.spelled(first, last - 1), member.default)
        kind = kind or member.type
        yield Parameter(member.name, kind if first != start else member.type, member.default)


def _parameters(source: CppSource, item: Item) -> tuple[int, tuple[Parameter, ...]]:
    """Return the index of the function's name, and the parameters in its parentheses: the last pair before the body.

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
    opening = next((at for at in range(start + 1, equals or end) if source.tokens[at].text == "("), None)
    if opening is not None:  # a function: `void (*f)(int)`, `void f(int)`
        place = opening + 2 if source.tokens[opening + 1].text in ("*", "&") else opening - 1
        return Parameter(source.tokens[place].text, source.spelled(start, equals or end), default)
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
