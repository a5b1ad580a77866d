"""Where ptxas puts each `__shared__` array of a kernel.

A debug cubin has a symbol per array. An optimised one has only the total, so the layout is rebuilt by ptxas'
rule (checked against SASS addresses): in order of declaration at natural alignment, the kernel's own arrays,
then those of the module that it uses, then those of the functions it calls. A layout that differs from the cubin's
total is not returned. From sm_90 on offsets begin at 1024, after the part of the window that the system reserves.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from weft.core.records import SharedSymbol

from .elf import Elf, read_elf

_FUNCTION = re.compile(
    r"^(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$%]+)[^;{]*([;{])", re.MULTILINE
)
_ARRAY = re.compile(
    r"^\s*(?:\.visible\s+|\.weak\s+)?\.shared\s+(?:\.align\s+(\d+)\s+)?(?:\.v([24])\s+)?\.[bsuf](\d+)\s+"
    r"([\w$%]+)((?:\[\d+\])*)\s*;",
    re.MULTILINE,
)
_DYNAMIC = re.compile(r"^\s*\.extern\s+\.shared\s+(?:\.align\s+(\d+)\s+)?\.\w+\s+([\w$%]+)\[\]", re.MULTILINE)
_WORD = re.compile(r"[\w$%]+")
_OBJECT = 1
_RESERVED_BYTES = 1024
"""From sm_90 on the system keeps the first KB of each CTA's window inside the kernel's section."""


@dataclass(frozen=True)
class _Array:
    name: str
    align: int
    size_bytes: int


@dataclass(frozen=True)
class _Module:
    """The parts of a PTX text that the layout needs."""

    bodies: dict[str, str]
    module_arrays: tuple[_Array, ...]
    dynamic: dict[str, int]
    """Name of an `extern __shared__` block → its alignment."""


def shared_symbols(ptx: str, cubin: bytes, kernels: Sequence[str]) -> dict[str, tuple[SharedSymbol, ...]]:
    """Return the symbols by mangled kernel name: () without static shared memory; unknown layouts are left out."""
    elf = read_elf(cubin)
    sizes = {section.name: section.size for section in elf.sections}
    reserved = _RESERVED_BYTES if ".nv.shared.reserved.0" in sizes else 0
    module = _scan(ptx)
    found: dict[str, tuple[SharedSymbol, ...]] = {}
    for kernel in kernels:
        total = sizes.get(f".nv.shared.{kernel}")
        if total is None:
            found[kernel] = ()
            continue
        layout = _from_symbols(elf, kernel, module) or _by_rule(kernel, module, total=total, base=reserved)
        if layout is not None:
            found[kernel] = layout
    return found


def _scan(ptx: str) -> _Module:
    bodies: dict[str, str] = {}
    outside: list[str] = []
    at = 0
    for match in _FUNCTION.finditer(ptx):
        outside.append(ptx[at : match.start()])
        at = match.end()
        if match[3] == "{":
            end = ptx.find("\n}", at)
            at = len(ptx) if end < 0 else end
            bodies[match[2]] = ptx[match.end() : at]
    outside.append(ptx[at:])
    level = "\n".join(outside)
    return _Module(
        bodies=bodies,
        module_arrays=_arrays(level),
        dynamic={name: int(align or 1) for align, name in _DYNAMIC.findall(level)},
    )


def _arrays(text: str) -> tuple[_Array, ...]:
    found = []
    for align, vector, bits, name, shape in _ARRAY.findall(text):
        element = int(bits) // 8 * int(vector or 1)
        count = math.prod(int(extent) for extent in re.findall(r"\d+", shape))
        found.append(_Array(name, int(align or element), element * count))
    return tuple(found)


def _reached(kernel: str, module: _Module) -> tuple[list[str], set[str]]:
    """Return the functions that a kernel calls, in PTX order, and every word of their bodies and of the kernel's."""
    words: set[str] = set()
    seen: set[str] = set()
    pending = [kernel]
    while pending:
        name = pending.pop()
        seen.add(name)
        body = set(_WORD.findall(module.bodies.get(name, "")))
        words |= body
        pending += [other for other in module.bodies if other in body and other not in seen]
    return [name for name in module.bodies if name in seen and name != kernel], words


def _from_symbols(elf: Elf, kernel: str, module: _Module) -> tuple[SharedSymbol, ...]:
    _, words = _reached(kernel, module)
    names = (f".nv.shared.{kernel}", ".nv_debug.shared")
    sections = {index for index, section in enumerate(elf.sections) if section.name in names}
    rows = [
        SharedSymbol(symbol.name, symbol.value, symbol.size)
        for symbol in elf.symbols
        if symbol.section in sections and symbol.type == _OBJECT and symbol.size and symbol.name in words
    ]
    return tuple(sorted(rows, key=lambda row: row.offset))


def _by_rule(kernel: str, module: _Module, *, total: int, base: int) -> tuple[SharedSymbol, ...] | None:
    callees, words = _reached(kernel, module)
    arrays = [
        *_arrays(module.bodies.get(kernel, "")),
        *(array for array in module.module_arrays if array.name in words),
        *(array for callee in callees for array in _arrays(module.bodies[callee])),
    ]
    rows = []
    end = base
    for array in arrays:
        start = -(-end // array.align) * array.align
        rows.append(SharedSymbol(array.name, start, array.size_bytes))
        end = start + array.size_bytes
    align = max((align for name, align in module.dynamic.items() if name in words), default=1)
    return tuple(rows) if total in (end, -(-end // align) * align) else None
