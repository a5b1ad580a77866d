"""The host's part of a torch extension, followed from its function's first line to its last.

Nothing is executed: sizes are names, tensors are names with a shape, and each `<<<…>>>` leaves a HostLaunch. What the
formulas of launch lines cannot say becomes a Hole, or a note.
"""

import ast
import re
from dataclasses import dataclass, replace

from .cpp_tokens import refuse
from .host_expressions import Host, HostOutcome, Reader, whole_number
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
    Scope,
    Sizes,
    Tensor,
    Type,
    Value,
    binary,
    choose,
    compare,
    literal,
    named,
    safe_name,
)
from .merge_launches import merge_launches
from .size_roles import size_role

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
_INTEGRAL = ("AT_DISPATCH_INTEGRAL", "AT_DISPATCH_INDEX")


class HostRun(Host):
    """Follows one host function."""

    def execute(self, start: int, end: int, scope: Scope) -> HostOutcome | None:
        """Follow the statements of tokens start … end; None if control leaves at the end."""
        at = start
        while at < end:
            at, outcome = _statement(self, at, end, scope)
            if outcome is not None:
                return outcome
        return None


def _statement(run: HostRun, at: int, end: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """One statement; where the next one starts, and how the block ends if it does."""
    source = run.source
    token = source.tokens[at]
    if token.kind == "directive":
        if token.text.lstrip("# \t").startswith(("if", "el")):
            raise refuse(source.path, token.line, "#if inside a host function: keep the branch that is meant")
        return at + 1, None
    run.facts.line = token.line
    if token.text == ";":
        return at + 1, None
    if token.text == "{":
        return source.close(at) + 1, run.execute(at + 1, source.close(at), Scope(outer=scope))
    if token.text == "if":
        return _follow_if(run, at, end, scope)
    if token.text == "try":  # what it catches is the host's own error
        after = source.close(at + 1) + 1
        while after < end and source.tokens[after].text == "catch":
            after = source.close(source.close(after + 1) + 1) + 1
        return after, run.execute(at + 2, source.close(at + 1), Scope(outer=scope))
    if token.text == "switch":
        return _follow_switch(run, at, scope)
    if token.text in ("for", "while", "do"):
        return _follow_loop(run, at, end, scope)
    stop = _semicolon(run, at, end)
    if token.text == "return":
        value = Reader(run, source, at + 1, stop, scope).whole() if stop > at + 1 else None
        return stop + 1, HostOutcome(value)
    if token.text == "throw":
        return stop + 1, HostOutcome(error=True)
    if token.text == "using" and source.tokens[at + 2].text == "=":
        scope.types[source.tokens[at + 1].text] = _alias(run, at + 3, stop, scope)
        return stop + 1, None
    if token.text in ("using", "typedef", "static_assert", "break", "continue"):
        return stop + 1, None
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
    """`const int n = x.size(0), m(3);`: False if this is no declaration."""
    source = run.source
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
        while source.tokens[start].text in ("*", "&"):
            start += 1
        name = source.tokens[start].text
        value = _program_size(run, kind, name, _initial(run, kind, start + 1, end, scope), (start + 2, end))
        scope.names[name] = _named(run, name, value)
    return True


def _program_size(run: HostRun, kind: str, name: str, value: Value, initial: tuple[int, int]) -> Value:
    """`const int N = 1024;` of `main()` is a size by its name, with a default: as if the function were given it."""
    if run.program_sizes is None or not size_role(name) or not re.search(r"\b(int|size_t|long|unsigned|auto)", kind):
        return value
    default = value.constant if isinstance(value, Number) else None
    if default is None:  # from the command line, if it says one
        told = re.search(r"\barg[cv]\b.*: ?(\d+)$", run.source.spelled(*initial))
        default = int(told[1]) if told else None
    if not isinstance(default, int):
        return value
    run.program_sizes[safe_name(name)] = default
    return named(safe_name(name))


def _initial(run: HostRun, kind: str, start: int, end: int, scope: Scope) -> Value:
    source = run.source
    line = source.tokens[min(start, end) - 1].line
    if start >= end:
        return Dim3((literal(1),)) if kind == "dim3" else Other()
    if source.tokens[start].text == "=":
        value = Reader(run, source, start + 1, end, scope).whole()
    elif source.tokens[start].text in "({":
        ranges = source.split(start + 1, source.close(start))
        values = [Reader(run, source, *each, scope).whole() for each in ranges]
        value = values[0] if len(values) == 1 and kind.split()[-1] != "dim3" else Items(tuple(values))
    else:
        return Other()
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
    """A new tensor takes the name of its variable; a size remembers it."""
    name = safe_name(name)
    if isinstance(value, Tensor) and not value.name:
        value.name = name if name not in run.tensors else f"{name}_{value.line}"
        run.tensors[value.name] = value
    if isinstance(value, Number) and "__" in value.name:
        run.facts.spoken.setdefault(value.name, name)
    return value


# What a statement does.
def _act(run: HostRun, at: int, stop: int, scope: Scope) -> HostOutcome | None:
    source = run.source
    launch_at = next((i for i in range(at, stop) if source.tokens[i].text == "<<<" and _outside(run, at, i)), None)
    if launch_at is not None:
        _launch(run, at, launch_at, stop, scope)
        return None
    first = source.tokens[at].text
    opens = source.tokens[at + 1].text == "(" if at + 1 < stop else False
    if opens and first in _WRAPPERS:
        return _act(run, at + 2, source.close(at + 1), scope)
    if opens and first in _CHECKS:
        return _check(run, at, scope)
    if opens and first.startswith(("AT_DISPATCH", "AT_PRIVATE", "DISPATCH")):
        return _dispatch(run, at, scope)
    if opens and first.startswith("cuda"):
        _cuda_call(run, at, scope)
        return None
    equals = next((i for i in range(at, stop) if source.tokens[i].text in ("=", "+=", "*=", "/=", "-=")), None)
    if equals is not None and equals == at + 1:
        value = Reader(run, source, equals + 1, stop, scope).whole()
        scope.assign(first, _assigned(run, first, source.tokens[equals].text, value, scope))
        return None
    if (opens and first == "swap") or source.spelled(at, min(at + 3, stop)) == "std::swap":
        _swap(run, at, stop, scope)
        return None
    before = len(run.launches)
    value = Reader(run, source, at, stop, scope).whole()
    if len(run.launches) == before and any(source.tokens[i].text == "<<<" for i in range(at, stop)):
        _hidden_launches(run, at, stop, scope)
    if isinstance(value, Hole) and _touches(run, at, stop, scope):
        run.facts.notes[f"`{source.spelled(at, stop)}` is not followed: is anything of it part of a launch?"] = (
            value.line
        )
    if isinstance(value, Tensor) and not value.name and value.origin == "computed":
        run.facts.notes[f"`{source.spelled(at, stop)}` is PyTorch's work and not part of the launch lines"] = value.line
    return None


def _swap(run: HostRun, at: int, stop: int, scope: Scope) -> None:
    names = [run.source.spelled(*each) for each in run.source.split(run.source.close(stop - 1) + 1, stop - 1)]
    if len(names) != 2:
        return
    one, other = (scope.find(name) or Other() for name in names)
    scope.assign(names[0], other)
    scope.assign(names[1], one)


def _touches(run: HostRun, at: int, stop: int, scope: Scope) -> bool:
    """Whether a call that is not known gets a tensor; names that say they only check are believed."""
    tokens = run.source.tokens[at:stop]
    if re.search(r"check|assert|print|cout|cerr", " ".join(token.text for token in tokens[:3]), re.IGNORECASE):
        return False
    known = [scope.find(token.text) for token in tokens if token.kind == "word"]
    return any(isinstance(each, Tensor | Pointer) for each in known)


def _outside(run: HostRun, start: int, at: int) -> bool:
    """Whether a token stands outside the brackets of the statement."""
    place = start
    while place < at:
        place = run.source.after(place)
    return place == at


def _assigned(run: HostRun, name: str, sign: str, value: Value, scope: Scope) -> Value:
    if sign == "=":
        return _named(run, name, value)
    old = scope.find(name)
    signs: dict[str, type[ast.operator]] = {"+=": ast.Add, "-=": ast.Sub, "*=": ast.Mult, "/=": ast.FloorDiv}
    if isinstance(old, Number) and isinstance(value, Number):
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
            source.path, line, f"{name} is no kernel of this file: put its definition here, or launch it by hand"
        )
    config = [Reader(run, source, *each, scope).whole() for each in source.split(opens + 1, closes)]
    given = source.split(closes + 4, source.close(closes + 3))
    arguments = tuple(Reader(run, source, *each, scope).whole() for each in given)
    if len(config) < 2:
        raise refuse(source.path, line, "a launch needs a grid and a block")
    grid, block = (_as_dim3(each, line) for each in config[:2])
    shared = config[2] if len(config) > 2 else None
    if isinstance(shared, Number) and shared.constant == 0:
        shared = None
    run.launches.append(HostLaunch(kernel.name, kernel.arguments, arguments, grid, block, shared, line))


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
    """What a check says about ranks, types and sizes holds from here on."""
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
        doubt = Hole(f"the macro {macro} decides how it is launched", run.source.tokens[at].line)
        run.launches[before:] = [replace(launch, doubt=doubt) for launch in run.launches[before:]]
    return None


