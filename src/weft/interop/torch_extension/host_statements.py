"""Follows the host function of a torch extension from its first statement to its last.

Nothing is executed: sizes are names, tensors are names with a shape, and each `<<<…>>>` leaves a HostLaunch. What
the formulas of launch lines cannot express becomes a Hole, or a note.
"""

import ast
import re
from dataclasses import replace

from .cpp_tokens import refuse
from .cuda_calls import follow_cuda_call
from .host import Host, HostOutcome
from .host_branches import follow_if, follow_loop, follow_switch, semicolon
from .host_expressions import Reader, whole_number
from .host_values import (
    Dim3,
    Hole,
    HostLaunch,
    Items,
    Kernel,
    Lambda,
    Number,
    Other,
    Pointer,
    Rank,
    Record,
    Scope,
    Sizes,
    Tensor,
    Type,
    Value,
    binary,
    literal,
    safe_name,
)

_CHECKS = frozenset(["TORCH_CHECK", "AT_ASSERTM", "AT_ASSERT", "TORCH_INTERNAL_ASSERT", "assert"])
_WRAPPERS = frozenset(
    [
        "C10_CUDA_CHECK",
        "AT_CUDA_CHECK",
        "CUDA_CHECK",
        "CHECK_CUDA_ERROR",
        "gpuErrchk",
        "cudaCheck",
        "CUDA_CALL",
        "checkCudaErrors",
    ]
)
_SIGNS = frozenset(["=", "+=", "*=", "/=", "-=", "%=", "|=", "&="])
_INTEGRAL = ("AT_DISPATCH_INTEGRAL", "AT_DISPATCH_INDEX")


class HostRun(Host):
    """Follows one host function."""

    def cuda_call(self, reader: Reader, name: str, ranges: list[tuple[int, int]], line: int) -> Value:
        return follow_cuda_call(self, reader, name, ranges, line)

    def execute(self, start: int, end: int, scope: Scope) -> HostOutcome | None:
        """Follow the statements of tokens start to end; None if control reaches the end."""
        at = start
        while at < end and self.stopped is None:
            at, outcome = _statement(self, at, end, scope)
            if outcome is not None:
                return outcome
        return None


