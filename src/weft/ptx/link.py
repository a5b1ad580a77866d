"""Several PTX texts → one, by nvlink's rules for relocatable device code (`-rdc=true`).

Before:  a.ptx  .visible .func f {…}  .global .u32 n;     b.ptx  .extern .func f;  .global .u32 n;  .entry k {… f …}
After:   .visible .func f;  .global .u32 n;  .global .u32 n$2;  .visible .func f {…}  .visible .entry k {…}
One definition per name: a `.visible` one, else the first `.weak`, else the largest `.common`. Symbols without a linking
directive are only for their file, and get another name where two files have the same. The result is a text, because
compiled code is cached by it; ptxas accepts it. `.loc` lines keep the file and line of the source. A text without any
gets them, so that findings name the PTX file that the user has, not the result.
"""

import graphlib
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from weft.core.errors import CompileError, ParseError, Unsupported
from weft.core.records import Diagnostic
from weft.toolchain.demangle import demangle

from .lex import Token, tokenize
from .module import Variable
from .parse import LINKING, ModuleParser
from .parse_variables import SPACES, parse_parameter, parse_variables

_DEVICE_RUNTIME = re.compile(r"vprintf|malloc|free|__assertfail|cuda[A-Z]\w*|__cuda\w+")
"""Functions that the driver and CUDA's device runtime define: they stay calls, and the virtual GPU knows some."""
_STRINGS = ".debug_str"
"""The section with the names in `.loc … function_name`. Other debug sections describe one file, and are left out."""


@dataclass(frozen=True)
class Unit:
    """One PTX text, with the name of its file as the user knows it."""

    name: str
    text: str


@dataclass(frozen=True)
class _Symbol:
    """A declaration or definition at module level."""

    unit: int
    name: str
    kind: str
    """`entry`, `func`, or the state space of a variable."""
    linking: str
    """`.visible`, `.extern`, `.weak`, `.common`; empty: only for its file."""
    defined: bool
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    """Bytes of the results and of the parameters; of a variable its own, () where an array has no size."""
    align: int
    names: frozenset[str]
    """Symbols in a variable's initial value."""
    first: int
    last: int
    """Its tokens; `last` is the one after them."""
    header: int
    """The token after a function's header."""

    @property
    def is_function(self) -> bool:
        return self.kind in ("entry", "func")

    @property
    def is_dynamic(self) -> bool:
        """Whether it is `extern __shared__ x[]`: every file has it, and the launch decides its size."""
        return self.kind == "shared" and self.linking == ".extern" and self.sizes[1] == ()


class _Read(ModuleParser):
    """The module level of one unit. Bodies are not parsed: only launched kernels must be supported."""

    def __init__(self, unit: Unit, number: int) -> None:
        super().__init__(tokenize(unit.text))
        self.text, self.number = unit.text, number
        self.symbols: list[_Symbol] = []
        self.strings: list[tuple[int, int]] = []
        """Tokens between the braces of each section of strings."""
        self.level = self.module()
        self.located = any(token.text == ".loc" for token in self.tokens)

    def skip_section(self) -> None:
        strings = self.token.text == _STRINGS
        while self.token.text != "{":
            self.take()
        first = self.at + 1
        self.skip_braces()
        if strings:
            self.strings.append((first, self.at - 1))

    def declaration(self, token: Token) -> None:
        first, linking = self.at - 1, ""
        while token.text in LINKING:
            linking, token = token.text, self.take()
        if token.text in (".entry", ".func"):
            self.header(token.text[1:], linking, first)
        elif token.text in SPACES:
            self.variable(token.text[1:], linking, first)
        else:
            raise ParseError(f"unexpected {token.text!r}", token.line)

    def header(self, kind: str, linking: str, first: int) -> None:
        list_of = partial(self.comma_list, partial(parse_parameter, self), ")")
        returns: list[Variable] = list_of() if kind == "func" and self.accept("(") else []
        name = self.kind("word").text
        params: list[Variable] = list_of() if self.accept("(") else []
        while self.token.text not in ("{", ";"):
            self.take()
        header, defined = self.at, self.token.text == "{"
        if defined:
            self.skip_braces()
        else:
            self.take()
        sizes = tuple(each.size_bytes for each in returns), tuple(each.size_bytes for each in params)
        self.add(name, kind, linking, defined, sizes, 0, frozenset(), first, header)

    def variable(self, space: str, linking: str, first: int) -> None:
        line = self.token.line
        declared = parse_variables(self, space, extern=linking == ".extern")
        self.expect(";")
        if len(declared) > 1:
            raise Unsupported("several variables in one declaration of a linked file: write one each", line)
        one = declared[0]
        sizes: tuple[int, ...] = (one.size_bytes,) if one.count else ()
        named = frozenset(sym.name for _, sym in one.relocations)
        self.add(one.name, space, linking, linking != ".extern", ((), sizes), one.align, named, first, self.at)

    def add(
        self,
        name: str,
        kind: str,
        linking: str,
        defined: bool,
        sizes: tuple[tuple[int, ...], tuple[int, ...]],
        align: int,
        names: frozenset[str],
        first: int,
        header: int,
    ) -> None:
        self.symbols.append(
            _Symbol(self.number, name, kind, linking, defined, sizes, align, names, first, self.at, header)
        )

    def mentions(self, name: str) -> bool:
        """Return whether a body or an initial value names the symbol."""
        return any(name in symbol.names for symbol in self.symbols) or any(
            token.text == name
            for symbol in self.symbols
            if symbol.defined and symbol.is_function
            for token in self.tokens[symbol.header : symbol.last]
        )


