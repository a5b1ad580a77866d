"""The parts of an ELF file that a cubin needs: sections and symbols of 64-bit little-endian objects."""

import struct
from dataclasses import dataclass

from weft.core.errors import WeftError


class CubinError(WeftError):
    """The cubin is not a valid ELF file."""


@dataclass(frozen=True)
class Section:
    """One section header with its bytes."""

    name: str
    type: int
    link: int
    info: int
    size: int
    data: bytes


@dataclass(frozen=True)
class Symbol:
    """One row of the symbol table."""

    name: str
    section: int
    type: int
    value: int
    size: int


@dataclass(frozen=True)
class Elf:
    """Sections in file order (index = ELF section index) and symbols."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _NOBITS = 2, 8


def read_elf(data: bytes) -> Elf:
    """Read the section headers and the symbol table. Raises CubinError if they are malformed."""
    try:
        return _read(data)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise CubinError(f"the cubin is damaged: {error}") from error


def _read(data: bytes) -> Elf:
    if data[:6] != b"\x7fELF\x02\x01":
        raise CubinError("the cubin is not a 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(data)
    table, entry_size, count, names_index = header[6], header[11], header[12], header[13]
    rows = [_SECTION.unpack_from(data, table + i * entry_size) for i in range(count)]
    contents = [b"" if row[1] == _NOBITS else data[row[4] : row[4] + row[5]] for row in rows]
    sections = tuple(
        Section(_string(contents[names_index], row[0]), row[1], row[6], row[7], row[5], content)
        for row, content in zip(rows, contents, strict=True)
    )
    symbols: list[Symbol] = []
    for section in sections:
        if section.type == _SYMTAB:
            strings = contents[section.link]
            for name, info, _, index, value, size in _SYMBOL.iter_unpack(section.data):
                symbols.append(Symbol(_string(strings, name), index, info & 15, value, size))
    return Elf(sections, tuple(symbols))


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if end < 0:
        raise CubinError("the cubin is damaged: unterminated name")
    return table[offset:end].decode()
