"""Conditions and loops of host code: which branch is taken, what it launches, and what is known afterwards."""

import ast
from dataclasses import dataclass, field, replace

from .cpp_tokens import CppSource, refuse
from .host import Host, HostOutcome
from .host_expressions import ARGC, Reader, pick
from .host_values import (
    Hole,
    HostLaunch,
    NotFollowed,
    Number,
    Other,
    Scope,
    Value,
    compare,
    denied,
    either,
    literal,
    opposite,
)
from .merge_launches import merge_launches, spelled

_MOST_ROUNDS = 64
"""Loops with at most this many iterations, if their number is known, are followed iteration by iteration."""


def semicolon(source: CppSource, at: int, end: int) -> int:
    """Return the index of the `;` that ends the statement."""
    while at < end and source.tokens[at].text != ";":
        at = source.after(at)
    return min(at, end)


def statement_end(source: CppSource, at: int, end: int) -> int:
    """Return the index after the statement that starts here."""
    text = source.tokens[at].text
    if text == "{":
        return source.close(at) + 1
    if text in ("if", "for", "while", "switch"):
        head = at + 1 if source.tokens[at + 1].text == "(" else at + 2
        after = statement_end(source, source.close(head) + 1, end)
        if text == "if" and after < end and source.tokens[after].text == "else":
            return statement_end(source, after + 1, end)
        return after
    if text == "do":
        return semicolon(source, statement_end(source, at + 1, end), end) + 1
    return semicolon(source, at, end) + 1


@dataclass
class _Branch:
    """The state after one branch of a condition."""

    launches: list[HostLaunch]
    names: list[dict[str, Value]]
    outcome: HostOutcome | None
    required: list[Number] = field(default_factory=list)
    """Its conditions on the sizes."""


def _try(run: Host, start: int, end: int, scope: Scope) -> _Branch:
    """Follow a branch and undo its effects: the caller decides which of them to keep."""
    chain: list[Scope] = []
    place: Scope | None = scope
    while place is not None:
        chain.append(place)
        place = place.outer
    saved = [dict(each.names) for each in chain]
    before, guard, required = run.launches, run.guard, run.facts.required
    run.launches, run.facts.required = [], []
    outcome = run.execute(start, end, Scope(outer=scope))
    found = _Branch(run.launches, [dict(each.names) for each in chain], outcome, run.facts.required)
    run.launches, run.guard, run.facts.required = before, guard, required
    for each, names in zip(chain, saved, strict=True):
        each.names = names
    return found