def link(units: Sequence[Unit]) -> str:
    """Return one PTX text with everything that the units define.

    Raises CompileError with one Diagnostic per symbol that is undefined, defined twice, or declared in two ways.
    """
    read = [_read(unit, number) for number, unit in enumerate(units)]
    chosen, problems = _choose(units, read)
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        names = ", ".join(unit.name for unit in units)
        raise CompileError(
            f"cannot link {names}: {problems[0]}{more}", tuple(Diagnostic("error", each) for each in problems)
        )
    return _Writer(units, read, chosen).text()


def _read(unit: Unit, number: int) -> _Read:
    try:
        return _Read(unit, number)
    except ParseError as error:
        raise CompileError(f"{unit.name}: {error}") from error
    except Unsupported as error:
        raise Unsupported(f"{unit.name}: {error.what}", error.line) from error


# -- which definition a name has ------------------------------------------------------------------------------


def _choose(units: Sequence[Unit], read: Sequence[_Read]) -> tuple[list[_Symbol], list[str]]:
    """Return the symbols of the result, in the order of the files, and what is wrong, one sentence each."""
    groups: dict[tuple[int, str], list[_Symbol]] = {}
    for each in read:
        static = {symbol.name for symbol in each.symbols if not symbol.linking} - {
            symbol.name for symbol in each.symbols if symbol.linking
        }
        for symbol in each.symbols:
            groups.setdefault((each.number if symbol.name in static else -1, symbol.name), []).append(symbol)
    chosen, problems = [], []
    for (_, name), symbols in groups.items():
        one, wrong = _one(units, name, symbols)
        if wrong:
            problems.append(wrong)
            continue
        if not one.defined and not one.is_dynamic:
            users = [units[symbol.unit].name for symbol in symbols if read[symbol.unit].mentions(name)]
            if not users:
                continue
            if not one.is_function or not _DEVICE_RUNTIME.fullmatch(name):
                problems.append(f"{_spelled(name)} is used in {users[0]}, but no file defines it: link one that does")
        chosen.append(one)
    kernels = _by_name(symbol for symbol in chosen if symbol.kind == "entry")
    twice = [_spelled(name) for name, symbols in kernels.items() if symbols[1:]]
    problems += [f"two files have a kernel {name}, and a launch could mean either: rename one" for name in twice]
    return sorted(chosen, key=lambda symbol: (symbol.unit, symbol.first)), problems