def _statement(run: HostRun, at: int, end: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """Follow one statement; return where the next one starts, and how the block ends if it does."""
    source = run.source
    token = source.tokens[at]
    if token.kind == "directive":
        return at + 1, None
    run.facts.line = token.line
    if token.text == ";":
        return at + 1, None
    if token.text == "{":
        return source.close(at) + 1, run.execute(at + 1, source.close(at), Scope(outer=scope))
    if token.text == "if":
        return follow_if(run, at, end, scope)
    if token.text == "try":  # it catches errors of the host
        after = source.close(at + 1) + 1
        while after < end and source.tokens[after].text == "catch":
            after = source.close(source.close(after + 1) + 1) + 1
        return after, run.execute(at + 2, source.close(at + 1), Scope(outer=scope))
    if token.text == "switch":
        return follow_switch(run, at, scope)
    if token.text in ("for", "while", "do"):
        return follow_loop(run, at, end, scope)
    stop = semicolon(source, at, end)
    if token.text == "return":
        value = Reader(run, source, at + 1, stop, scope).whole() if stop > at + 1 else None
        return stop + 1, HostOutcome(value)
    if token.text == "throw":
        return stop + 1, HostOutcome(error=True)
    if token.text == "using" and source.tokens[at + 2].text == "=":
        scope.types[source.tokens[at + 1].text] = _alias(run, at + 3, stop, scope)
        return stop + 1, None
    if token.text == "break":
        return stop + 1, HostOutcome(broke=True)
    if token.text in ("using", "typedef", "static_assert", "continue"):
        return stop + 1, None
    if token.text in ("case", "default"):  # a label that the previous case falls through to
        colon = at
        while colon < end and source.tokens[colon].text != ":":
            colon = source.after(colon)
        return colon + 1, None
    if token.text in ("exit", "abort", "std") and re.match(r"(std::)?(exit|abort) ?\(", source.spelled(at, stop)):
        return stop + 1, HostOutcome(error=True)
    if not _declare(run, at, stop, scope):
        outcome = _act(run, at, stop, scope)
        if outcome is not None:
            return stop + 1, outcome
    return stop + 1, None


def _alias(run: HostRun, start: int, end: int, scope: Scope) -> str:
    text = run.source.spelled(start, end)
    if "acc_type" in text or "opmath" in text:
        return "float"
    return run.type_text(text, scope)


# Declarations.
def _declare(run: HostRun, at: int, stop: int, scope: Scope) -> bool:
    """`const int n = x.size(0), m(3);`. Return False if this is not a declaration."""
    source = run.source
    if _unpack(run, at, stop, scope):
        return True
    place, words = at, list[int]()
    while place < stop:
        token = source.tokens[place]
        if token.kind == "word":
            words.append(place)
        elif token.text not in ("::", "*", "&", "&&") and place not in source.angles:
            break
        place = source.after(place)
    if len(words) < 2 or source.tokens[words[-1] - 1].text == "::":
        return False
    if place < stop and source.tokens[place].text not in ("=", "(", "{", ",", "["):
        return False
    kind = source.spelled(at, words[-1])
    for start, end in source.split(words[-1], stop):
        own = kind
        while source.tokens[start].text in ("*", "&"):
            own = f"{kind.replace('*', '').strip()} {source.tokens[start].text}"
            start += 1
        name = source.tokens[start].text
        scope.kinds[name] = run.type_text(own, scope)
        value = _initial(run, own, start + 1, end, scope)
        whole = re.search(r"\b(int|size_t|unsigned|long|auto|int64_t|int32_t|uint32_t)\b", own) and "*" not in own
        if whole and "constexpr" not in own.split() and len(run.scopes) == 1:
            value = run.symbol(name, value)
        scope.names[name] = _named(run, name, value)
    return True


def _unpack(run: HostRun, at: int, stop: int, scope: Scope) -> bool:
    """`auto [a, b] = f(x);`"""
    source = run.source
    place = at
    while place < stop and source.tokens[place].text in ("const", "auto", "&", "&&"):
        place += 1
    if place == at or place >= stop or source.tokens[place].text != "[":
        return False
    close = source.close(place)
    value = Reader(run, source, close + 2, stop, scope).whole()
    names = [source.spelled(*each) for each in source.split(place + 1, close)]
    values = value.values if isinstance(value, Items) and len(value.values) == len(names) else ()
    for number, name in enumerate(names):
        given = values[number] if values else Hole(f"{name} of a tuple", source.tokens[at].line)
        scope.names[name] = _named(run, name, given)
    return True


def _initial(run: HostRun, kind: str, start: int, end: int, scope: Scope) -> Value:
    source = run.source
    line = source.tokens[min(start, end) - 1].line
    plain = kind.replace("const", "").replace("struct", "").strip()
    if start >= end:
        return (
            Dim3((literal(1),)) if kind == "dim3" else run.record(plain, ()) if plain in run.view.structs else Other()
        )
    if source.tokens[start].text == "=":
        value = Reader(run, source, start + 1, end, scope).whole()
    elif source.tokens[start].text in "({":
        ranges = source.split(start + 1, source.close(start))
        values = [Reader(run, source, *each, scope).whole() for each in ranges]
        if "vector" in kind:  # host memory, of which only the length may matter
            length = next((each for each in values if isinstance(each, Number)), None)
            return Record("std::vector", (("size", length),) if length is not None else ())
        value = values[0] if len(values) == 1 and kind.split()[-1] != "dim3" else Items(tuple(values))
    elif (
        source.tokens[start].text == "["
        and source.after(start) < end
        and source.tokens[source.after(start)].text == "="
    ):
        return Reader(run, source, source.after(start) + 1, end, scope).whole()
    else:
        return Other()
    if plain in run.view.structs and isinstance(value, Items | Hole | Number):
        return run.record(plain, value.values if isinstance(value, Items) else ())
    if kind.split()[-1].rpartition("::")[2] == "dim3":
        return _as_dim3(value, line)
    if isinstance(value, Items) or "auto" in kind.split() or "*" in kind:
        return value
    if isinstance(value, Number):
        return run.cast(value, kind, scope, line)
    return value


def _as_dim3(value: Value, line: int) -> Value:
    match value:
        case Number():
            return Dim3((value,))
        case Items(values=values):
            return Dim3(tuple(_whole(each, line) for each in values))
    return value


def _whole(value: Value, line: int) -> Number | Hole:
    if isinstance(value, Number):
        whole = whole_number(value, line)
        assert isinstance(whole, Number | Hole)
        return whole
    return value if isinstance(value, Hole) else Hole("a size", line)


def _named(run: HostRun, name: str, value: Value) -> Value:
    """Give a new tensor the name of its variable; record it for a size."""
    name = safe_name(name)
    if isinstance(value, Tensor) and not value.name:
        value.name = name if name not in run.tensors else f"{name}_{value.line}"
        run.tensors[value.name] = value
    if isinstance(value, Number) and "__" in value.name:
        run.facts.spoken.setdefault(value.name, name)
    return value


# Effects of a statement.
def _act(run: HostRun, at: int, stop: int, scope: Scope) -> HostOutcome | None:
    source = run.source
    launch_at = next((i for i in range(at, stop) if source.tokens[i].text == "<<<" and _outside(run, at, i)), None)
    if launch_at is not None:
        _launch(run, at, launch_at, stop, scope)
        return None
    first = source.tokens[at].text
    opens = source.tokens[at + 1].text == "(" if at + 1 < stop else False
    if opens and first in _WRAPPERS and first not in run.functions:
        return _act(run, at + 2, source.close(at + 1), scope)
    if opens and first in _CHECKS:
        return _check(run, at, scope)
    if opens and first.startswith(("AT_DISPATCH", "AT_PRIVATE", "DISPATCH")):
        return _dispatch(run, at, scope)
    equals = next((i for i in range(at, stop) if source.tokens[i].text in _SIGNS and _outside(run, at, i)), None)
    if equals is not None:
        value = Reader(run, source, equals + 1, stop, scope).whole()
        _assign(run, source.tokens[equals].text, (at, equals), value, scope)
        return None
    stepped = {source.tokens[at].text, source.tokens[stop - 1].text} & {"++", "--"}
    if stepped and stop == at + 2:
        name = source.tokens[at].text if source.tokens[at].kind == "word" else source.tokens[at + 1].text
        scope.assign(name, _assigned(run, name, "+=" if "++" in stepped else "-=", literal(1), scope))
        return None
    if (opens and first == "swap") or source.spelled(at, min(at + 3, stop)) == "std::swap":
        _swap(run, at, stop, scope)
        return None
    before = len(run.launches)
    value = Reader(run, source, at, stop, scope).whole()
    if len(run.launches) == before and any(source.tokens[i].text == "<<<" for i in range(at, stop)):
        _hidden_launches(run, at, stop, scope)
    if isinstance(value, Hole) and _touches(run, at, stop, scope):
        run.facts.notes[f"`{source.spelled(at, stop)}` is not followed: check whether a launch depends on it"] = (
            value.line
        )
    if isinstance(value, Tensor) and not value.name and value.origin == "computed":
        run.facts.notes[f"`{source.spelled(at, stop)}` runs in PyTorch, not in the launch lines"] = value.line
    return None


def _swap(run: HostRun, at: int, stop: int, scope: Scope) -> None:
    names = [run.source.spelled(*each) for each in run.source.split(run.source.close(stop - 1) + 1, stop - 1)]
    if len(names) != 2:
        return
    one, other = (scope.find(name) or Other() for name in names)
    scope.assign(names[0], other)
    scope.assign(names[1], one)


def _touches(run: HostRun, at: int, stop: int, scope: Scope) -> bool:
    """Whether an unknown call gets a tensor; calls whose names mean that they only check are excluded."""
    tokens = run.source.tokens[at:stop]
    if re.search(r"check|assert|print|cout|cerr", " ".join(token.text for token in tokens[:3]), re.IGNORECASE):
        return False
    known = [scope.find(token.text) for token in tokens if token.kind == "word"]
    return any(isinstance(each, Tensor | Pointer) for each in known)


def _outside(run: HostRun, start: int, at: int) -> bool:
    """Whether a token is outside the brackets of the statement."""
    place = start
    while place < at:
        place = run.source.after(place)
    return place == at


def _assign(run: HostRun, sign: str, place: tuple[int, int], value: Value, scope: Scope) -> None:
    """`x = …`, `p.x = …`, `*x = …`; other targets are host memory."""
    tokens = run.source.tokens[place[0] : place[1]]
    texts = [token.text for token in tokens]
    if texts[:1] == ["*"]:
        texts = texts[1:]
    if len(texts) == 1:
        scope.assign(texts[0], _assigned(run, texts[0], sign, value, scope))
    elif len(texts) == 3 and texts[1] in (".", "->"):
        held = scope.find(texts[0])
        if isinstance(held, Dim3) and texts[2] in "xyz" and sign == "=" and isinstance(value, Number):
            sizes = [*held.sizes, *[literal(1)] * (3 - len(held.sizes))]
            sizes["xyz".index(texts[2])] = value
            scope.assign(texts[0], Dim3(tuple(sizes)))
        elif isinstance(held, Record | Other | None):
            record = held if isinstance(held, Record) else Record("")
            scope.assign(
                texts[0], record.put(texts[2], value if sign == "=" else Hole(f"{texts[2]} {sign}", run.facts.line))
            )


def _assigned(run: HostRun, name: str, sign: str, value: Value, scope: Scope) -> Value:
    if sign == "=":
        return _named(run, name, value)
    old = scope.find(name)
    signs: dict[str, type[ast.operator]] = {"+=": ast.Add, "-=": ast.Sub, "*=": ast.Mult, "/=": ast.FloorDiv}
    if isinstance(old, Number) and isinstance(value, Number) and sign in signs:
        return binary(signs[sign], old, value)
    return Hole(f"{name} {sign} …", run.facts.line)


def _launch(run: HostRun, at: int, opens: int, stop: int, scope: Scope) -> None:
    source, line = run.source, run.source.tokens[opens].line
    run.facts.line = line
    run.reached.add(opens)
    closes = opens + 1
    while closes < stop and not (
        all(source.tokens[closes + i].text == ">" for i in range(3)) and source.tokens[closes + 3].text == "("
    ):
        closes = source.after(closes)
    if closes >= stop:
        raise refuse(source.path, line, "`<<<` without `>>>(`")
    kernel = Reader(run, source, at, opens, scope).whole()
    if not isinstance(kernel, Kernel):
        name = source.spelled(at, opens)
        raise refuse(
            source.path, line, f"{name} is not a kernel of this file: add its definition, or write the line by hand"
        )
    config = [Reader(run, source, *each, scope).whole() for each in source.split(opens + 1, closes)]
    given = source.split(closes + 4, source.close(closes + 3))
    arguments = tuple(Reader(run, source, at, stop, scope).arguments(given))
    if len(config) < 2:
        raise refuse(source.path, line, "a launch needs a grid and a block")
    grid, block = (_as_dim3(each, line) for each in config[:2])
    shared = config[2] if len(config) > 2 else None
    if isinstance(shared, Number) and shared.constant == 0:
        shared = None
    run.add_launch(HostLaunch(kernel.name, kernel.arguments, arguments, grid, block, shared, line))


def _check(run: HostRun, at: int, scope: Scope) -> HostOutcome | None:
    ranges = run.source.split(at + 2, run.source.close(at + 1))
    if not ranges:
        return None
    start, end = ranges[0]
    if run.source.spelled(start, end) == "false":
        return HostOutcome(error=True)
    for part in _and(run, start, end):
        _assume(run, *part, scope)
    return None


def _and(run: HostRun, start: int, end: int) -> list[tuple[int, int]]:
    while run.source.tokens[start].text == "(" and run.source.close(start) == end - 1:
        start, end = start + 1, end - 1
    if any(run.source.tokens[i].text == "||" for i in range(start, end)):
        return [(start, end)]
    return run.source.split(start, end, "&&")


def _assume(run: HostRun, start: int, end: int, scope: Scope) -> None:
    """Record what a check ensures about ranks, types and sizes from here on."""
    source = run.source
    equals = [i for i in range(start, end) if source.tokens[i].text == "==" and _outside(run, start, i)]
    if len(equals) == 1:
        sides = [Reader(run, source, *each, scope).whole() for each in ((start, equals[0]), (equals[0] + 1, end))]
        for left, right in (sides, sides[::-1]):
            match left, right:
                case Rank(tensor=tensor), Number() if isinstance(right.constant, int):
                    run.facts.ranks[tensor.name] = right.constant
                    run.facts.checked.add(tensor.name)
                case Type(of=Tensor() as tensor), Type(element=element) if element:
                    tensor.element = element
                case Sizes(tensor=one), Sizes(tensor=other):
                    run.facts.alike.append((one, other))
                case Sizes(tensor=one), Items(values=values):
                    run.facts.ranks[one.name] = len(values)
                    run.facts.checked.add(one.name)
                    for axis, value in enumerate(values):
                        _equate(run, run.facts.size(one, axis), value)
                case Number(), Number():
                    _equate(run, left, right)
    value = Reader(run, source, start, end, scope).whole()
    if isinstance(value, Number) and value.constant is None:
        run.facts.required.append(value)


def _equate(run: HostRun, a: Value, b: Value) -> None:
    if isinstance(a, Number) and isinstance(b, Number) and "__" in a.name and "__" in b.name and a.name != b.name:
        run.facts.equal.append((a.name, b.name))


def _dispatch(run: HostRun, at: int, scope: Scope) -> HostOutcome | None:
    """AT_DISPATCH_…(x.scalar_type(), "name", [&] { … }): the body, with scalar_t for the type."""
    macro = run.source.tokens[at].text
    ranges = run.source.split(at + 2, run.source.close(at + 1))
    body = Reader(run, run.source, *ranges[-1], scope).whole() if ranges else Other()
    if not isinstance(body, Lambda):
        return None
    inner = Scope(outer=scope)
    inner.types["scalar_t"] = "int" if macro.startswith(_INTEGRAL) else run.element
    run.dispatched = run.dispatched or not macro.startswith(_INTEGRAL)
    before = len(run.launches)
    run.call_lambda(replace(body, scope=inner), ())
    if not macro.startswith("AT_"):
        caveat = Hole(f"the macro {macro} decides how it is launched", run.source.tokens[at].line)
        run.launches[before:] = [replace(launch, caveat=caveat) for launch in run.launches[before:]]
    return None


def _hidden_launches(run: HostRun, at: int, stop: int, scope: Scope) -> None:
    """Follow a launch in a lambda that unknown code calls once, and mark it with a caveat."""
    token = run.source.tokens[at]
    before = len(run.launches)
    for start, end in run.source.split(at + 2, stop - 1):
        value = Reader(run, run.source, start, end, scope).whole()
        if isinstance(value, Lambda):
            run.call_lambda(value, ())
    caveat = Hole(f"it is called by `{token.text}`, which cannot be followed", token.line)
    run.launches[before:] = [replace(launch, caveat=caveat) for launch in run.launches[before:]]
    if len(run.launches) == before:
        raise refuse(run.source.path, token.line, "a launch in code that cannot be followed: write its line by hand")
