"""Device printf: a format string and packed arguments → text, as the CUDA runtime would print it."""

import re
import struct
from collections.abc import Callable

_SPEC = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?(hh|h|ll|l|j|z|t|L)?(.)", re.DOTALL)
_PRECISION = re.compile(rb"%[-+ #0]*(?:\*|\d+)?(\.)")
_LONG = (b"l", b"ll", b"j", b"z", b"t")


class _Arguments:
    """Varargs in natural alignment: int 4, long long, double and pointers 8 bytes."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self.read = read
        self.at = 0
        self.count = 0

    def take(self, size: int) -> bytes:
        self.at = -(-self.at // size) * size
        data = self.read(self.at, size)
        self.at += size
        self.count += 1
        return data

    def integer(self, size: int, *, signed: bool) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def double(self) -> float:
        value: float = struct.unpack("<d", self.take(8))[0]
        return value


def format_device(
    fmt: bytes, args: bytes | Callable[[int, int], bytes], string: Callable[[int], bytes] | None = None
) -> tuple[str, int]:
    """Return the text and the number of arguments used.

    `args` is the packed block or `(offset, size) -> bytes`; `string` reads a device string at an address.
    """
    block = args if callable(args) else (lambda at, size: args[at : at + size].ljust(size, b"\0"))
    values = _Arguments(block)

    def one(found: re.Match[bytes]) -> bytes:
        flags, width, precision, length, letter = found.groups()
        if letter == b"%":
            return b"%"
        has_precision = _PRECISION.match(found.group()) is not None
        if width == b"*":
            star = values.integer(4, signed=True)
            flags, width = (flags + b"-", b"%d" % -star) if star < 0 else (flags, b"%d" % star)
        if precision == b"*":
            precision = b"%d" % values.integer(4, signed=True)
            has_precision = not precision.startswith(b"-")
        spec = b"%" + flags + (width or b"") + (b"." + (precision or b"0") if has_precision else b"")
        size = 8 if length in _LONG else 4
        if letter in b"di":
            return (spec + b"d") % _narrow(values.integer(size, signed=True), length, signed=True)
        if letter in b"uoxX":
            number = _narrow(values.integer(size, signed=False), length, signed=False)
            return _prefixed(spec, letter, number)
        if letter in b"c":
            return (spec + b"s") % bytes([values.integer(4, signed=False) & 0xFF])
        if letter in b"eEfFgG":
            return (spec + letter) % values.double()
        if letter in b"aA":
            text = values.double().hex().encode()
            return (b"%" + flags + (width or b"") + b"s") % (text.upper() if letter == b"A" else text)
        if letter == b"p":
            return (b"%" + flags + (width or b"") + b"s") % (b"0x%x" % values.integer(8, signed=False))
        if letter == b"s":
            address = values.integer(8, signed=False)
            return (spec + b"s") % (b"(null)" if not address or string is None else string(address))
        return found.group()

    return _SPEC.sub(one, fmt).decode("utf-8", errors="replace"), values.count


def _narrow(value: int, length: bytes | None, *, signed: bool) -> int:
    bits = {b"h": 16, b"hh": 8}.get(length or b"", 0)
    if not bits:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _prefixed(spec: bytes, letter: bytes, number: int) -> bytes:
    """Return C's `#o`, which has a leading 0 where Python writes 0o."""
    if letter == b"u":
        letter = b"d"
    if letter == b"o" and b"#" in spec:
        return (spec.replace(b"#", b"") + b"s") % (b"0%o" % number)
    if b"#" in spec and number == 0:
        spec = spec.replace(b"#", b"")
    return (spec + letter) % number
