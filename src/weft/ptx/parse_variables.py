"""Variable declarations and their initial values."""

import struct

from weft.core.errors import ParseError, Unsupported

from .cursor import Cursor
from .module import WIDTH, FloatImm, Imm, Sym, Variable

MOST_ALIGN = 1 << 16
MOST_ELEMENTS = 1 << 40
SPACES = frozenset([".global", ".const", ".shared", ".local", ".param"])


def parse_variables(p: Cursor, space: str, *, extern: bool = False) -> list[Variable]:
    """Read what follows a state space: `.align 16 .b8 tile[4096], other[16]`."""
    align, line = 0, p.token.line
    vector, managed = 1, False
    while True:
        token = p.kind("directive")
        name = token.text[1:]
        if name == "align":
            align = p.integer()
            if align.bit_count() != 1 or not 0 < align <= MOST_ALIGN:
                raise ParseError(f"alignment {align} is not a power of two up to {MOST_ALIGN}", line)
        elif name == "attribute":
            managed |= ".managed" in _attributes(p)
        elif name in ("v2", "v4"):
            vector = int(name[1])
        elif name in WIDTH:
            break
        else:
            raise Unsupported(f"declaration with {token.text}", line)
    if p.accept(".ptr"):  # a hint on a pointer parameter: its space and alignment have no effect here
        while p.token.text in SPACES:
            p.take()
        if p.accept(".align"):
            p.integer()
    declared = []
    while True:
        word = p.kind("word").text
        count, sized = vector, True
        while p.accept("["):
            if p.accept("]"):
                sized = False
            else:
                count *= p.integer()
                if not 0 <= count <= MOST_ELEMENTS:
                    raise Unsupported(f"an array of {count} elements", line)
                p.expect("]")
        init, relocations = _initialiser(p, name, count) if p.accept("=") else (b"", ())
        declared.append(
            Variable(
                word,
                space,
                name,
                align or max(WIDTH[name] // 8, 1) * vector,
                count if sized else 0,
                init,
                extern,
                relocations,
                managed,
            )
        )
        if space == "param" or not p.accept(","):
            return declared


def _attributes(p: Cursor) -> frozenset[str]:
    """Read the rest of `.attribute(.managed, .unified(1, 2))` (PTX ISA, variable attributes); return their names."""
    p.expect("(")
    names = set()
    while not p.accept(")"):
        token = p.kind("directive")
        if token.text not in (".managed", ".unified"):
            raise Unsupported(f"attribute {token.text}", token.line)
        names.add(token.text)
        if p.accept("("):  # the identifier of a unified symbol, which several devices share
            p.comma_list(p.integer, ")")
        p.accept(",")
    return frozenset(names)


def parse_parameter(p: Cursor) -> Variable:
    """Read `.param .align 8 .b8 name[16]` in the list of a function or of a prototype."""
    token = p.take()
    if token.text not in (".param", ".reg"):
        raise ParseError(f"expected a parameter, found {token.text!r}", token.line)
    if token.text == ".reg":
        raise Unsupported("parameters in registers", token.line)
    return parse_variables(p, "param")[0]


def _initialiser(p: Cursor, type_name: str, count: int) -> tuple[bytes, tuple[tuple[int, Sym], ...]]:
    size = WIDTH[type_name] // 8
    data, relocations = bytearray(), []

    def value() -> None:
        if p.accept("{"):
            with p.nested():
                p.comma_list(value, "}")
            return
        token = p.token
        if token.kind == "word":
            relocations.append((len(data), _symbol_value(p)))
            data.extend(bytes(size))
        else:
            data.extend(_constant_bytes(p.literal(), type_name, token.line))

    value()
    if len(data) > max(count, 1) * size:
        raise ParseError("more initial values than elements", p.token.line)
    return bytes(data), tuple(relocations)


def _symbol_value(p: Cursor) -> Sym:
    name = p.kind("word").text
    if name == "generic":
        p.expect("(")
        name = p.kind("word").text
        p.expect(")")
    return Sym(name, p.integer() if p.accept("+") else 0)


def _constant_bytes(literal: Imm | FloatImm, type_name: str, line: int) -> bytes:
    size = WIDTH[type_name] // 8
    if isinstance(literal, Imm):
        return (literal.value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if literal.width == 8 * size:
        return literal.bits.to_bytes(size, "little")
    if literal.width == 64 and size == 4:
        try:
            return struct.pack("<f", struct.unpack("<d", literal.bits.to_bytes(8, "little"))[0])
        except OverflowError:
            raise ParseError(f"the literal is too large for .{type_name}", line) from None
    raise ParseError(f"a floating literal cannot initialise .{type_name}", line)
