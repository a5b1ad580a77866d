"""PTX text → Module. Syntax errors are ParseError, valid but unknown things Unsupported; both carry the line."""

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from weft.core.errors import ParseError, Unsupported
from weft.core.records import Place

from . import isa
from .lex import Token, tokenize
from .module import (
    WIDTH,
    Args,
    BranchTable,
    Discard,
    FloatImm,
    Function,
    Guard,
    Imm,
    Instruction,
    Label,
    LabelDef,
    Mem,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Special,
    Sym,
    Variable,
    Vec,
)  # fmt: skip
from .special import SPECIALS

_T = TypeVar("_T")
_LINKING = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_SKIPPED_LINES = {".pragma", ".noreturn"}


def parse(text: str) -> Module:
    """Read a whole PTX file."""
    return _Parser(tokenize(text)).module()


class _Scope:
    """Names of one brace level: register or parameter as written → its unique name in the function."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.names: dict[str, str] = {}
        self.uses: list[tuple[str, int, Callable[[str], None]]] = []
        """Labels named in this scope: as written, the line, and what to do with the unique name."""


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.files = _files(tokens)
        self.variables: list[Variable] = []
        self.functions: dict[str, Function] = {}

    # -- tokens ---------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise ParseError("unexpected end of file", token.line)
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.tokens[self.at].text == text and self.tokens[self.at].kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.take()
        if token.text != text:
            raise ParseError(f"expected {text!r}, found {token.text!r}", token.line)
        return token

    def kind(self, kind: str) -> Token:
        token = self.take()
        if token.kind != kind:
            raise ParseError(f"expected a {kind}, found {token.text!r}", token.line)
        return token

    def integer(self) -> int:
        negative = self.accept("-")
        value = _int(self.kind("int"))
        return -value if negative else value

    def comma_list(self, item: Callable[[], _T], close: str) -> list[_T]:
        items: list[_T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(item())
        return items

    # -- module level ---------------------------------------------------------------------------------------

    def module(self) -> Module:
        version, target = (0, 0), ""
        while self.token.kind != "end":
            token = self.take()
            match token.text:
                case ".version":
                    major, _, minor = self.kind("float").text.partition(".")
                    version = (int(major), int(minor or 0))
                case ".target":
                    target = self.kind("word").text
                    while self.accept(","):
                        self.kind("word")
                case ".address_size":
                    if self.integer() != 64:
                        raise Unsupported("32-bit addresses", token.line)
                case ".file":
                    self.file_entry()
                case ".section":
                    self.skip_section()
                case ".alias":
                    raise Unsupported(".alias", token.line)
                case _:
                    self.declaration(token)
        if not version[0]:
            raise ParseError("no .version directive", 1)
        return Module(version, target, tuple(self.variables), self.functions, self.files)

    def file_entry(self) -> None:
        self.integer()
        self.kind("string")
        while self.accept(","):
            self.integer()

    def skip_section(self) -> None:
        self.take()
        self.expect("{")
        depth = 1
        while depth:
            text = self.take().text
            depth += (text == "{") - (text == "}")

    def declaration(self, token: Token) -> None:
        extern = False
        while token.text in _LINKING:
            extern |= token.text == ".extern"
            token = self.take()
        if token.text in (".entry", ".func"):
            self.function(entry=token.text == ".entry", extern=extern, line=token.line)
        elif token.text in _SPACES:
            self.variables += self.variable(token.text[1:], extern=extern)
            self.expect(";")
        else:
            raise ParseError(f"unexpected {token.text!r}", token.line)

    def variable(self, space: str, *, extern: bool = False) -> list[Variable]:
        align, line = 0, self.token.line
        vector = 1
        while True:
            token = self.kind("directive")
            name = token.text[1:]
            if name == "align":
                align = self.integer()
            elif name in ("v2", "v4"):
                vector = int(name[1])
            elif name in WIDTH:
                break
            else:
                raise Unsupported(f"declaration with {token.text}", line)
        if self.accept(".ptr"):  # a hint on a pointer parameter: its space and alignment bind nobody
            while self.token.text in _SPACES:
                self.take()
            if self.accept(".align"):
                self.integer()
        declared = []
        while True:
            word = self.kind("word").text
            count, sized = vector, True
            while self.accept("["):
                if self.accept("]"):
                    sized = False
                else:
                    count *= self.integer()
                    self.expect("]")
            init, relocations = self.initialiser(name, count) if self.accept("=") else (b"", ())
            declared.append(
                Variable(word, space, name, align or max(WIDTH[name] // 8, 1) * vector, count if sized else 0, init,
                         extern, relocations)
            )  # fmt: skip
            if space == "param" or not self.accept(","):
                return declared

    def initialiser(self, type_name: str, count: int) -> tuple[bytes, tuple[tuple[int, Sym], ...]]:
        size = WIDTH[type_name] // 8
        data, relocations = bytearray(), []

        def value() -> None:
            if self.accept("{"):
                self.comma_list(value, "}")
                return
            token = self.token
            if token.kind == "word":
                relocations.append((len(data), self.symbol_value()))
                data.extend(bytes(size))
            else:
                data.extend(_constant_bytes(self.literal(), type_name, token.line))

        value()
        if len(data) > max(count, 1) * size:
            raise ParseError("more initial values than elements", self.token.line)
        return bytes(data), tuple(relocations)

    def symbol_value(self) -> Sym:
        name = self.kind("word").text
        if name == "generic":
            self.expect("(")
            name = self.kind("word").text
            self.expect(")")
        return Sym(name, self.integer() if self.accept("+") else 0)

    # -- functions ------------------------------------------------------------------------------------------

    def function(self, *, entry: bool, extern: bool, line: int) -> None:
        returns: list[Variable] = []
        if not entry and self.accept("("):
            returns = self.comma_list(self.parameter, ")")
        name = self.kind("word").text
        params = self.comma_list(self.parameter, ")") if self.accept("(") else []
        directives: dict[str, tuple[int, ...]] = {}
        while self.token.kind == "directive":
            token = self.take()
            if token.text in _SKIPPED_LINES:
                continue
            if token.text[1:] not in ("maxntid", "reqntid", "minnctapersm", "maxnreg", "maxnctapersm"):
                raise Unsupported(f"directive {token.text}", token.line)
            values = [self.integer()]
            while self.accept(","):
                values.append(self.integer())
            directives[token.text[1:]] = tuple(values)
        if self.accept(";"):
            if name not in self.functions:
                self.functions[name] = Function(
                    name, entry, tuple(params), tuple(returns), {}, (), (), {}, directives, True, line
                )
            return
        body = _Body(self)
        body.block()
        self.functions[name] = Function(
            name, entry, tuple(params), tuple(returns), body.registers, tuple(body.variables), tuple(body.items),
            body.tables, directives, extern, line,
        )  # fmt: skip

    def parameter(self) -> Variable:
        token = self.take()
        if token.text not in (".param", ".reg"):
            raise ParseError(f"expected a parameter, found {token.text!r}", token.line)
        if token.text == ".reg":
            raise Unsupported("parameters in registers", token.line)
        return self.variable("param")[0]

    def literal(self) -> Imm | FloatImm:
        negative = self.accept("-")
        token = self.take()
        if token.kind == "int":
            return Imm(-_int(token) if negative else _int(token))
        if token.kind == "float":
            return _float(token, negative)
        raise ParseError(f"expected a number, found {token.text!r}", token.line)


class _Body:
    """The inside of one function."""

    def __init__(self, parser: _Parser) -> None:
        self.p = parser
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.items: list[Instruction | LabelDef] = []
        self.tables: dict[str, BranchTable] = {}
        self.place: Place | None = None
        self.scopes: list[_Scope] = []
        self.opened = 0

    def block(self) -> None:
        p = self.p
        p.expect("{")
        self.scopes.append(_Scope(f"@{self.opened}" if self.opened else ""))
        self.opened += 1
        while not p.accept("}"):
            self.statement()
        self.close(self.scopes.pop())

    def close(self, scope: _Scope) -> None:
        """Labels may stand behind their branch, so they are looked up where the scope ends: the innermost one wins."""
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
                raise Unsupported("indirect calls", token.line)
            else:
                self.items.append(LabelDef(label, token.line))
        else:
            item = self.instruction()
            for operand in item.operands:
                if isinstance(operand, Label):
                    self.scopes[-1].uses.append((operand.name, item.line, partial(self.point, len(self.items))))
            self.items.append(item)

    def declare(self, name: str) -> str:
        scope = self.scopes[-1]
        if name in scope.names:
            raise ParseError(f"{name} is declared twice", self.p.token.line)
        unique = name + scope.suffix
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
                p.kind("string")
            case ".shared" | ".local" | ".param" | ".global" | ".const":
                for variable in p.variable(token.text[1:]):
                    unique = self.declare(variable.name)
                    self.variables.append(
                        Variable(unique, variable.space, variable.type, variable.align, variable.count,
                                 variable.init, False, variable.relocations)
                    )  # fmt: skip
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
                for number in range(p.integer()):
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

        file, line, column = triple()
        outer = None
        while p.accept(","):
            word = p.kind("word").text
            if word == "inlined_at":
                outer = Place(*triple())
            elif word == "function_name":
                p.kind("word")
                if p.accept("+"):
                    p.integer()
            else:
                raise ParseError(f"unexpected {word!r} in .loc", p.token.line)
        self.place = Place(file, line, column, outer)

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
            raise Unsupported(f"{token.text}", token.line)
        row, mods = found
        operands: list[Operand] = []
        while not p.accept(";"):
            if operands:
                p.expect(",")
            at = len(operands)
            if at >= len(row.operands) and row.name == "call":
                raise Unsupported("indirect call", token.line)
            if at >= len(row.operands):
                raise ParseError(f"{token.text} takes {len(row.operands)} operands", token.line)
            operands.append(self.operand(row.operands[at].kind))
        if row.name == "call":
            operands = _call_operands(operands, token.line)
        elif len(operands) < row.required:
            raise ParseError(f"{token.text} needs {row.required} operands, has {len(operands)}", token.line)
        return Instruction(token.text, row, mods, tuple(operands), guard, token.line, self.place)

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
            p.expect("]")
            return mem
        if p.accept("{"):
            if kind != "vector":
                raise ParseError("a vector is not allowed here", token.line)
            return Vec(tuple(p.comma_list(lambda: self.operand("value"), "}")))
        if p.accept("("):
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
        if text in SPECIALS:
            return Special(text)
        if text.startswith("%") and unique is None:
            raise Unsupported(f"special register or undeclared register {text}", token.line)
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


def _files(tokens: list[Token]) -> dict[int, str]:
    """The `.file` entries, read ahead: NVRTC writes them at the end, after the `.loc` lines that use them."""
    rows = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        _int(number): name.text[1:-1]
        for word, number, name in rows
        if word.text == ".file" and number.kind == "int" and name.kind == "string"
    }


def _call_operands(operands: list[Operand], line: int) -> list[Operand]:
    """`call (ret), f, (args)` with either list left out → always three operands."""
    returns = operands.pop(0) if operands and isinstance(operands[0], Args) else Args(())
    if not operands or not isinstance(operands[0], Sym):
        raise Unsupported("indirect call", line)
    target = operands.pop(0)
    arguments = operands.pop(0) if operands else Args(())
    if operands or not isinstance(arguments, Args):
        raise Unsupported("indirect call", line)
    return [returns, target, arguments]


def _int(token: Token) -> int:
    return int(token.text.rstrip("U"), 0) if token.text[:1] != "0" or len(token.text) < 2 else _radix(token)


def _radix(token: Token) -> int:
    text = token.text.rstrip("U")
    if text[1:2] in "xXbB":
        return int(text, 0)
    try:
        return int(text, 8)
    except ValueError:
        raise ParseError(f"bad octal number {text}", token.line) from None


def _float(token: Token, negative: bool) -> FloatImm:
    text = token.text
    if text[1:2] in "fF":
        return FloatImm(int(text[2:], 16) ^ (negative << 31), 32)
    if text[1:2] in "dD":
        return FloatImm(int(text[2:], 16) ^ (negative << 63), 64)
    value = float(text)
    return FloatImm(struct.unpack("<Q", struct.pack("<d", -value if negative else value))[0], 64)


def _constant_bytes(literal: Imm | FloatImm, type_name: str, line: int) -> bytes:
    size = WIDTH[type_name] // 8
    if isinstance(literal, Imm):
        return (literal.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if literal.width == 8 * size:
        return literal.bits.to_bytes(size, "little")
    if literal.width == 64 and size == 4:
        return struct.pack("<f", struct.unpack("<d", literal.bits.to_bytes(8, "little"))[0])
    raise ParseError(f"a floating literal cannot initialise .{type_name}", line)
