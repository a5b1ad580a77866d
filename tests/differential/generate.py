"""Random C++ functions: the same text compiles for the device and for the host, and has one meaning on both.

`generate(seed)` gives one function, `void f<seed>(arguments, uint64_t* out)`, with what it calls. It draws types of
all widths, branches, loops, switches, local arrays and calls; the operations are in `operations.py`.
"""

import random
from dataclasses import dataclass

from .operations import CONDITIONS, INTEGERS, ROWS, TYPES, Row, literals

OUTPUTS = 6
"""Most results of one function."""


@dataclass(frozen=True)
class Generated:
    """A function, its text and the types of its arguments."""

    name: str
    seed: int
    text: str
    arguments: tuple[str, ...]
    outputs: int


@dataclass(frozen=True)
class _Variable:
    name: str
    type: str
    assignable: bool = True


@dataclass(frozen=True)
class _Callee:
    name: str
    result: str
    arguments: tuple[str, ...]


def generate(seed: int) -> Generated:
    """Return the function of this seed; always the same."""
    return _Writer(seed).function()


class _Writer:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.count = 0
        self.lines: list[str] = []
        self.variables: list[_Variable] = []
        self.callees: list[_Callee] = []
        self.changed: set[_Variable] = set()

    def function(self) -> Generated:
        draw = self.random
        before = [self.callee() for _ in range(draw.choice((0, 0, 1, 1, 2)))]
        kinds = tuple(draw.choice(TYPES) for _ in range(draw.randint(3, 5)))
        self.lines, self.variables = [], [_Variable(f"a{at}", kind) for at, kind in enumerate(kinds)]
        self.changed.clear()
        for _ in range(draw.randint(2, 4)):
            self.statement(2)
        made = [variable for variable in self.variables if variable.name.startswith("v") or variable in self.changed]
        results = (made or self.variables)[-OUTPUTS:]
        stores = [f"    out[{at}] = bits({result.name});" for at, result in enumerate(results)]
        arguments = ", ".join(f"{kind} a{at}" for at, kind in enumerate(kinds))
        head = f"WITHIN void f{self.seed}({arguments}, uint64_t* out) {{"
        text = "\n".join([*before, head, *self.lines, *stores, "}", ""])
        return Generated(f"f{self.seed}", self.seed, text, kinds, len(results))

    def callee(self) -> str:
        """Return a function to be called, with an early return or a local array of its caller."""
        draw = self.random
        result = draw.choice(TYPES)
        kinds = tuple(draw.choice(TYPES) for _ in range(draw.randint(1, 3)))
        self.lines, self.variables = [], [_Variable(f"a{at}", kind) for at, kind in enumerate(kinds)]
        name = f"g{self.seed}_{len(self.callees)}"
        if draw.random() < 0.6:
            self.lines.append(f"    if ({self.condition(1)}) return {self.expression(result, 1)};")
        for _ in range(draw.randint(0, 2)):
            self.statement(1)
        self.lines.append(f"    return {self.expression(result, 2)};")
        arguments = ", ".join(f"{kind} a{at}" for at, kind in enumerate(kinds))
        self.callees.append(_Callee(name, result, kinds))
        return "\n".join([f"CALLED {result} {name}({arguments}) {{", *self.lines, "}"])

    # -- expressions -----------------------------------------------------------------------------------------

    def expression(self, kind: str, depth: int) -> str:
        draw = self.random
        known = [variable.name for variable in self.variables if variable.type == kind]
        if depth <= 0 or draw.random() < 0.15:
            if known and draw.random() < 0.85:
                return draw.choice(known)
            if draw.random() < 0.8:
                return self.converted(kind)
            return draw.choice(literals(kind))
        calls = [callee for callee in self.callees if callee.result == kind]
        if calls and draw.random() < 0.3:
            callee = draw.choice(calls)
            return f"{callee.name}({', '.join(self.expression(each, 0) for each in callee.arguments)})"
        return self.filled(draw.choice(ROWS[kind]), depth)

    def converted(self, kind: str) -> str:
        """Return a variable of another type, if some row takes it alone."""
        types = {variable.type for variable in self.variables}
        rows = [row for row in ROWS[kind] if len(row[1]) == 1 and row[1][0] in types]
        return self.filled(self.random.choice(rows), 1) if rows else self.random.choice(literals(kind))

    def condition(self, depth: int) -> str:
        """Return a comparison, of variables if possible: conditions on constants test little."""
        types = {variable.type for variable in self.variables}
        rows = [row for row in CONDITIONS if set(row[1]) <= types]
        first = self.filled(self.random.choice(rows or CONDITIONS), max(depth, 1))
        if depth and self.random.random() < 0.2:
            return f"{first} {self.random.choice(('&&', '||'))} {self.condition(0)}"
        return first

    def filled(self, row: Row, depth: int) -> str:
        template, kinds = row
        operands = [self.expression(kind, depth - 1) for kind in kinds]
        if len(operands) == 2 and operands[0] == operands[1]:  # x < x and x - x test little
            operands[1] = self.expression(kinds[1], 1)
        return f"({template.format(*operands)})"

    # -- statements ------------------------------------------------------------------------------------------

    def statement(self, nesting: int) -> None:
        draw = self.random
        kinds = [self.declare, self.declare, self.assign]
        if nesting:
            kinds += [self.branch, self.branch, self.loop, self.countdown, self.switch, self.array]
        draw.choice(kinds)(nesting)

    def declare(self, nesting: int) -> None:
        kind = self.random.choice(TYPES)
        value = self.expression(kind, 2)
        self.emit(nesting, f"{kind} {self.fresh(kind)} = {value};")

    def assign(self, nesting: int) -> None:
        target = self.random.choice([variable for variable in self.variables if variable.assignable])
        self.changed.add(target)
        self.emit(nesting, f"{target.name} = {self.expression(target.type, 2)};")

    def branch(self, nesting: int) -> None:
        self.emit(nesting, f"if ({self.condition(1)}) {{")
        self.block(nesting)
        if self.random.random() < 0.6:
            self.emit(nesting, "} else {")
            self.block(nesting)
        self.emit(nesting, "}")

    def loop(self, nesting: int) -> None:
        """Write a loop of at most eight rounds, as many as a value gives; it may break or continue."""
        rounds = self.expression(self.random.choice(INTEGERS), 1)
        counter = self.fresh("int32_t", assignable=False)
        self.emit(nesting, f"for (int32_t {counter} = 0; {counter} < (int32_t)({rounds} & 7); ++{counter}) {{")
        leave = self.random.choice(("break", "continue", ""))
        if leave:
            self.emit(nesting - 1, f"if ({self.condition(0)}) {leave};")
        self.block(nesting)
        self.emit(nesting, "}")
        self.forget(counter)

    def countdown(self, nesting: int) -> None:
        rounds = self.expression("uint32_t", 0)
        counter = self.fresh("uint32_t", assignable=False)
        self.emit(nesting, f"uint32_t {counter} = {rounds} & 5;")
        self.emit(nesting, "do {")
        self.block(nesting)
        self.emit(nesting, f"}} while ({counter}-- > 0 && {self.condition(0)});")

    def switch(self, nesting: int) -> None:
        self.emit(nesting, f"switch ({self.expression(self.random.choice(INTEGERS), 1)} & 7) {{")
        for case in self.random.sample(range(8), 4):
            self.emit(nesting, f"case {case}: {{")
            self.block(0)
            self.emit(nesting, "}" if self.random.random() < 0.3 else "} break;")
        self.emit(nesting, "default: {")
        self.block(0)
        self.emit(nesting, "} }")

    def array(self, nesting: int) -> None:
        """Write a local array that is filled, changed at one place and read at another."""
        kind, name = self.random.choice(TYPES), f"v{self.count}"
        self.count += 1
        size = self.random.choice((4, 8, 16))
        self.emit(nesting, f"{kind} {name}[{size}];")
        at = self.fresh("int32_t", assignable=False)
        fill = self.expression(kind, 2)
        self.emit(nesting, f"for (int32_t {at} = 0; {at} < {size}; ++{at}) {name}[{at}] = {fill};")
        self.forget(at)
        for _ in range(self.random.randint(1, 2)):
            place = self.expression("uint32_t", 1)
            self.emit(nesting, f"{name}[{place} & {size - 1}] = {self.expression(kind, 1)};")
        place = self.expression("uint32_t", 0)
        self.emit(nesting, f"{kind} {self.fresh(kind)} = {name}[{place} & {size - 1}];")

    def block(self, nesting: int) -> None:
        """Write the code inside braces: its declarations end there."""
        known = list(self.variables)
        self.assign(nesting - 1)
        for _ in range(self.random.randint(0, 1)):
            self.statement(max(nesting - 1, 0))
        self.variables = known

    def fresh(self, kind: str, *, assignable: bool = True) -> str:
        name = f"v{self.count}"
        self.count += 1
        self.variables.append(_Variable(name, kind, assignable))
        return name

    def forget(self, name: str) -> None:
        self.variables = [variable for variable in self.variables if variable.name != name]

    def emit(self, nesting: int, line: str) -> None:
        self.lines.append(f"{'    ' * (3 - max(nesting, 0))}{line}")
