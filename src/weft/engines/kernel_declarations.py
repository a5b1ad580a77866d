"""The `__global__` functions of a source text, as they are declared: names and parameters."""

import re
from collections.abc import Iterator

_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{}]*?>\s*)?(?:extern\s+\"C\"\s+)?(?:static\s+)?__global__\s+"
    r"(?:void\s+)?(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\))?[^()]*\)\s*)?(?:void\s+)?"
    r"(?P<name>\w+)\s*\((?P<params>[^(){}]*)\)"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def declarations(source: str) -> Iterator[re.Match[str]]:
    """Yield a match for every kernel of the text; its groups are `template`, `name` and `params`."""
    return _KERNEL.finditer(_COMMENT.sub(" ", source))


def columns_of(declared: re.Match[str]) -> tuple[str, ...]:
    """Return the parameters, one text each."""
    return tuple(part.strip() for part in declared["params"].split(",") if part.strip())