def _hidden_launches(run: HostRun, at: int, stop: int, scope: Scope) -> None:
    """A launch in a lambda that something unknown calls: followed once, in doubt."""
    token = run.source.tokens[at]
    before = len(run.launches)
    for start, end in run.source.split(at + 2, stop - 1):
        value = Reader(run, run.source, start, end, scope).whole()
        if isinstance(value, Lambda):
            run.call_lambda(value, ())
    doubt = Hole(f"`{token.text}` calls it, and cannot be followed", token.line)
    run.launches[before:] = [replace(launch, doubt=doubt) for launch in run.launches[before:]]
    if len(run.launches) == before:
        raise refuse(run.source.path, token.line, "a launch in what cannot be followed: write its launch line by hand")


def _cuda_call(run: HostRun, at: int, scope: Scope) -> None:
    """Calls of the CUDA runtime that a launch line has words for."""
    source, name, line = run.source, run.source.tokens[at].text, run.source.tokens[at].line
    ranges = source.split(at + 2, source.close(at + 1))
    if name in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelEx"):
        raise refuse(source.path, line, f"{name} with packed arguments: launch with <<<…>>>, or write the line by hand")
    values = [Reader(run, source, *each, scope).whole() for each in ranges]
    if name == "cudaFuncSetAttribute" and values and isinstance(values[0], Kernel):
        if "MaxDynamicSharedMemorySize" in source.spelled(*ranges[1]):
            run.facts.opted_in.add(values[0].name)
    elif name.startswith("cudaMemset") and values and isinstance(values[0], Pointer):
        values[0].tensor.memory.origin = "zeros"
        if not (isinstance(values[1], Number) and values[1].constant == 0):
            run.facts.notes[f"{values[0].tensor.name} is filled by {name} with other bytes than 0"] = line
    elif name.startswith("cudaMemcpyToSymbol"):
        run.facts.copied[source.spelled(*ranges[0])] = line
    elif name == "cudaMalloc" or name == "cudaMallocAsync":
        pointer = source.spelled(*ranges[0]).split("&")[-1].strip()
        tensor = Tensor(pointer, "empty", line)
        if isinstance(values[1], Number):
            tensor.shape, tensor.in_bytes = (values[1],), True
        run.tensors[pointer] = tensor
        scope.assign(pointer, Pointer(tensor))
    elif name.startswith("cudaMemcpy"):
        run.facts.notes[f"{name} is not part of the launch lines"] = line


