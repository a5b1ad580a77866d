"""Names of the variables in local memory, from the debug information of a -G build."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

_PLACE = re.compile(r"^\.b64 (__local_depot\w+)\n((?:\.b8 [\d,]+\n)+)", re.MULTILINE)
_PLUS_UCONST = 35


@dataclass(frozen=True)
class LocalVariable:
    """A variable and its offset in its function's local memory."""

    name: str
    offset: int


@lru_cache(maxsize=16)
def local_variables(ptx: str) -> Mapping[str, tuple[LocalVariable, ...]]:
    """Return the variables of each depot, in the order of their offsets; none without debug information (-G).

    A variable in local memory has the location `addr <depot>, plus_uconst <offset>` (DWARF 4, 2.5.1), and NVVM writes
    its entry in this order: location, name, file, line. Only this form is read; other entries have no name.
    """
    found: dict[str, list[LocalVariable]] = {}
    for depot, items in _PLACE.findall(ptx):
        data = bytes(int(number) for number in re.findall(r"\d+", items.replace(".b8", "")))
        if data[0] != _PLUS_UCONST:
            continue
        offset, at = _uleb(data, 1)
        name = data[at : data.find(0, at)].decode(errors="replace")
        if name:
            found.setdefault(depot, []).append(LocalVariable(name, offset))
    return {depot: tuple(sorted(variables, key=lambda v: v.offset)) for depot, variables in found.items()}


def variable_at(ptx: str, depot: str, offset: int) -> LocalVariable | None:
    """Return the variable at an offset of a depot; copies of an inlined function share the names of the original."""
    variables = local_variables(ptx).get(depot.partition("#")[0], ())
    return next((variable for variable in reversed(variables) if variable.offset <= offset), None)


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number and the position after it."""
    value, shift = 0, 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at
