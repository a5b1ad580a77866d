"""Source lines of PTX that is the debug section of a cubin, which has no `.loc`: two line tables of the cubin, joined.

`-lineinfo` writes both in the line format of DWARF 2. `.debug_line` maps machine code to source lines,
`.nv_debug_line_sass` maps it to lines of the PTX. A line of the PTX belongs to the source line of the first instruction
that it became. The tables give addresses inside a function; their relocations name the function.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from .elf import Elf

_OF_SOURCE, _OF_PTX = ".debug_line", ".nv_debug_line_sass"
_RELOCATION = struct.Struct("<QQ")
_HEAD = struct.Struct("<IHI")
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


@dataclass(frozen=True)
class Row:
    """From this address of a function on, machine code belongs to this line."""

    function: int
    """Symbol."""
    address: int
    file: str
    line: int


def with_lines(ptx: str, elf: Elf) -> str:
    """Return the PTX with `.file` and `.loc`, or as it is if the cubin has no line tables that can be read."""
    try:
        places = _places(elf)
    except (struct.error, IndexError, UnicodeDecodeError):
        return ptx  # a format of a later compiler: findings name lines of the PTX
    if not places:
        return ptx
    numbers = {file: number for number, file in enumerate(dict.fromkeys(file for file, _ in places.values()), 1)}
    lines = ptx.splitlines()
    for at, (file, line) in places.items():
        # On the same line: findings also name the line of the PTX, and a tool may show it.
        if 0 < at <= len(lines) and lines[at - 1].rstrip().endswith(";"):
            lines[at - 1] = f".loc {numbers[file]} {line} 0 {lines[at - 1]}"
    return "\n".join([*lines, *(f'.file {number} "{file}"' for file, number in numbers.items())]) + "\n"


def _places(elf: Elf) -> dict[int, tuple[str, int]]:
    """Return the place in the source of each line of the PTX."""
    source: dict[int, list[Row]] = {}
    for row in sorted(_rows(elf, _OF_SOURCE), key=lambda row: row.address):
        source.setdefault(row.function, []).append(row)
    found: dict[int, tuple[str, int]] = {}
    for row in sorted(_rows(elf, _OF_PTX), key=lambda row: (row.function, row.address)):
        rows = source.get(row.function, [])
        before = bisect_right(rows, row.address, key=lambda one: one.address)
        if before and rows[before - 1].line and row.line not in found:
            found[row.line] = (rows[before - 1].file, rows[before - 1].line)
    return found


def _rows(elf: Elf, name: str) -> Iterator[Row]:
    """Yield the rows of a line table."""
    data = next((section.data for section in elf.sections if section.name == name), b"")
    functions = {
        offset: info >> 32
        for section in elf.sections
        if section.name in (f".rel{name}", f".rela{name}")
        for offset, info in _relocations(section.data, section.name)
    }
    at = 0
    while at + _HEAD.size < len(data):
        length, version, head_bytes = _HEAD.unpack_from(data, at)
        end = at + 4 + length
        if version not in (2, 3):
            return
        yield from _Unit(data, at, at + _HEAD.size + head_bytes, end).run(functions)
        at = end


def _relocations(data: bytes, name: str) -> Iterator[tuple[int, int]]:
    step = 24 if name.startswith(".rela") else 16
    for at in range(0, len(data) - step + 1, step):
        yield _RELOCATION.unpack_from(data, at)


class _Unit:
    """The line program of one unit."""

    def __init__(self, data: bytes, start: int, first: int, end: int) -> None:
        self.data, self.at, self.first, self.end = data, start + _HEAD.size, first, end
        self.least, _, self.base, self.range, self.special = struct.unpack_from("<BBbBB", data, self.at)
        self.operands = data[self.at + 5 : self.at + 5 + self.special - 1]
        self.at += 4 + self.special
        folders = [""]
        while data[self.at]:
            folders.append(self._text())
        self.at += 1
        self.files = [""]
        while data[self.at]:
            name, folder = self._text(), self._number()
            self._number(), self._number()
            self.files.append(str(PurePosixPath(folders[folder]) / name) if folder < len(folders) else name)

    def run(self, functions: dict[int, int]) -> Iterator[Row]:
        """Yield the rows that the program writes."""
        self.at = self.first
        function, address, file, line = -1, 0, 1, 1
        while self.at < self.end:
            code = self.data[self.at]
            self.at += 1
            if code >= self.special:
                address += (code - self.special) // self.range * self.least
                line += self.base + (code - self.special) % self.range
                yield self._row(function, address, file, line)
            elif code == 0:
                length = self._number()
                kind, after = self.data[self.at], self.at + length
                if length and kind == _SET_ADDRESS:
                    function = functions.get(self.at + 1, -1)
                    address = int.from_bytes(self.data[self.at + 1 : after], "little")
                elif length and kind == _END_SEQUENCE:
                    function, address, file, line = -1, 0, 1, 1
                self.at = after  # others name what is inlined
            elif code == _COPY:
                yield self._row(function, address, file, line)
            elif code == _ADVANCE_PC:
                address += self._number() * self.least
            elif code == _ADVANCE_LINE:
                line += self._signed()
            elif code == _SET_FILE:
                file = self._number()
            elif code == _CONST_ADD_PC:
                address += (255 - self.special) // self.range * self.least
            elif code == _FIXED_ADVANCE_PC:
                address += int.from_bytes(self.data[self.at : self.at + 2], "little")
                self.at += 2
            else:
                for _ in range(self.operands[code - 1]):
                    self._number()

    def _row(self, function: int, address: int, file: int, line: int) -> Row:
        return Row(function, address, self.files[file] if file < len(self.files) else "", line)

    def _text(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode()
        self.at = end + 1
        return text

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _signed(self) -> int:
        start = self.at
        value = self._number()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value