def _one(units: Sequence[Unit], name: str, symbols: Sequence[_Symbol]) -> tuple[_Symbol, str]:
    """Return the definition that stands for all, or a declaration if there is none; and what is wrong."""
    defined = [symbol for symbol in symbols if symbol.defined]
    strong = [symbol for symbol in defined if symbol.linking not in (".weak", ".common")]
    weak = [symbol for symbol in defined if symbol.linking == ".weak"]
    largest = sorted(defined or symbols, key=lambda symbol: (symbol.sizes, symbol.align), reverse=True)
    one = (strong or weak or largest)[0]
    if strong[1:]:
        files = " and ".join(dict.fromkeys(units[symbol.unit].name for symbol in strong))
        return one, f"{_spelled(name)} has several definitions, in {files}: keep one, or make it static or inline"
    for other in symbols:
        what = _difference(one, other)
        if what and not (one.is_dynamic and other.is_dynamic):
            files = f"{units[one.unit].name} and {units[other.unit].name}"
            return one, f"{_spelled(name)} differs between {files}: {what}; include one declaration in both"
    return one, ""


def _difference(one: _Symbol, other: _Symbol) -> str:
    if one.kind != other.kind:
        return f".{one.kind} and .{other.kind}"
    if one.is_function and one.sizes != other.sizes:
        return f"parameters → results of {_prototype(one)} and of {_prototype(other)} bytes"
    if one.sizes[1] and other.sizes[1] and one.sizes != other.sizes and ".common" not in (one.linking, other.linking):
        return f"{one.sizes[1][0]} and {other.sizes[1][0]} bytes"
    return ""


def _prototype(symbol: _Symbol) -> str:
    returns, params = (", ".join(map(str, sizes)) for sizes in symbol.sizes)
    return f"({params}) → ({returns})"


def _spelled(name: str) -> str:
    """Return the symbol as the user writes it, and as it is in the PTX."""
    plain = demangle(name)
    return name if plain == name else f"{plain} ({name})"


def _by_name(symbols: Iterable[_Symbol]) -> dict[str, list[_Symbol]]:
    found: dict[str, list[_Symbol]] = {}
    for symbol in symbols:
        found.setdefault(symbol.name, []).append(symbol)
    return found


# -- the text ---------------------------------------------------------------------------------------------------


class _Writer:
    """Writes the result: functions are declared first, then the variables whose values name them, then the bodies."""

    def __init__(self, units: Sequence[Unit], read: Sequence[_Read], chosen: Sequence[_Symbol]) -> None:
        self.units, self.read, self.chosen = units, read, chosen
        self.renamed = _rename(read, chosen)
        self.files: dict[str, int] = {}
        """Path → its number in the result."""

    def text(self) -> str:
        variables = _in_order([symbol for symbol in self.chosen if not symbol.is_function])
        functions = [symbol for symbol in self.chosen if symbol.is_function]
        named = {name for variable in variables for name in variable.names}
        parts = [
            *(self.declared(symbol) for symbol in functions if symbol.kind == "func" or symbol.name in named),
            *(self.piece(symbol.unit, symbol.first, symbol.last) for symbol in variables),
            *(self.defined(symbol) for symbol in functions if symbol.defined),
        ]
        strings = [self.piece(each.number, *part) for each in self.read for part in each.strings]
        parts += [f"\t.section\t{_STRINGS}\n\t{{\n" + "\n".join(strings) + "\n\t}"] if strings else []
        files = [f'.file\t{number} "{path}"' for path, number in self.files.items()]
        return "\n".join([*self.head(), *files, *parts, ""])

    def head(self) -> Iterator[str]:
        """Return the version and target of the newest unit."""
        version = max(each.level.version for each in self.read)
        target = max((each.level.target for each in self.read), key=_chip)
        yield f"// linked: {', '.join(unit.name for unit in self.units)}"
        yield f".version {version[0]}.{version[1]}"
        yield f".target {target}"
        yield ".address_size 64"

    def declared(self, symbol: _Symbol) -> str:
        return self.piece(symbol.unit, symbol.first, symbol.header) + ";"

    def defined(self, symbol: _Symbol) -> str:
        body = _statements(self.read[symbol.unit].tokens, symbol.header, symbol.last)
        where = f"// {self.units[symbol.unit].name}\n"
        return where + self.piece(symbol.unit, symbol.first, symbol.last, body)

    def piece(self, unit: int, first: int, last: int, statements: Set[int] = frozenset()) -> str:
        """Return the text of some tokens of a unit, with the names, files and lines of the result."""
        read = self.read[unit]
        text, at = [], read.tokens[first].start
        for start, length, new in self.edits(read, first, last, statements):
            text += [read.text[at:start], new]
            at = start + length
        end = read.tokens[last - 1]
        return "".join([*text, read.text[at : end.start + len(end.text)]])

    def edits(self, read: _Read, first: int, last: int, starts: Set[int]) -> Iterator[tuple[int, int, str]]:
        """Yield what to replace: offset, length, new text."""
        renamed, tokens = self.renamed[read.number], read.tokens
        line = 0
        for at in range(first, last):
            token = tokens[at]
            label = tokens[at + 1].text == ":"
            instruction = at in starts and (token.kind == "word" or token.text == "@") and not label
            opcode = instruction or _guarded(tokens, at, starts)
            if instruction and not read.located and token.line != line:
                line = token.line
                yield token.start, 0, f".loc {self.number(self.units[read.number].name)} {line} 0\n\t"
            if token.kind == "int" and tokens[at - 1].text in (".loc", "inlined_at"):
                path = read.files.get(int(token.text), f"file {token.text}")
                yield token.start, len(token.text), str(self.number(path))
            elif token.kind == "word" and token.text in renamed and not opcode:
                yield token.start, len(token.text), renamed[token.text]

    def number(self, path: str) -> int:
        return self.files.setdefault(path, len(self.files) + 1)


