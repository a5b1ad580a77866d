"""PTX text → Module. A syntax error is a ParseError, valid but unknown PTX is Unsupported; both have the line."""

import re
from functools import partial

from weft.core.errors import ParseError, Unsupported

from . import isa
from .cursor import Cursor
from .lex import Token, tokenize
from .module import Function, Module, Variable
from .parse_body import Body
from .parse_variables import SPACES, parse_parameter, parse_variables
from .passes.resolve_calls import resolve_calls

_LINKING = frozenset([".visible", ".extern", ".weak", ".common"])


def parse(text: str) -> Module:
    """Read an entire PTX file; calls through registers are resolved."""
    return resolve_calls(_Parser(tokenize(text)).module())


class _Parser(Cursor):
    """Parses the module level."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self.variables: list[Variable] = []
        self.functions: dict[str, Function] = {}

    def module(self) -> Module:
        version, target = (0, 0), ""
        while self.token.kind != "end":
            token = self.take()
            match token.text:
                case ".version":
                    version = self.version()
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
                case ".pragma":
                    self.pragma()
                case ".alias":
                    raise Unsupported(".alias", token.line)
                case _:
                    self.declaration(token)
        if not version[0]:
            raise ParseError("no .version directive", 1)
        return Module(version, target, tuple(self.variables), self.functions, self.files)

    def version(self) -> tuple[int, int]:
        token = self.kind("float")
        found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", token.text)
        if found is None:
            raise ParseError(f"{token.text} is not a version", token.line)
        return int(found[1]), int(found[2])

    def file_entry(self) -> None:
        self.integer()
        self.kind("string")
        while self.accept(","):
            self.integer()

    def skip_section(self) -> None:
        while self.token.text != "{":
            self.take()
        self.skip_braces()

    def skip_braces(self) -> None:
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
        elif token.text in SPACES:
            self.variables += parse_variables(self, token.text[1:], extern=extern)
            self.expect(";")
        else:
            raise ParseError(f"unexpected {token.text!r}", token.line)

    def function(self, *, entry: bool, extern: bool, line: int) -> None:
        returns: list[Variable] = []
        if not entry and self.accept("("):
            returns = self.comma_list(partial(parse_parameter, self), ")")
        name = self.kind("word").text
        params = self.comma_list(partial(parse_parameter, self), ")") if self.accept("(") else []
        start = self.at
        try:
            self.functions[name] = self.rest_of_function(name, params, returns, entry=entry, extern=extern, line=line)
        except Unsupported as error:
            self.at, self.depth = start, 0
            self.functions[name] = Function(
                name, entry, tuple(params), tuple(returns), {}, (), (), line=line, refused=error
            )
            while self.token.text not in ("{", ";"):
                self.take()
            if not self.accept(";"):
                self.skip_braces()

    def rest_of_function(
        self, name: str, params: list[Variable], returns: list[Variable], *, entry: bool, extern: bool, line: int
    ) -> Function:
        """Read directives and body; a declaration without a body does not replace a definition."""
        directives: dict[str, tuple[int, ...]] = {}
        while self.token.kind == "directive":
            token = self.take()
            if token.text == ".noreturn":
                continue
            if token.text == ".pragma":
                self.pragma()
                continue
            if token.text[1:] not in ("maxntid", "reqntid", "minnctapersm", "maxnreg", "maxnctapersm"):
                raise Unsupported(f"directive {isa.refusal(token.text)}", token.line)
            values = [self.integer()]
            while self.accept(","):
                values.append(self.integer())
            directives[token.text[1:]] = tuple(values)
        if self.accept(";"):
            declared = Function(name, entry, tuple(params), tuple(returns), {}, (), (), {}, directives, True, line)
            return self.functions.get(name, declared)
        body = Body(self)
        body.block()
        return Function(
            name,
            entry,
            tuple(params),
            tuple(returns),
            body.registers,
            tuple(body.variables),
            tuple(body.items),
            body.tables,
            directives,
            extern,
            line,
        )
