"""The `// weft:` lines of a CUDA file → records. The grammar is in docs/reference/launch_lines.md.

Nothing is computed here: formulas are checked for their form and their names, and kept.
"""

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path

from weft.core.chips import chip
from weft.core.errors import UsageError, at_line
from weft.core.names import did_you_mean

from .element_types import CPP_TYPES, ELEMENT_TYPES, FILLS, TYPE_WORDS
from .expressions import FUNCTIONS, Expression
from .launch_records import (
    Argument,
    ArrayLine,
    DefineLine,
    Initialiser,
    LaunchLine,
    LaunchLines,
    LeverLine,
    LinkLine,
    NondeterministicLine,
    RequireLine,
    ScalarLine,
    Struct,
)
from .map_arguments import CALL, parse_map

ROLES = ("in", "out", "inout", "workspace", "constant")
CLAUSES = ("grid", "block", "cluster", "shared", "opt_in_shared", "when")
CLAUSES_SPELLED = "grid(…) block(…) cluster(…) shared(…) opt_in_shared when(…)"
STATED = ("scalar", "define", "lever", "require", "nondeterministic", "option", "gpu", "link", "launch", "allow")
KEYWORDS = ("sizes", *ROLES, *STATED)

_LINE = re.compile(r"^\s*(?://+|#+)\s*weft\s*:\s*(.*?)\s*$", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALLEE = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
_CLOSING = {"(": ")", "{": "}", "[": "]"}


def parse_lines(text: str, file: str) -> LaunchLines:
    """Read the lines of a source text, with the types that its own defines choose. `file` is for messages."""
    return choose_types(read_lines(text, file), file, {})


def read_lines(text: str, file: str) -> LaunchLines:
    """Read the lines with element types as they are written, because macros of the caller may choose them."""
    found = LaunchLines()
    for line, content in _statements(text, file):
        with at_line(file, line):
            found = _add(found, content, line)
    _check_names(found, file)
    return found


def choose_types(lines: LaunchLines, file: str, defines: Mapping[str, str]) -> LaunchLines:
    """Return the lines with Weft's type in every array and scalar: `q : ELEMENT[S, D]` → `q : f16[S, D]`.

    A text define may choose an element type, so that -D changes kernel and lines together. `defines` override the
    file's.
    """
    texts = {line.name: line.value for line in lines.defines if isinstance(line.value, str)}
    chosen = {name: defines.get(name, text) for name, text in texts.items()}

    def element(text: str, line: int) -> str:
        if text in ELEMENT_TYPES:
            return text
        known = " ".join(ELEMENT_TYPES)
        if text not in chosen:
            if text in TYPE_WORDS:
                return TYPE_WORDS[text]
            hint = did_you_mean(text, (*ELEMENT_TYPES, *TYPE_WORDS, *chosen))
            raise UsageError(f"{file}:{line}: {text!r} is not a type{hint}; there are {known}, and text defines")
        spelled = " ".join(chosen[text].split())
        found = CPP_TYPES.get(spelled) or TYPE_WORDS.get(spelled, spelled)
        if found not in ELEMENT_TYPES:
            raise UsageError(f"{file}:{line}: {text} is {spelled!r}, neither a supported C++ type nor one of {known}")
        return found

    return replace(
        lines,
        arrays=tuple(replace(array, element=element(array.element, array.line)) for array in lines.arrays),
        scalars=tuple(replace(scalar, element=element(scalar.element, scalar.line)) for scalar in lines.scalars),
    )


def options_of(path: Path) -> tuple[str, ...]:
    """Return the `option` lines of a file; empty for a file that cannot be read, which the compiler then reports."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(
        option
        for line, content in _statements(text, str(path))
        if _keyword(content) == "option"
        for option in _add(LaunchLines(), content, line).options
    )


def _statements(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yield the lines, with the rest of a launch joined to it: open brackets, then its clauses."""
    waiting: tuple[int, str] | None = None
    for line, content in enumerate(text.splitlines(), 1):
        match = _LINE.match(content)
        if not match:
            continue
        keyword = _keyword(match[1])
        if waiting is not None and waiting[1].count("(") > waiting[1].count(")"):
            waiting = (waiting[0], f"{waiting[1]} {match[1]}")
            continue
        if keyword in CLAUSES:
            if waiting is None:
                raise UsageError(f"{file}:{line}: {keyword} must follow a launch line, but there is none above it")
            waiting = (waiting[0], f"{waiting[1]} {match[1]}")
            continue
        if waiting is not None:
            yield waiting
            waiting = None
        if keyword == "launch":
            waiting = (line, match[1])
        else:
            yield line, match[1]
    if waiting is not None:
        yield waiting


def _keyword(content: str) -> str:
    match = _NAME.match(content)
    return match[0] if match else ""


def _add(found: LaunchLines, content: str, line: int) -> LaunchLines:
    keyword = _keyword(content)
    rest = content[len(keyword) :].strip()
    if keyword == "gpu":
        if found.gpu:
            raise UsageError("gpu is given twice")
        return replace(found, gpu=chip(rest).name)
    if keyword == "sizes":
        return replace(found, sizes={**found.sizes, **_sizes(rest, found.sizes)})
    if keyword in ROLES:
        return replace(found, arrays=(*found.arrays, *_arrays(keyword, rest, line)))
    if keyword == "scalar":
        return replace(found, scalars=(*found.scalars, *_scalars(rest, line)))
    if keyword == "define":
        return replace(found, defines=(*found.defines, _define(rest, line)))
    if keyword == "lever":
        lever, define = _lever(rest, line)
        return replace(found, levers=(*found.levers, lever), defines=(*found.defines, define))
    if keyword == "require":
        return replace(found, requires=(*found.requires, _require(rest, line)))
    if keyword == "nondeterministic":
        return replace(found, nondeterministic=(*found.nondeterministic, _nondeterministic(rest, line)))
    if keyword == "option":
        return replace(found, options=(*found.options, *_options(rest)))
    if keyword == "link":
        return replace(found, links=(*found.links, *_links(rest, line)))
    if keyword == "launch":
        return replace(found, launches=(*found.launches, _launch(rest, line)))
    if keyword == "allow":  # not about launches: suppress.py reads it
        return found
    first = content.split()[0] if content else ""
    raise UsageError(f"{first!r}{did_you_mean(first, KEYWORDS)}: a line starts with {', '.join(KEYWORDS)}")


def _sizes(rest: str, known: Mapping[str, int]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for item in rest.replace(",", " ").split():
        match = re.fullmatch(r"([A-Za-z_]\w*)=(\d+)", item)
        if not match:
            raise UsageError(f"{item!r} must have the form S=512")
        if match[1] in known or match[1] in sizes:
            raise UsageError(f"{match[1]} is declared twice")
        sizes[match[1]] = int(match[2])
    if not sizes:
        raise UsageError("sizes needs at least one size, such as S=512")
    return sizes


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a name")
    return names


def _arrays(role: str, rest: str, line: int) -> Iterator[ArrayLine]:
    match = re.fullmatch(r"([^:=]+):\s*(\w+)\s*\[(.*?)\]\s*(?:=\s*(.*))?", rest)
    if not match:
        raise UsageError(f"{rest!r} must have the form `q, k : f16[S, D]` or `q, k : f16[S, D] = normal`")
    shape = tuple(Expression.parse(size) for size in _split(match[3]))
    initialiser = _initialiser(match[4]) if match[4] is not None else None
    if initialiser and role in ("out", "workspace"):
        raise UsageError(f"an array of role {role} starts as 0xFF bytes; use inout for an array with initial values")
    for name in _names(match[1]):
        yield ArrayLine(role, name, match[2], shape, initialiser, line)


def _initialiser(text: str) -> Initialiser:
    match = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", text)
    if not match or match[1] not in FILLS:
        known = ", ".join(FILLS)
        hint = did_you_mean(text, FILLS)
        raise UsageError(f"{text!r} is not an initialiser{hint}; there are {known} and uniform(low, high)")
    if match[2] is None:
        return Initialiser(match[1])
    bounds = tuple(Expression.parse(bound) for bound in _split(match[2]))
    if match[1] != "uniform" or len(bounds) != 2:
        raise UsageError(f"{text!r}: only uniform takes arguments, a low and a high bound")
    return Initialiser(match[1], bounds)


def _scalars(rest: str, line: int) -> Iterator[ScalarLine]:
    match = re.fullmatch(r"([^:=]+):\s*(\w+)\s*=\s*(.+)", rest)
    if not match:
        raise UsageError(f"{rest!r} must have the form `scale : f32 = 1 / sqrt(D)`")
    for name in _names(match[1]):
        yield ScalarLine(name, match[2], Expression.parse(match[3]), line)


def _define(rest: str, line: int) -> DefineLine:
    match = re.fullmatch(r"([A-Za-z_]\w*)\s*=\s*(.+)", rest)
    if not match:
        raise UsageError(f'{rest!r} must have the form `TILE = 64` or `ELEMENT = "half"`')
    quoted = re.fullmatch(r'"([^"]*)"', match[2])
    return DefineLine(match[1], quoted[1] if quoted else Expression.parse(match[2]), line)


def _lever(rest: str, line: int) -> tuple[LeverLine, DefineLine]:
    stated, _, about = rest.partition(" : ")
    match = re.fullmatch(r"([A-Za-z_]\w*)\s*=\s*(\w+)\s+in\s+(.+)", stated)
    if not match:
        raise UsageError(f"{rest!r} must have the form `BLOCK_M = 64 in 32, 64, 128` or `COPY = plain in plain, async`")
    name, default, values = match[1], match[2], tuple(value.strip() for value in match[3].split(","))
    number = values[0].isdecimal()
    for value in values:
        if value.isdecimal() != number or not re.fullmatch(r"0|[1-9]\d*|[A-Za-z_]\w*", value):
            raise UsageError(f"{value!r} in {rest!r}: the values of a lever must be all integers or all words")
    if len(set(values)) != len(values) or default not in values:
        raise UsageError(f"{rest!r}: the values must be different, and {default} must be one of them")
    define = DefineLine(name, Expression.parse(default) if number else default, line)
    return LeverLine(name, default, values, about.strip(), line), define


def _require(rest: str, line: int) -> RequireLine:
    formula, _, reason = rest.partition(" : ")
    condition, word, when = formula.partition(" when ")
    guard = Expression.parse(when) if word else None
    return RequireLine(Expression.parse(condition), guard, reason.strip(), line)


def _options(rest: str) -> list[str]:
    for option in rest.split():
        if not option.startswith("-"):
            raise UsageError(f"{option!r} is not a compiler option such as -default-device")
    if not rest:
        raise UsageError("option needs at least one compiler option, such as -default-device")
    return rest.split()


def _links(rest: str, line: int) -> Iterator[LinkLine]:
    names = [name.strip() for name in rest.split(",")]
    for name in names:
        if not name.endswith((".cu", ".ptx")):
            raise UsageError(f"{name!r} is not a file to link: write `link helpers.cu, table.ptx`")
        yield LinkLine(name, line)


def _nondeterministic(rest: str, line: int) -> NondeterministicLine:
    names, _, why = rest.partition(" : ")
    if not why.strip():
        raise UsageError(f"{rest!r} must have the form `dq : atomicAdd in the order of the CTAs`, with the reason")
    return NondeterministicLine(tuple(_names(names)), why.strip(), line)


def _launch(rest: str, line: int) -> LaunchLine:
    callee, after = _callee(rest)
    inside, after = _bracketed(after)
    clauses: dict[str, str] = {}
    while after:
        clause = _keyword(after)
        if clause not in CLAUSES:
            raise UsageError(f"{after!r}: only {CLAUSES_SPELLED} may follow the arguments")
        if clause in clauses:
            raise UsageError(f"{clause} is given twice")
        after = after[len(clause) :].strip()
        if clause == "opt_in_shared":
            clauses[clause] = ""
        else:
            clauses[clause], after = _bracketed(after)
    for needed in ("grid", "block"):
        if needed not in clauses:
            raise UsageError(f"the launch has no {needed}(…)")
    return LaunchLine(
        callee=callee,
        arguments=tuple(_argument(text) for text in _split(inside)),
        grid=_dimensions("grid", clauses["grid"]),
        block=_dimensions("block", clauses["block"]),
        shared=Expression.parse(clauses["shared"]) if "shared" in clauses else None,
        opt_in_shared="opt_in_shared" in clauses,
        line=line,
        when=Expression.parse(clauses["when"]) if "when" in clauses else None,
        cluster=_dimensions("cluster", clauses["cluster"]) if "cluster" in clauses else (),
    )


def _callee(text: str) -> tuple[tuple[str | Expression, ...], str]:
    """Split `attn<{D}, 64>(…)` into its pieces and the rest of the line from the opening parenthesis on."""
    match = _CALLEE.match(text)
    if not match:
        raise UsageError(f"{text!r}: expected the name of a kernel")
    end = match.end()
    if text[end:].lstrip().startswith("<"):
        end = _template_end(text, text.index("<", end))
    pieces: list[str | Expression] = []
    for number, piece in enumerate(re.split(r"\{([^{}]*)\}", text[:end])):
        pieces.append(Expression.parse(piece) if number % 2 else piece)
    if any(isinstance(piece, str) and ("{" in piece or "}" in piece) for piece in pieces):
        raise UsageError(f"{text[:end]!r}: each pair of braces must hold one formula")
    return tuple(pieces), text[end:].strip()


def _template_end(text: str, start: int) -> int:
    """Return where the template arguments that open at `start` end; a `>` inside brackets does not count."""
    depth, angles = 0, 0
    for at in range(start, len(text)):
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if not depth:
            angles += (text[at] == "<") - (text[at] == ">")
            if not angles:
                return at + 1
    raise UsageError(f"{text[start:]!r}: the closing > of the template arguments is missing")


def _bracketed(text: str) -> tuple[str, str]:
    """`(a, (b)) rest` → `a, (b)` and `rest`."""
    if not text.startswith("("):
        raise UsageError(f"{text!r}: expected an opening parenthesis")
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return text[1:at], text[at + 1 :].strip()
    raise UsageError(f"{text!r}: a parenthesis is not closed")


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets; an empty text has no items."""
    items, expected, start = [], [], 0
    for at, letter in enumerate(text):
        if letter in _CLOSING:
            expected.append(_CLOSING[letter])
        elif letter in ")}]" and (not expected or expected.pop() != letter):
            raise UsageError(f"{text!r}: {letter} has no opening bracket")
        elif letter == "," and not expected:
            items.append(text[start:at])
            start = at + 1
    if expected:
        raise UsageError(f"{text!r}: {expected[-1]} is missing")
    return [*items, text[start:]] if text.strip() else []


def _argument(text: str) -> Argument:
    stripped = text.strip()
    if stripped.startswith(CALL):
        return parse_map(stripped)
    if not stripped.startswith("{"):
        return Expression.parse(stripped)
    if not stripped.endswith("}"):
        raise UsageError(f"{stripped!r}: braces must enclose the entire struct")
    members = _split(stripped[1:-1])
    if not members:
        raise UsageError("the struct has no members")
    return Struct(tuple(Expression.parse(member) for member in members))


def _dimensions(clause: str, text: str) -> tuple[Expression, ...]:
    sizes = tuple(Expression.parse(size) for size in _split(text))
    if not 1 <= len(sizes) <= 3:
        raise UsageError(f"{clause} takes one to three sizes; {len(sizes)} are given")
    return sizes


def _check_names(found: LaunchLines, file: str) -> None:
    """Check that names are declared once, and that every formula reads only names that are known at its line."""
    declared: dict[str, int] = dict.fromkeys(found.sizes, 0)
    items: tuple[ArrayLine | ScalarLine | DefineLine, ...] = (*found.arrays, *found.scalars, *found.defines)
    for item in items:
        with at_line(file, item.line):
            if item.name in declared:
                raise UsageError(f"{item.name} is declared twice")
            if item.name in FUNCTIONS:
                raise UsageError(f"{item.name} is the name of a function")
        declared[item.name] = item.line
    for lever in found.levers:
        for word in lever.words:
            with at_line(file, lever.line):
                if word in declared:
                    raise UsageError(f"{word} is declared, but lever {lever.name} also defines a macro of that name")
            declared[word] = lever.line
    numbers = {*found.sizes, *(word for lever in found.levers for word in lever.words)}
    definitions: tuple[ScalarLine | DefineLine, ...] = (*found.defines, *found.scalars)
    for definition in definitions:
        if isinstance(definition.value, Expression):
            _check_known(definition.value, numbers, file, definition.line)
        numbers.add(definition.name)
    for require in found.requires:
        for formula in (require.formula, *((require.when,) if require.when else ())):
            _check_known(formula, numbers, file, require.line)
    for array in found.arrays:
        bounds = array.initialiser.bounds if array.initialiser else ()
        for formula in (*array.shape, *bounds):
            _check_known(formula, numbers, file, array.line)
    written = {array.name for array in found.arrays if array.role in ("out", "inout")}
    for stated in found.nondeterministic:
        for name in stated.names:
            if name not in written:
                with at_line(file, stated.line):
                    raise UsageError(f"{name!r} is no out or inout array{did_you_mean(name, sorted(written))}")
    passable = {array.name for array in found.arrays if array.role != "constant"}
    for launch in found.launches:
        for formula in launch.formulas():
            _check_known(formula, numbers, file, launch.line)
        for formula in launch.passed():
            if formula.name not in passable:
                _check_known(formula, numbers, file, launch.line, also=passable)


def _check_known(formula: Expression, numbers: Set[str], file: str, line: int, *, also: Set[str] = frozenset()) -> None:
    for name in sorted(formula.names - numbers):
        with at_line(file, line):
            if name in also:
                raise UsageError(f"{formula.text!r} computes with the array {name}; an array can only be passed")
            known = ", ".join((*sorted(also), *sorted(numbers))) or "nothing"
            hint = did_you_mean(name, (*also, *numbers))
            raise UsageError(f"{name!r} is not known here{hint}; known names: {known}")