# Conditions and loops: which way is taken, and what is known afterwards.
def _semicolon(run: HostRun, at: int, end: int) -> int:
    while at < end and run.source.tokens[at].text != ";":
        at = run.source.after(at)
    return min(at, end)


def _body(run: HostRun, at: int, end: int) -> int:
    """The index behind the statement that starts here."""
    source = run.source
    text = source.tokens[at].text
    if text == "{":
        return source.close(at) + 1
    if text in ("if", "for", "while", "switch"):
        head = at + 1 if source.tokens[at + 1].text == "(" else at + 2
        after = _body(run, source.close(head) + 1, end)
        if text == "if" and after < end and source.tokens[after].text == "else":
            return _body(run, after + 1, end)
        return after
    return _semicolon(run, at, end) + 1


@dataclass
class _Branch:
    """What one way through a condition leaves."""

    launches: list[HostLaunch]
    names: list[dict[str, Value]]
    outcome: HostOutcome | None


def _try(run: HostRun, start: int, end: int, scope: Scope) -> _Branch:
    """Follow a branch and undo it: the caller decides what of it counts."""
    chain: list[Scope] = []
    place: Scope | None = scope
    while place is not None:
        chain.append(place)
        place = place.outer
    saved = [dict(each.names) for each in chain]
    before = run.launches
    run.launches = []
    outcome = run.execute(start, end, Scope(outer=scope))
    found = _Branch(run.launches, [dict(each.names) for each in chain], outcome)
    run.launches = before
    for each, names in zip(chain, saved, strict=True):
        each.names = names
    return found


