"""PTX text → Module. A syntax error is a ParseError, valid but unknown PTX is Unsupported; both have the line."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial

from weft.core.errors import ParseError, Unsupported

from . import isa
from .cursor import Cursor
from .cut import index_of
from .isa.facts import is_later
from .lex import Token, tokenize
from .module import Function, Module, Variable
from .parse_body import Body
from .parse_variables import SPACES, parse_parameter, parse_variables
from .passes.discard_unread import discard_unread
from .passes.relax_guesses import relax_guesses
from .passes.resolve_calls import resolve_calls

LINKING = frozenset([".visible", ".extern", ".weak", ".common"])
"""How other files see a symbol; without one it is only for its file."""


DIRECTIVES = frozenset(
    ("maxntid", "reqntid", "minnctapersm", "maxnreg", "maxnctapersm", "explicitcluster", "reqnctapercluster",
     "maxclusterrank")
)  # fmt: skip
"""Directives of a kernel."""
OF_CLUSTERS = frozenset(("explicitcluster", "reqnctapercluster", "maxclusterrank"))


def parse(text: str) -> Module:
    """Read an entire PTX file and run the passes that work on a module."""
    return _finished(ModuleParser(tokenize(text)).module())


def parse_declarations(text: str) -> Module:
    """Read a PTX file without the bodies of its functions, which all count as declared elsewhere."""
    return resolve_calls(_declared(text))


@lru_cache(maxsize=8)
def _declared(text: str) -> Module:
    return ModuleParser(tokenize(index_of(text).without_bodies(text))).module()


def parse_kernel(text: str, entry: str) -> Module:
    """Read a PTX file with the bodies of one kernel and of the functions that it can call; others are declared only."""
    declared = _declared(text)
    bodies: dict[str, Function] = {}
    for piece in index_of(text).reach(entry):
        parser = ModuleParser(tokenize(text[piece.start : piece.end], piece.line), declared.files, declared.target)
        parser.variables = list(declared.variables)  # a local variable of the same name gets another
        parser.declaration(parser.take())
        bodies.update(parser.functions)
    return _finished(replace(declared, functions={**declared.functions, **bodies}))


def _finished(module: Module) -> Module:
    return relax_guesses(discard_unread(resolve_calls(module)))


class ModuleParser(Cursor):
    """Parses the module level."""

    def __init__(self, tokens: list[Token], files: Mapping[int, str] | None = None, target: str = "") -> None:
        super().__init__(tokens, files)
        self.variables: list[Variable] = []
        self.functions: dict[str, Function] = {}
        self.target, self.debug = target, False

    def module(self) -> Module:
        version = (0, 0)
        while self.token.kind != "end":
            token = self.take()
            match token.text:
                case ".version":
                    version = self.version()
                case ".target":
                    self.target = self.kind("word").text
                    while self.accept(","):
                        self.debug |= self.kind("word").text == "debug"
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
        return Module(version, self.target, tuple(self.variables), self.functions, self.files, self.debug)

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

    def skip_statement(self) -> None:
        """Skip the rest of a declaration; its initial value may have braces."""
        while not self.accept(";"):
            if self.token.text == "{":
                self.skip_braces()
            else:
                self.take()

    def declaration(self, token: Token) -> None:
        extern = False
        while token.text in LINKING:
            extern |= token.text == ".extern"
            token = self.take()
        if token.text in (".entry", ".func"):
            self.function(entry=token.text == ".entry", extern=extern, line=token.line)
        elif token.text in SPACES:
            start = self.at
            try:
                self.variables += parse_variables(self, token.text[1:], extern=extern)
                self.expect(";")
            except Unsupported:  # a kernel that names it is refused: its symbol is not known
                self.at, self.depth = start, 0
                self.skip_statement()
        else:
            raise ParseError(f"unexpected {token.text!r}", token.line)

    def function(self, *, entry: bool, extern: bool, line: int) -> None:
        name, start = self.function_name(), self.at
        returns: list[Variable] = []
        params: list[Variable] = []
        try:
            if not entry and self.accept("("):
                returns = self.comma_list(partial(parse_parameter, self), ")")
            self.expect(name)
            params = self.comma_list(partial(parse_parameter, self), ")") if self.accept("(") else []
            self.functions[name] = self.rest_of_function(name, params, returns, entry=entry, extern=extern, line=line)
        except Unsupported as error:
            self.at, self.depth = start, 0
            self.functions[name] = Function(
                name, entry, tuple(params), tuple(returns), {}, (), (), line=line, refused=error
            )
            while self.token.text not in ("{", ";"):
                if self.take().text == ".pragma":
                    self.pragma()
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
            if token.text[1:] not in DIRECTIVES:
                raise Unsupported(f"directive {isa.refusal(token.text)}", token.line)
            values = [self.integer()] if self.token.kind == "int" else []
            while self.accept(","):
                values.append(self.integer())
            if token.text[1:] in OF_CLUSTERS and is_later("sm_90", self.target):
                raise Unsupported(f"directive {token.text}: clusters need sm_90", token.line)
            directives[token.text[1:]] = tuple(values)
        if self.accept(";"):
            declared = Function(name, entry, tuple(params), tuple(returns), {}, (), (), {}, directives, True, line)
            return self.functions.get(name, declared)
        body = Body(self, self.target, {variable.name for variable in self.variables})
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
