"""Anything that a program gives to the driver → PTX: text, fatbins, cubins with the PTX in their debug section."""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import lz4.block
import zstandard

from weft.core.errors import WeftError
from weft.toolchain.elf import CubinError, read_elf
from weft.toolchain.line_table import with_lines

FATBIN_MAGIC = 0xBA55ED50
_FATBIN = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_PTX, _ELF = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
_MOST_BYTES = 1 << 30
"""No PTX is larger: a damaged size must not take all memory."""
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)([af]?)", re.MULTILINE)
_DEBUG_PTX = ".nv_debug_ptx_txt"

Noted = Callable[[bytes], str]
"""A cubin → the PTX that it was made of, if that is known; otherwise an empty text."""


def _nothing_noted(cubin: bytes) -> str:
    return ""


class InvalidImage(WeftError):
    """The bytes are no image: the driver's answer is INVALID_IMAGE."""


class NoCode(WeftError):
    """The image is for other GPUs: the driver's answer is NO_BINARY_FOR_GPU."""


class NoPtx(WeftError):
    """Machine code for this GPU without its PTX: a GPU would run it, Weft refuses it."""


@dataclass(frozen=True)
class Image:
    """The PTX of a module, the cubin that came with it, and what must be said at the end."""

    ptx: str
    cubin: bytes = b""
    note: str = ""

    @property
    def target(self) -> int:
        """Return the number of the PTX's target: 89 for sm_89; 0 if it names none."""
        match = _TARGET.search(self.ptx)
        return int(match[1]) if match else 0


@dataclass(frozen=True)
class Entry:
    """One member of a fatbin."""

    kind: int
    sm: int
    data: bytes


def read_image(data: bytes, sm: int, noted: Noted = _nothing_noted) -> Image:
    """Return the PTX that the GPU with this compute capability (89) runs. Raises InvalidImage, NoCode or NoPtx."""
    if data[:4] == b"\x7fELF":
        return read_cubin(data, noted)
    if len(data) >= 4 and int.from_bytes(data[:4], "little") == FATBIN_MAGIC:
        return _choose(list(entries(data)), sm, noted)
    text = read_text(data)
    image = Image(text)
    if image.target > sm:
        raise NoCode(f"the PTX is made for sm_{image.target}; this GPU is sm_{sm}: choose a GPU by --gpu")
    return image


def read_text(data: bytes) -> str:
    """Return PTX text; raises InvalidImage if it is none."""
    text = data.split(b"\0", 1)[0].decode(errors="replace")
    if ".version" not in text:
        raise InvalidImage("the image is neither PTX, a cubin nor a fatbin")
    return text


def read_cubin(data: bytes, noted: Noted = _nothing_noted) -> Image:
    """Return the PTX that is known for a cubin, or that of its debug section with the lines of its line tables."""
    try:
        elf = read_elf(data)
    except CubinError as error:
        raise InvalidImage(str(error)) from error
    text = noted(data)
    if text:
        return Image(text, data)
    found = next((section.data for section in elf.sections if section.name == _DEBUG_PTX), None)
    if found is None:
        raise NoPtx("the cubin has machine code only, without its PTX: compile with -lineinfo")
    text = found.rstrip(b"\0").replace(b"\0", b"\n").decode(errors="replace") + "\n"
    return Image(with_lines(text, elf), data)


def entries(data: bytes) -> Iterator[Entry]:
    """Yield the members of a fatbin, unpacked. Raises InvalidImage for damaged data."""
    try:
        magic, _, head_bytes, payload = _FATBIN.unpack_from(data)
        at, end = head_bytes, head_bytes + payload
        if magic != FATBIN_MAGIC or end > len(data):
            raise InvalidImage("the fatbin is damaged: its size is wrong")
        while at + _ENTRY.size <= end:
            fields = _ENTRY.unpack_from(data, at)
            kind, head, size, packed, sm, flags, raw = (fields[i] for i in (0, 2, 3, 4, 8, 11, 13))
            start = at + head
            if head < _ENTRY.size or start + size > end:
                raise InvalidImage("the fatbin is damaged: a member leaves it")
            if kind in (_PTX, _ELF):
                yield Entry(kind, sm, _unpack(data[start : start + size], flags, packed, raw))
            at = start + size
    except struct.error as error:
        raise InvalidImage(f"the fatbin is damaged: {error}") from error


def _unpack(data: bytes, flags: int, packed: int, raw: int) -> bytes:
    if not flags & (_LZ4 | _ZSTD):
        return data
    if raw > _MOST_BYTES or packed > len(data):
        raise InvalidImage("the fatbin is damaged: a member's size is wrong")
    try:
        if flags & _ZSTD:
            return zstandard.ZstdDecompressor().decompress(data[: packed or len(data)], max_output_size=raw)
        return bytes(lz4.block.decompress(data[:packed], uncompressed_size=raw))
    except (zstandard.ZstdError, lz4.block.LZ4BlockError, ValueError) as error:
        raise InvalidImage(f"the fatbin is damaged: {error}") from error


def _choose(members: list[Entry], sm: int, noted: Noted) -> Image:
    """Return what the driver would run: the newest cubin that fits this GPU, else the newest PTX that it can compile.

    PTX for the cubin's own target has source lines, so it is taken before the PTX of the debug section. Other PTX runs
    in place of a cubin without any, and the end says so: CuPy's wheels have machine code for every GPU but the newest.
    """
    cubins = sorted(
        (m for m in members if m.kind == _ELF and m.sm // 10 == sm // 10 and m.sm <= sm), key=lambda m: m.sm
    )
    texts = sorted((m for m in members if m.kind == _PTX), key=lambda m: m.sm)
    usable = [m for m in texts if m.sm <= sm]
    if not cubins:
        if not usable:
            known = ", ".join(f"sm_{m.sm}" for m in members) or "no GPU"
            raise NoCode(f"the fatbin has code for {known}; this GPU is sm_{sm}")
        return Image(read_text(usable[-1].data))
    chosen = cubins[-1]
    for text in texts:
        if text.sm == chosen.sm:
            return Image(read_text(text.data), chosen.data)
    try:
        return read_cubin(chosen.data, noted)
    except NoPtx:
        others = usable[-1:] or texts[:1]
        if not others:
            raise
        other = others[0]
        note = f"PTX for sm_{other.sm} ran in place of machine code for sm_{chosen.sm}, which has no PTX"
        return Image(read_text(other.data), note=note)
