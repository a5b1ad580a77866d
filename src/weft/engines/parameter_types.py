"""The types of a kernel's parameters in C++, and whether an array of a launch line fits the pointer it is passed as.

A mangled name contains every type, with typedefs, macros and template parameters resolved. The name of an `extern "C"`
kernel contains none; its declaration in the source counts where it names a type of C++ or CUDA. Other types are not
checked: a wrong error is as bad as a missed one.
"""

import functools
import re
from collections.abc import Iterable, Sequence

from weft.core.errors import LaunchError
from weft.core.records import Binary
from weft.toolchain.demangle import parameter_types

from .element_types import CPP_TYPES, ELEMENT_TYPES, is_float
from .expressions import Expression
from .kernel_declarations import columns_of, declarations
from .launch_records import Argument, ArrayLine

_POINTER = re.compile(r"(?P<words>[\w\s]+?)\s*\*\s*(?P<name>\w*)")
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__)\b")
_REDEFINED = r"#\s*define\s+{0}\b|\busing\s+{0}\s*=|\btypedef\b[^;]*\b{0}\s*;|\b(?:typename|class|struct)\s+{0}\b"


def require_types(
    arguments: Sequence[Argument], arrays: Iterable[ArrayLine], binary: Binary, entry: str, source: str
) -> None:
    """Raise LaunchError for an array whose elements the kernel would read as another type.

    `entry` is the name expression, `source` the text of a CUDA file. A workspace has no declared type.
    """
    symbol = binary.entries[entry]
    types = parameter_types(symbol) or declared_types(source, symbol)
    if len(types) != len(arguments):
        return
    declared = {line.name: line for line in arrays if line.role != "workspace"}
    for number, (argument, type_text) in enumerate(zip(arguments, types, strict=True), 1):
        line = declared.get(argument.name) if isinstance(argument, Expression) else None
        if line is not None and not fits(line.element, type_text):
            raise LaunchError(
                f"{line.name} is declared {line.element}; parameter {number} of {entry} is `{type_text}`: "
                f"declare {line.name} as {pointed_at(type_text)}, or change the kernel"
            )


def fits(element: str, type_text: str) -> bool:
    """Whether an array of `element` may be passed as this pointer. Bytes and unsigned integers may hold any bits."""
    meant = pointed_at(type_text)
    if not meant or meant == element:
        return True
    size, meant_size = (ELEMENT_TYPES[name].itemsize for name in (element, meant))
    if is_float(meant):
        return element == "i8" or element[0] == "u" or (element == "i16" and meant_size == 2)
    return is_float(element) or not {"i8", "u8"}.isdisjoint((element, meant)) or size == meant_size


def pointed_at(type_text: str) -> str:
    """Return the element type of a pointer to a number; empty for any other type."""
    match = _POINTER.fullmatch(_QUALIFIERS.sub(" ", type_text).strip())
    return CPP_TYPES.get(" ".join(match["words"].split()), "") if match else ""


@functools.cache
def declared_types(source: str, name: str) -> tuple[str, ...]:
    """Return the parameter types of a kernel as the text declares them, `const half* q` → `const half*`.

    Empty where several declarations differ. A type that the text defines itself is left out.
    """
    found = {columns_of(match) for match in declarations(source) if match["name"] == name and not match["template"]}
    if len(found) != 1:
        return ()
    return tuple(_own_type(column, source) for column in found.pop())


def _own_type(column: str, source: str) -> str:
    match = _POINTER.fullmatch(_QUALIFIERS.sub(" ", column).strip())
    if match is None:
        return "?"
    words = " ".join(match["words"].split())
    if any(re.search(_REDEFINED.format(re.escape(word)), source) for word in words.split()):
        return "?"
    constant = "const" in column.partition("*")[0].split()
    return f"{'const ' if constant else ''}{words}*"