def _statements(tokens: Sequence[Token], first: int, last: int) -> set[int]:
    """Return the tokens of a body that begin a statement: there a word is an opcode or a label, not a symbol."""
    found: set[int] = set()
    begins = True
    for at in range(first, last):
        text = tokens[at].text
        if begins:
            found.add(at)
        if text == ":" and at - 1 in found:
            begins = tokens[at + 1].kind != "directive"  # `P: .callprototype …` is one statement
        else:
            begins = text == ";" or (begins and text in ("{", "}"))  # a scope, not a vector
    return found


def _guarded(tokens: Sequence[Token], at: int, starts: Set[int]) -> bool:
    """Return whether a token is the opcode after `@p` or `@!p`."""
    guard = at - 3 if tokens[at - 2].text == "!" else at - 2
    return guard in starts and tokens[guard].text == "@"


def _rename(read: Sequence[_Read], chosen: Sequence[_Symbol]) -> list[dict[str, str]]:
    """Return for each unit the new names: of symbols that another file has too, and of its debug strings."""
    renamed: list[dict[str, str]] = [{} for _ in read]
    taken = {token.text for each in read for token in each.tokens if token.kind == "word"}
    for name, symbols in _by_name(chosen).items():
        shared = any(symbol.linking for symbol in symbols)
        for symbol in [each for each in symbols if not each.linking][0 if shared else 1 :]:
            number = symbol.unit + 1
            while f"{name}${number}" in taken:
                number += 1
            renamed[symbol.unit][name] = f"{name}${number}"
            taken.add(f"{name}${number}")
    for each in read:
        for first, last in each.strings:
            labels = [each.tokens[at].text for at in range(first, last) if each.tokens[at + 1].text == ":"]
            renamed[each.number].update({label: f"{label}${each.number + 1}" for label in labels})
    return renamed


def _in_order(variables: Sequence[_Symbol]) -> list[_Symbol]:
    """Return the variables in the order of the files, but each after those that its initial value names."""
    by_name = _by_name(variables)
    order: graphlib.TopologicalSorter[_Symbol] = graphlib.TopologicalSorter()
    for variable in variables:
        order.add(variable, *(each for name in sorted(variable.names) for each in by_name.get(name, ())))
    try:
        return list(order.static_order())
    except graphlib.CycleError:  # pointers to each other: ptxas has no way to write that, Weft needs no order
        return list(variables)


def _chip(target: str) -> tuple[int, str]:
    match = re.fullmatch(r"sm_(\d+)([a-z]?)", target)
    return (int(match[1]), match[2]) if match else (0, "")
