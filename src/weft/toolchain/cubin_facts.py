"""A cubin → what the driver reports about its kernels after loading it."""

import struct
from dataclasses import dataclass

from .elf import CubinError, read_elf

_REGISTERS, _FRAME = 0x2F, 0x11
_SIZED = 0x04
"""Format of records whose 16 bits are a size."""


@dataclass(frozen=True)
class CubinFacts:
    """Registers and local memory of one kernel."""

    registers: int
    local_bytes: int
    """Stack frame per thread: arrays in local memory, arguments of printf, spilled registers."""


def cubin_facts(cubin: bytes, kernel: str) -> CubinFacts:
    """Read from a cubin what the driver would report after loading it.

    Its section `.nv.info` is a list of records: format, attribute, 16 bits of value or size, then as many bytes. The
    records used here hold the number of the kernel's symbol and a value.
    """
    elf = read_elf(cubin)
    info = next((section.data for section in elf.sections if section.name == ".nv.info"), b"")
    values: dict[int, int] = {}
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute in (_REGISTERS, _FRAME) and size == 8:
            symbol, value = struct.unpack_from("<II", info, at)
            if symbol < len(elf.symbols) and elf.symbols[symbol].name == kernel:
                values[attribute] = value
        at += size
    if _REGISTERS not in values:
        raise CubinError(f"the cubin does not record how many registers {kernel} needs")
    return CubinFacts(values[_REGISTERS], values.get(_FRAME, 0))