def follow_if(run: Host, at: int, end: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """Follow a complete chain of `else if`, so that its branches can be compared with each other."""
    source, line = run.source, run.source.tokens[at].line
    ways: list[tuple[Value | None, _Branch]] = []
    settled = False  # a condition that always holds: the code after it is never reached
    while True:
        head = at + 2 if source.tokens[at + 1].text == "constexpr" else at + 1
        condition = Reader(run, source, head + 1, source.close(head), scope).whole()
        start = source.close(head) + 1
        after = statement_end(source, start, end)
        known = condition.constant if isinstance(condition, Number) else None
        if not settled and known != 0:
            ways.append((None if known else condition, _try(run, start, after, scope)))
        else:
            _count_reached(run, start, after)
        settled = settled or bool(known)
        if after >= end or source.tokens[after].text != "else":
            if not settled:
                ways.append((None, _Branch([], _names(scope), None)))
            break
        if source.tokens[after + 1].text != "if":
            start, after = after + 1, statement_end(source, after + 1, end)
            if not settled:
                ways.append((None, _try(run, start, after, scope)))
            else:
                _count_reached(run, start, after)
            break
        at = after + 1
    return after, _decide(run, ways, line, scope)


def _count_reached(run: Host, start: int, end: int) -> None:
    """Count the launches of a branch that is never taken as reached, so that they are not reported as missing."""
    run.reached |= {at for at in range(start, end) if run.source.tokens[at].text == "<<<"}


def _decide(run: Host, ways: list[tuple[Value | None, _Branch]], line: int, scope: Scope) -> HostOutcome | None:
    if len(ways) == 1:
        return _adopt(run, ways[0][1], scope)
    taken: list[tuple[Number | None, _Branch]] = []
    for condition, branch in ways:
        truth = condition if isinstance(condition, Number) else None
        outcome = branch.outcome
        left = outcome is not None and (outcome.error or (not branch.launches and not outcome.broke))
        if left and not (condition is None and len(ways) == 1):  # an error of the host, or a return before a launch
            if truth is not None:
                for needed in denied(truth):
                    run.facts.require(needed)
            elif condition is None:
                known = [each for each, _ in ways[:-1]]
                if all(isinstance(each, Number) for each in known):
                    holds = literal(0)
                    for each in known:
                        assert isinstance(each, Number)
                        holds = either(holds, each)
                    run.facts.required.append(holds)
        else:
            taken.append((truth, branch))
    if not taken:
        return HostOutcome(error=True)
    if len(taken) == 1 and taken[0][1].outcome is None:
        return _adopt(run, taken[0][1], scope)
    unknown = any(isinstance(condition, Hole | Other) for condition, _ in ways)
    if not unknown:
        _require_each(run, taken)
    launches = merge_launches(
        [(condition, branch.launches) for condition, branch in taken], line, run.facts.required, unknown=unknown
    )
    returning = [(condition, branch) for condition, branch in taken if branch.outcome is not None]
    going_on = [(condition, branch) for condition, branch in taken if branch.outcome is None]
    if not going_on:
        return _adopt(run, _Branch(launches, taken[0][1].names, taken[0][1].outcome), scope)
    if returning and unknown:
        caveat = Hole("one branch of a condition returns: keep only the launches you need", line)
        launches = [replace(launch, caveat=launch.caveat or caveat) for launch in launches]
    names = going_on[-1][1].names
    for condition, branch in going_on[-2::-1]:
        names = _joined(branch.names, names, condition, line)
    _adopt(run, _Branch(launches, names, None), scope)
    if returning and not unknown:
        # The code that follows is for the other sizes.
        for condition, _ in returning:
            if condition is not None:
                run.guard = (*run.guard, opposite(condition))
            else:
                for other, _ in going_on:
                    assert other is not None
                    run.guard = (*run.guard, other)
    return None


def _require_each(run: Host, ways: list[tuple[Number | None, _Branch]]) -> None:
    """Require the conditions of each branch only for the sizes that take it."""
    before = literal(0)
    for condition, branch in ways:
        elsewhere = before if condition is None else either(before, opposite(condition))
        run.facts.required += [either(elsewhere, each) for each in branch.required]
        before = before if condition is None else either(before, condition)


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
    """Join each variable: the value of both branches, a formula with the condition, or a hole."""
    joined = []
    for left, right in zip(one, other, strict=True):
        names: dict[str, Value] = {}
        for name in {**left, **right}:
            a, b = left.get(name, Other()), right.get(name, Other())
            names[name] = _either_way(name, a, b, condition, line)
        joined.append(names)
    return joined


def _either_way(name: str, a: Value, b: Value, condition: Number | None, line: int) -> Value:
    if a is b or spelled(a) == spelled(b):
        return a
    if condition is not None:
        try:
            return pick(condition, a, b, line)
        except NotFollowed:
            pass
    return Hole(f"{name} depends on the condition", line)


def _adopt(run: Host, branch: _Branch, scope: Scope) -> HostOutcome | None:
    place: Scope | None = scope
    for names in branch.names:
        assert place is not None
        place.names = dict(names)
        place = place.outer
    run.launches += branch.launches
    run.facts.required += branch.required
    return branch.outcome


def follow_switch(run: Host, at: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """Follow a switch as a chain of `if`; a case without a break continues into the next."""
    source, line = run.source, run.source.tokens[at].line
    subject = Reader(run, source, at + 2, source.close(at + 1), scope).whole()
    brace = source.close(at + 1) + 1
    close = source.close(brace)
    cases: list[tuple[Value | None, int]] = []  # its value, None for default, and where its statements start
    place = brace + 1
    while place < close:
        if source.tokens[place].text in ("case", "default"):
            colon = place
            while colon < close and source.tokens[colon].text != ":":
                colon = source.after(colon)
            if colon >= close:
                raise refuse(source.path, source.tokens[place].line, "a case label has no colon")
            value = Reader(run, source, place + 1, colon, scope).whole() if colon > place + 1 else None
            cases.append((value, colon + 1))
            place = colon + 1
        else:
            place = statement_end(source, place, close)
    ways: list[tuple[Value | None, _Branch]] = []
    known = isinstance(subject, Number)
    asked: Number | None = None
    for number, (value, start) in enumerate(cases):
        following = cases[number + 1] if number + 1 < len(cases) else None
        if value is not None:
            both = known and isinstance(value, Number)
            condition = compare(ast.Eq, subject, value) if both else None  # type: ignore[arg-type]
            known = known and both
            asked = condition if asked is None else either(asked, condition) if condition is not None else asked
        if following is not None and following[1] <= start + 3 and source.tokens[start].text in ("case", "default"):
            if value is None:
                known = False  # `default: case 4:`
            continue
        branch = _try(run, start, close, scope)
        if branch.outcome is not None and branch.outcome.broke:
            branch.outcome = None
        if value is None:
            ways.append((None, branch))
        elif not (asked is not None and asked.constant == 0):
            ways.append((None if asked is not None and asked.constant else asked or Hole("a case", line), branch))
            if asked is not None and asked.constant:
                break
        asked = None
    ways.sort(key=lambda way: way[0] is None)  # default applies where no case matches, wherever it is written
    if not any(condition is None for condition, _ in ways):
        ways.append((None, _Branch([], _names(scope), None)))
    first = next((n for n, (condition, _) in enumerate(ways) if condition is None), len(ways) - 1)
    _count_reached(run, brace, close)
    return close + 1, _decide(run, ways[: first + 1], line, scope)


def follow_loop(run: Host, at: int, end: int, scope: Scope) -> tuple[int, HostOutcome | None]:
    """Follow a loop: each iteration where their number is known; else once, if every iteration launches the same."""
    source, line = run.source, run.source.tokens[at].line
    word = source.tokens[at].text
    if word == "do":
        stop = statement_end(source, at + 1, end)
        after = semicolon(source, stop, end) + 1
        if source.spelled(stop, after - 1).replace(" ", "") in ("while(0)", "while(false)"):
            return after, _without_break(run.execute(at + 1, stop, Scope(outer=scope)))
        return after, _unknown_rounds(run, at + 1, stop, Scope(outer=scope), scope, line)
    head = source.close(at + 1)
    start, stop = head + 1, statement_end(source, head + 1, end)
    inner = Scope(outer=scope)
    if word == "for":
        parts = source.split(at + 2, head, ";")
        if len(parts) == 3:
            outcome = _rounds(run, parts, (start, stop), inner)
            if outcome is not _NOT_COUNTED:
                return stop, outcome
        inner = Scope(outer=scope)
        for index in range(at + 2, head):
            name = source.tokens[index].text
            if source.tokens[index].kind == "word" and source.tokens[index + 1].text in ("=", ":"):
                inner.names[name] = Hole(f"{name} of a loop", line)
    return stop, _unknown_rounds(run, start, stop, inner, scope, line)


_NOT_COUNTED = HostOutcome(error=True)


def _without_break(outcome: HostOutcome | None) -> HostOutcome | None:
    return None if outcome is not None and outcome.broke else outcome


def _rounds(run: Host, parts: list[tuple[int, int]], body: tuple[int, int], inner: Scope) -> HostOutcome | None:
    """Follow `for (int i = 0; i < 4; i++)` iteration by iteration; _NOT_COUNTED if their number is not known."""
    source = run.source
    inside = {token.text for token in source.tokens[body[0] : body[1]]}
    if inside & {"for", "while"} and not (inside & {"<<<"} or inside & set(run.functions)):
        return _NOT_COUNTED
    before = [dict(each) for each in _names(inner)]
    launches, progress = run.launches, (run.round, run.launched)
    run.launches = list(launches)
    outcome: HostOutcome | None = None
    run.execute(parts[0][0], parts[0][1] + 1, inner)
    for _ in range(_MOST_ROUNDS):
        condition = Reader(run, source, *parts[1], inner).whole()
        known = condition.constant if isinstance(condition, Number) else None
        if known == 0:
            return None
        if known is None:
            break
        outcome = run.execute(*body, Scope(outer=inner))
        if outcome is not None:
            return _without_break(outcome)
        if run.stopped is not None:
            return None
        run.execute(parts[2][0], parts[2][1], inner)
    run.launches, (run.round, run.launched) = launches, progress
    place: Scope | None = inner
    for names in before:
        assert place is not None
        place.names = names
        place = place.outer
    return _NOT_COUNTED


def _unknown_rounds(run: Host, start: int, stop: int, inner: Scope, scope: Scope, line: int) -> HostOutcome | None:
    """Follow the body as the first and as a later iteration: launches that are the same in both are made once."""
    if not any(run.source.tokens[at].text in ("=", "++", "--", "+=", "<<<", "(") for at in range(start, stop)):
        return None
    branch = _try(run, start, stop, inner)
    place: Scope | None = scope
    for names in branch.names[1:]:
        assert place is not None
        for name, value in names.items():
            if name in place.names and place.names.get(name) is not value and not _same(place.names[name], value):
                place.names[name] = Hole(f"{name} changes in a loop", line)
        place = place.outer
    run.facts.required += branch.required
    if not branch.launches:
        return None
    again = _try(run, start, stop, inner)
    if spelled(tuple(branch.launches)) == spelled(tuple(again.launches)) and not _holes(again.launches):
        kernels = ", ".join(dict.fromkeys(launch.kernel for launch in branch.launches))
        run.facts.notes[f"{kernels}: launched repeatedly in a loop with the same arguments; here only once"] = line
        run.launches += branch.launches
        return None
    caveat = Hole("it is launched in a loop: write one line per launch", line)
    run.launches += [replace(launch, caveat=caveat) for launch in branch.launches]
    return None


def _same(a: Value, b: Value) -> bool:
    return spelled(a) == spelled(b)


def _holes(launches: list[HostLaunch]) -> bool:
    values = [value for each in launches for value in (each.grid, each.block, each.shared, *each.arguments)]
    sizes = [size for value in values for size in getattr(value, "sizes", (value,))]
    return any(isinstance(size, Hole) for size in sizes)


def without_argc(required: list[Number]) -> list[Number]:
    """Return the conditions that do not read the command line."""
    return [each for each in required if not any(isinstance(n, ast.Name) and n.id == ARGC for n in ast.walk(each.tree))]
