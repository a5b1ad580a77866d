"""A first draft of launch lines for a file that has none.

The number and kind of the parameters come from the PTX; their names and element types from the source, where
its declaration agrees.
"""

import re
from collections.abc import Mapping

from weft.core.records import Binary

from .element_types import CPP_TYPES
from .pass_arguments import Parameter, parameters

_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{}]*?>\s*)?(?:extern\s+\"C\"\s+)?(?:static\s+)?__global__\s+"
    r"(?:void\s+)?(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\))?[^()]*\)\s*)?(?:void\s+)?"
    r"(?P<name>\w+)\s*\((?P<params>[^(){}]*)\)"
)
_COUNTS = ("i32", "u32", "i64", "u64")
"""A parameter of these types is most likely a size."""


def propose_lines(source: str, binary: Binary) -> str:
    """Lines to put at the head of the file, to be completed by hand."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    declared = {match["name"]: match for match in _KERNEL.finditer(text)}
    sizes: dict[str, None] = {}
    arrays: dict[str, str] = {}
    scalars: dict[str, str] = {}
    launches = []
    for name, compiled in _kernels(binary, declared).items():
        match = declared.get(name)
        columns = [part.strip() for part in match["params"].split(",") if part.strip()] if match else []
        if compiled is not None and len(columns) != len(compiled):
            columns = [_c_type(param, number) for number, param in enumerate(compiled)]
        declarations = [_declaration(column) for column in columns]
        passed = [argument for _, argument in declarations]
        numbers = [a for type_text, a in declarations if "*" not in type_text and _element(type_text) in _COUNTS]
        length = numbers[0] if numbers else "N"
        sizes |= dict.fromkeys(numbers or ["N"])
        for type_text, argument in declarations:
            if "*" in type_text:
                role = "in" if "const" in type_text.split("*")[0] else "out"
                start = " = normal" if role == "in" else ""
                arrays.setdefault(argument, f"{role:<9} {argument} : {_element(type_text)}[{length}]{start}")
            elif argument not in numbers:
                scalars.setdefault(argument, f"scalar    {argument} : {_element(type_text)} = 1")
        arguments = "<...>" if match and match["template"] else ""
        call = f"{name}{arguments}({', '.join(passed)})"
        launches.append(f"launch    {call} grid(cdiv({length}, 128)) block(128)")
    first = "sizes     " + " ".join(f"{name}=1024" for name in sizes or ["N"])
    return "\n".join(f"// weft: {row}" for row in (first, *arrays.values(), *scalars.values(), *launches))


def _kernels(binary: Binary, declared: Mapping[str, re.Match[str]]) -> dict[str, tuple[Parameter, ...] | None]:
    """Kernel → its parameters in the PTX; None for a template, of which the PTX holds no instance."""
    compiled = {name: parameters(binary.ptx, mangled) for name, mangled in binary.entries.items()}
    return {**dict.fromkeys((name for name in declared if name not in compiled), None), **compiled}


def _declaration(column: str) -> tuple[str, str]:
    """`const float* __restrict__ q` → its type and its name."""
    plain = re.sub(r"__restrict__|__grid_constant__|=.*", "", column).strip()
    match = re.fullmatch(r"(.*?[\s*&])(\w+)", plain, re.DOTALL)
    return (match[1], match[2]) if match else (plain, "value")


def _element(type_text: str) -> str:
    words = (word for word in re.split(r"[\s*&]+", type_text) if word not in ("const", "volatile", ""))
    return CPP_TYPES.get(" ".join(words), "f32")


def _c_type(param: Parameter, number: int) -> str:
    if param.type == "u64":
        return f"float* p{number}"
    return f"{'float' if param.type.startswith('f') else 'int'} p{number}"
