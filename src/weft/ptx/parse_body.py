"""Parses the body of a function: scopes, declarations, labels, instructions."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from weft.core.errors import ParseError, Unsupported
from weft.core.records import Place

from . import isa
from .check_operands import check_operands
from .cursor import Cursor
from .isa.facts import is_later
from .lex import Token
from .module import (
    WIDTH,
    Args,
    BranchTable,
    Discard,
    Guard,
    Imm,
    Instruction,
    Label,
    LabelDef,
    Mem,
    Not,
    Operand,
    Pair,
    Prototype,
    Reg,
    Special,
    Sym,
    Variable,
    Vec,
)
from .parse_variables import parse_parameter, parse_variables
from .special import CLUSTERS, SPECIALS

MOST_REGISTERS = 1 << 20
"""Limit of one function; compilers stay far below, and the input must not decide how much memory is used."""


class _Scope:
    """Names of one brace level: register or parameter as written → its unique name in the function."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.names: dict[str, str] = {}
        self.uses: list[tuple[str, int, Callable[[str], None]]] = []
        """Labels named in this scope: as written, the line, and what to do with the unique name."""


class Body:
    """The body of one function."""

    def __init__(self, cursor: Cursor, target: str, outside: Collection[str] = ()) -> None:
        self.p = cursor
        self.target = target
        self.outside = outside
        """Variables of the module. A local one of the same name gets another: the function may be inlined."""
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.items: list[Instruction | LabelDef] = []
        self.tables: dict[str, BranchTable] = {}
        self.prototypes: dict[str, Prototype] = {}
        self.place: Place | None = None
        self.places: dict[tuple[str, int, int], Place] = {}
        self.pragma = ""
        self.scopes: list[_Scope] = []
        self.opened = 0

    def block(self) -> None:
        p = self.p
        p.expect("{")
        self.scopes.append(_Scope(f"@{self.opened}" if self.opened else ""))
        self.opened += 1
        with p.nested():
            while not p.accept("}"):
                self.statement()
        self.close(self.scopes.pop())

    def close(self, scope: _Scope) -> None:
        """Resolve the labels at the end of the scope, because they may follow their branch: the innermost one wins."""
        for name, line, settle in scope.uses:
            if name in scope.names:
                settle(scope.names[name])
            elif self.scopes:
                self.scopes[-1].uses.append((name, line, settle))
            else:
                raise ParseError(f"no label {name}", line)

    def point(self, at: int, unique: str) -> None:
        """Give instruction number `at` the unique name of its label."""
        item = self.items[at]
        assert isinstance(item, Instruction)
        operands = tuple(Label(unique) if isinstance(operand, Label) else operand for operand in item.operands)
        self.items[at] = replace(item, operands=operands)

    def point_table(self, table: str, at: int, unique: str) -> None:
        targets = list(self.tables[table].targets)
        targets[at] = unique
        self.tables[table] = BranchTable(table, tuple(targets))

    def statement(self) -> None:
        p = self.p
        token = p.token
        if token.text == "{":
            self.block()
        elif token.kind == "directive":
            p.take()
            self.directive(token)
        elif token.kind == "word" and p.tokens[p.at + 1].text == ":":
            p.at += 2
            label = self.declare(token.text)
            if p.token.text == ".branchtargets":
                p.take()
                targets = p.comma_list(lambda: p.kind("word").text, ";")
                self.tables[label] = BranchTable(label, tuple(targets))
                for at, target in enumerate(targets):
                    self.scopes[-1].uses.append((target, token.line, partial(self.point_table, label, at)))
            elif p.token.text in (".callprototype", ".calltargets"):
                self.prototypes[label] = self.prototype()
            else:
                self.items.append(LabelDef(label, token.line))
        else:
            item = self.instruction()
            for operand in item.operands:
                if isinstance(operand, Label):
                    self.scopes[-1].uses.append((operand.name, item.line, partial(self.point, len(self.items))))
            self.items.append(item)

    def prototype(self) -> Prototype:
        """Read `.callprototype (.param .b32 _) _ (.param .b64 _)` or `.calltargets f, g`."""
        p = self.p
        if p.take().text == ".calltargets":
            return Prototype(targets=tuple(p.comma_list(lambda: p.kind("word").text, ";")))
        returns = p.comma_list(partial(parse_parameter, p), ")") if p.accept("(") else []
        p.kind("word")
        params = p.comma_list(partial(parse_parameter, p), ")") if p.accept("(") else []
        if p.token.text == ".noreturn":
            p.take()
        p.expect(";")
        return Prototype(
            tuple(variable.size_bytes for variable in returns), tuple(variable.size_bytes for variable in params)
        )

    def declare(self, name: str) -> str:
        scope = self.scopes[-1]
        if name in scope.names:
            raise ParseError(f"{name} is declared twice", self.p.token.line)
        unique = name + (scope.suffix or ("@" if name in self.outside else ""))
        scope.names[name] = unique
        return unique

    def resolve(self, name: str) -> str | None:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def directive(self, token: Token) -> None:
        p = self.p
        match token.text:
            case ".reg":
                self.register_declaration(token.line)
            case ".loc":
                self.location()
                return
            case ".pragma":
                self.pragma = next((text for text in p.pragma() if text.startswith("weft.")), self.pragma)
                return
            case ".shared" | ".local" | ".param" | ".global" | ".const":
                for variable in parse_variables(p, token.text[1:]):
                    unique = self.declare(variable.name)
                    self.variables.append(
                        Variable(
                            unique,
                            variable.space,
                            variable.type,
                            variable.align,
                            variable.count,
                            variable.init,
                            False,
                            variable.relocations,
                        )
                    )
            case _:
                raise Unsupported(f"directive {token.text}", token.line)
        p.expect(";")

    def register_declaration(self, line: int) -> None:
        p = self.p
        type_name = p.kind("directive").text[1:]
        if type_name not in WIDTH:
            raise Unsupported(f"registers of type .{type_name}", line)
        while True:
            name = p.kind("word").text
            if p.accept("<"):
                count = p.integer()
                if count + len(self.registers) > MOST_REGISTERS:
                    raise Unsupported(f"{count} registers", line)
                for number in range(count):
                    self.registers[self.declare(f"{name}{number}")] = type_name
                p.expect(">")
            else:
                self.registers[self.declare(name)] = type_name
            if not p.accept(","):
                return

    def location(self) -> None:
        p = self.p

        def triple() -> tuple[str, int, int]:
            number = p.integer()
            return p.files.get(number, f"file {number}"), p.integer(), p.integer()

        at = triple()
        outer = None
        while p.accept(","):
            word = p.kind("word").text
            if word == "inlined_at":
                outer = self.called_from(triple(), at)
            elif word == "function_name":
                p.kind("word")
                if p.accept("+"):
                    p.integer()
            else:
                raise ParseError(f"unexpected {word!r} in .loc", p.token.line)
        self.place = self.places[at] = Place(*at, outer)

    def called_from(self, caller: tuple[str, int, int], inner: tuple[str, int, int]) -> Place:
        """Return the caller that a .loc names; its callers are those of the last .loc at that line and column."""
        place: Place | None = self.places.get(caller)
        while place is not None and (place.file, place.line, place.column) != inner:
            place = place.inlined_at
        return Place(*caller) if place is not None else self.places.get(caller, Place(*caller))

    # -- instructions ---------------------------------------------------------------------------------------

    def instruction(self) -> Instruction:
        p = self.p
        guard = None
        if p.accept("@"):
            negated = p.accept("!")
            token = p.kind("word")
            guard = Guard(self.register(token), negated)
        token = p.kind("word")
        found = isa.lookup(token.text)
        if found is None:
            raise Unsupported(isa.refusal(token.text), token.line)
        row, mods = found
        self.require(token, row.facts.first_target(mods))
        operands: list[Operand] = []
        while not p.accept(";"):
            if operands:
                p.expect(",")
            at = len(operands)
            if at >= len(row.operands):
                raise ParseError(f"{token.text} takes {len(row.operands)} operands", token.line)
            operands.append(self.operand(row.operands[at].kind))
            if at + 1 < len(row.operands) and row.operands[at + 1].name == "coordinates":
                operands.append(self.coordinates(mods))
        if row.facts.control == "call":
            operands = self.call_operands(operands, token.line)
        elif len(operands) < row.required:
            raise ParseError(f"{token.text} needs {row.required} operands, has {len(operands)}", token.line)
        self.require(token, row.facts.first_target(mods, complete=len(operands) == len(row.operands)))
        pragma, self.pragma = self.pragma, ""
        made = Instruction(token.text, row, mods, tuple(operands), guard, token.line, self.place, pragma)
        check_operands(made, self.registers)
        return made

    def require(self, token: Token, needed: str) -> None:
        """Refuse an instruction that the target of the file does not have."""
        if self.target and is_later(needed, self.target):
            found = needed.replace("+", " or a later architecture-specific target")
            cure = f"compile for {needed.rstrip('+')} or without this instruction"
            raise Unsupported(f"{token.text}: needs {found}, and the file is for {self.target}; {cure}", token.line)

    def register(self, token: Token) -> Reg:
        unique = self.resolve(token.text)
        if unique is None or unique not in self.registers:
            raise ParseError(f"{token.text} is not declared", token.line)
        return Reg(unique)

    def operand(self, kind: str) -> Operand:
        p = self.p
        token = p.token
        if p.accept("["):
            mem = self.address()
            if p.token.text != ",":  # a tensor map is followed by coordinates
                p.expect("]")
            return mem
        if p.accept("{"):
            if kind != "vector":
                raise ParseError("a vector is not allowed here", token.line)
            return Vec(tuple(p.comma_list(lambda: self.operand("value"), "}")))
        if p.accept("("):
            with p.nested():
                return Args(tuple(p.comma_list(lambda: self.operand("value"), ")")))
        if p.accept("!"):
            return Not(self.register(p.kind("word")))
        if token.kind in ("int", "float") or token.text == "-":
            return p.literal()
        token = p.kind("word")
        if kind == "label":
            return Label(token.text)
        first = self.name(token)
        if p.accept("|"):
            if kind != "pair":
                raise ParseError("two destinations are not allowed here", token.line)
            return Pair(first, self.name(p.kind("word")))
        if isinstance(first, Sym) and p.accept("+"):
            return Sym(first.name, p.integer())
        return first

    def name(self, token: Token) -> Operand:
        text = token.text
        if text == "_":
            return Discard()
        unique = self.resolve(text)
        if unique is not None and unique in self.registers:
            return Reg(unique)
        if text in SPECIALS and not (text in CLUSTERS and is_later("sm_90", self.target)):
            return Special(text)
        if text.startswith("%") and unique is None:
            raise Unsupported(f"special register or undeclared register {isa.refusal(text)}", token.line)
        if text == "WARP_SZ":
            return Imm(32)
        return Sym(unique or text)

    def address(self) -> Mem:
        p = self.p
        token = p.token
        if token.kind == "int":
            return Mem(Imm(p.integer()))
        base = self.name(p.kind("word"))
        if not isinstance(base, Reg | Sym):
            raise ParseError(f"{token.text} cannot be an address", token.line)
        offset = p.integer() if p.accept("+") else -p.integer() if p.accept("-") else 0
        return Mem(base, offset)

    def coordinates(self, mods: Mapping[str, str]) -> Vec:
        """Read `, {c0, c1}]` behind a tensor map: a coordinate for each dimension; gather4: a column and four rows."""
        p = self.p
        line = p.token.line
        p.expect(",")
        p.expect("{")
        found = Vec(tuple(p.comma_list(lambda: self.operand("value"), "}")))
        p.expect("]")
        count = 5 if "tile::gather4" in mods else int(mods["dim"][0])
        if len(found.items) != count:
            raise ParseError(f"{len(found.items)} coordinates of a tensor, {count} are needed", line)
        return found

    def call_operands(self, operands: list[Operand], line: int) -> list[Operand]:
        """Return three operands of `call (ret), f, (args)`, also if a list is missing, and a register's prototype."""
        returns = operands.pop(0) if operands and isinstance(operands[0], Args) else Args(())
        target = operands.pop(0) if operands else None
        if not isinstance(target, Sym | Reg):
            raise ParseError("a call names a function, or a 64-bit register that holds its address", line)
        arguments = operands.pop(0) if operands and isinstance(operands[0], Args) else Args(())
        if isinstance(target, Sym):
            if operands:
                raise ParseError(f"call of {target.name} takes no more operands", line)
            return [returns, target, arguments]
        name = operands.pop(0) if operands else None
        prototype = self.prototypes.get(name.name) if isinstance(name, Sym) else None
        if self.registers[target.name] not in ("b64", "u64", "s64") or prototype is None or operands:
            raise ParseError("an indirect call needs a 64-bit register and the label of its prototype", line)
        return [returns, target, arguments, prototype]
