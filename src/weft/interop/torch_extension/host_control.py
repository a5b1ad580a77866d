"""Conditions and loops of host code: which way is taken, and what is known afterwards."""

import ast
from dataclasses import dataclass, replace

from .cpp_tokens import refuse
from .host_expressions import Reader
from .host_run import HostRun, Launch, Outcome
from .host_values import Hole, Number, Other, Scope, Value, choose, compare, literal
from .merge_launches import merge_launches


def semicolon(run: HostRun, at: int, end: int) -> int:
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
    return semicolon(run, at, end) + 1


@dataclass
class Branch:
    """What one way through a condition leaves."""

    launches: list[Launch]
    names: list[dict[str, Value]]
    outcome: Outcome | None


def _try(run: HostRun, start: int, end: int, scope: Scope) -> Branch:
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
    found = Branch(run.launches, [dict(each.names) for each in chain], outcome)
    run.launches = before
    for each, names in zip(chain, saved, strict=True):
        each.names = names
    return found


def follow_if(run: HostRun, at: int, end: int, scope: Scope) -> tuple[int, Outcome | None]:
    """A whole chain of `else if`, so that its branches can be compared with each other."""
    source, line = run.source, run.source.tokens[at].line
    ways: list[tuple[Value | None, Branch]] = []
    while True:
        head = at + 2 if source.tokens[at + 1].text == "constexpr" else at + 1
        condition = Reader(run, source, head + 1, source.close(head), scope).whole()
        start = source.close(head) + 1
        after = _body(run, start, end)
        ways.append((condition, _try(run, start, after, scope)))
        if after >= end or source.tokens[after].text != "else":
            ways.append((None, Branch([], _names(scope), None)))
            break
        if source.tokens[after + 1].text != "if":
            start, after = after + 1, _body(run, after + 1, end)
            ways.append((None, _try(run, start, after, scope)))
            break
        at = after + 1
    return after, _decide(run, ways, line, scope)


def _decide(run: HostRun, ways: list[tuple[Value | None, Branch]], line: int, scope: Scope) -> Outcome | None:
    for position, (condition, branch) in enumerate(ways):
        if isinstance(condition, Number) and condition.constant is not None:
            rest = [(None, branch)] if condition.constant else ways[position + 1 :]
            return _decide(run, [*ways[:position], *rest], line, scope)
    taken: list[tuple[Number | None, Branch]] = []
    for condition, branch in ways:
        truth = condition if isinstance(condition, Number) else None
        left = branch.outcome is not None and (branch.outcome.error or not branch.launches)
        if left and ways[1:]:  # the host's own error, or a way out before anything is launched
            if truth is not None:
                run.facts.required.append(compare(ast.Eq, truth, literal(0)))
        else:
            taken.append((truth, branch))
    if not taken:
        return Outcome(error=True)
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
    return _adopt(run, Branch(launches, names, returned), scope)


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


def _adopt(run: HostRun, branch: Branch, scope: Scope) -> Outcome | None:
    place: Scope | None = scope
    for names in branch.names:
        assert place is not None
        place.names = dict(names)
        place = place.outer
    run.launches += branch.launches
    return branch.outcome


def follow_switch(run: HostRun, at: int, scope: Scope) -> tuple[int, Outcome | None]:
    source, line = run.source, run.source.tokens[at].line
    subject = Reader(run, source, at + 2, source.close(at + 1), scope).whole()
    brace = source.close(at + 1) + 1
    close = source.close(brace)
    labels = [i for i in range(brace + 1, close) if source.tokens[i].text in ("case", "default")]
    ways: list[tuple[Number | None, list[Launch]]] = []
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


def follow_loop(run: HostRun, at: int, end: int, scope: Scope) -> tuple[int, Outcome | None]:
    """The body once, in doubt; what it changes is unknown afterwards."""
    source, line = run.source, run.source.tokens[at].line
    if source.tokens[at].text == "do":
        after = semicolon(run, _body(run, at + 1, end), end) + 1
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