def _follow_if(run: HostRun, at: int, end: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """A whole chain of `else if`, so that its branches can be compared with each other."""
    source, line = run.source, run.source.tokens[at].line
    ways: list[tuple[Value | None, _Branch]] = []
    while True:
        head = at + 2 if source.tokens[at + 1].text == "constexpr" else at + 1
        condition = Reader(run, source, head + 1, source.close(head), scope).whole()
        start = source.close(head) + 1
        after = _body(run, start, end)
        ways.append((condition, _try(run, start, after, scope)))
        if after >= end or source.tokens[after].text != "else":
            ways.append((None, _Branch([], _names(scope), None)))
            break
        if source.tokens[after + 1].text != "if":
            start, after = after + 1, _body(run, after + 1, end)
            ways.append((None, _try(run, start, after, scope)))
            break
        at = after + 1
    return after, _decide(run, ways, line, scope)


def _decide(run: HostRun, ways: list[tuple[Value | None, _Branch]], line: int, scope: Scope) -> HostOutcome | None:
    for position, (condition, branch) in enumerate(ways):
        if isinstance(condition, Number) and condition.constant is not None:
            rest = [(None, branch)] if condition.constant else ways[position + 1 :]
            return _decide(run, [*ways[:position], *rest], line, scope)
    taken: list[tuple[Number | None, _Branch]] = []
    for condition, branch in ways:
        truth = condition if isinstance(condition, Number) else None
        left = branch.outcome is not None and (branch.outcome.error or not branch.launches)
        if left and ways[1:]:  # the host's own error, or a way out before anything is launched
            if truth is not None:
                run.facts.required.append(compare(ast.Eq, truth, literal(0)))
        else:
            taken.append((truth, branch))
    if not taken:
        return HostOutcome(error=True)
    unknown = any(isinstance(condition, Hole | Other) for condition, _ in ways)
    returned = next((branch.outcome for _, branch in taken if branch.outcome is not None), None)
    launches = merge_launches(
        [(condition, branch.launches) for condition, branch in taken], line, run.facts.required, unknown=unknown
    )
    if returned is not None and taken[1:]:
        doubt = Hole("one branch of a condition returns: keep the launches that are meant", line)
        launches = [replace(launch, doubt=launch.doubt or doubt) for launch in launches]
    names = taken[-1][1].names
    for condition, branch in taken[-2::-1]:
        names = _joined(branch.names, names, condition, line)
    return _adopt(run, _Branch(launches, names, returned), scope)


def _names(scope: Scope) -> list[dict[str, Value]]:
    found, place = [], scope
    while True:
        found.append(dict(place.names))
        if place.outer is None:
            return found
        place = place.outer


def _joined(
    one: list[dict[str, Value]], other: list[dict[str, Value]], condition: Number | None, line: int
) -> list[dict[str, Value]]:
    """Each variable as both ways leave it, or by the condition, or a hole."""
    joined = []
    for left, right in zip(one, other, strict=True):
        names: dict[str, Value] = {}
        for name in {**left, **right}:
            a, b = left.get(name, Other()), right.get(name, Other())
            if a is b or a == b or (isinstance(a, Number) and isinstance(b, Number) and a.text == b.text):
                names[name] = a
            elif condition is not None and isinstance(a, Number) and isinstance(b, Number):
                names[name] = choose(condition, a, b)
            else:
                names[name] = Hole(f"{name} depends on the condition", line)
        joined.append(names)
    return joined


def _adopt(run: HostRun, branch: _Branch, scope: Scope) -> HostOutcome | None:
    place: Scope | None = scope
    for names in branch.names:
        assert place is not None
        place.names = dict(names)
        place = place.outer
    run.launches += branch.launches
    return branch.outcome


def _follow_switch(run: HostRun, at: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    source, line = run.source, run.source.tokens[at].line
    subject = Reader(run, source, at + 2, source.close(at + 1), scope).whole()
    brace = source.close(at + 1) + 1
    close = source.close(brace)
    labels = [i for i in range(brace + 1, close) if source.tokens[i].text in ("case", "default")]
    ways: list[tuple[Number | None, list[HostLaunch]]] = []
    for label, following in zip(labels, [*labels[1:], close], strict=True):
        colon = next((i for i in range(label, following) if source.tokens[i].text == ":"), None)
        if colon is None:
            raise refuse(source.path, source.tokens[label].line, "a label without its colon")
        branch = _try(run, colon + 1, following, scope)
        if branch.outcome is not None and branch.outcome.error:
            continue
        value = Reader(run, source, label + 1, colon, scope).whole() if colon > label + 1 else None
        both = isinstance(subject, Number) and isinstance(value, Number)
        condition = compare(ast.Eq, subject, value) if both else None  # type: ignore[arg-type]
        if branch.launches or value is not None:
            ways.append((condition, branch.launches))
    run.launches += merge_launches(ways, line, run.facts.required)
    return close + 1, None


def _follow_loop(run: HostRun, at: int, end: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """The body once, in doubt; what it changes is unknown afterwards."""
    source, line = run.source, run.source.tokens[at].line
    if source.tokens[at].text == "do":
        after = _semicolon(run, _body(run, at + 1, end), end) + 1
        start, stop = at + 1, _body(run, at + 1, end)
    else:
        start = source.close(at + 1) + 1
        stop = after = _body(run, start, end)
    inner = Scope(outer=scope)
    if source.tokens[at].text == "for":
        for index in range(at + 2, source.close(at + 1)):
            name = source.tokens[index].text
            if source.tokens[index].kind == "word" and source.tokens[index + 1].text in ("=", ":"):
                inner.names[name] = Hole(f"{name} of a loop", line)
    branch = _try(run, start, stop, inner)
    doubt = Hole("it is launched in a loop: write one line per launch", line)
    run.launches += [replace(launch, doubt=doubt) for launch in branch.launches]
    place: Scope | None = scope
    for names in branch.names[1:]:
        assert place is not None
        for name, value in names.items():
            if place.names.get(name) is not value:
                place.names[name] = Hole(f"{name} changes in a loop", line)
        place = place.outer
    return after, None
