"""Weft's launches and those of a report, put together by name and order."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .kernel_profile import LaunchProfile
from .ncu_records import NcuLaunch

_CAST = re.compile(r"\((?:unsigned |signed )?(?:int|bool|long|short|char|long long)\)")
_NUMBER = re.compile(r"(-?\d+)[uUlL]*")


@dataclass(frozen=True)
class Name:
    """A kernel's function, and its template arguments where they are spelled."""

    function: str
    arguments: tuple[str, ...]

    def may_be(self, other: "Name") -> bool:
        """Types are spelled in many ways; numbers must be the same."""
        numbers = [
            (one, two)
            for one, two in zip(self.arguments, other.arguments, strict=False)
            if _NUMBER.fullmatch(one) and _NUMBER.fullmatch(two)
        ]
        return self.function == other.function and all(one == two for one, two in numbers)


@dataclass(frozen=True)
class Pairing:
    """Which is which; what has no partner."""

    pairs: tuple[tuple[LaunchProfile, NcuLaunch], ...]
    alone: tuple[LaunchProfile, ...]
    """Weft ran them, the report does not have them."""
    left: tuple[NcuLaunch, ...]
    """Only in the report: other kernels, or the same ones launched again."""


def pair(
    launches: Sequence[LaunchProfile], measured: Sequence[NcuLaunch], fits: Callable[[LaunchProfile, NcuLaunch], bool]
) -> Pairing:
    """A launch belongs to the first of its name that is left and fits it; where none fits, to the first of its name."""
    free = list(measured)
    pairs, alone = [], []
    for launch in launches:
        name = kernel_name(launch.entry)
        named = [each for each in free if name.may_be(kernel_name(each.kernel))]
        if not named:
            alone.append(launch)
        else:
            found = next((each for each in named if fits(launch, each)), named[0])
            free.remove(found)
            pairs.append((launch, found))
    return Pairing(tuple(pairs), tuple(alone), tuple(free))


def kernel_name(text: str) -> Name:
    """`void ns::attn<(int)64, (bool)1>(const __half *, …)` is `attn` with 64 and 1."""
    plain = text.replace("(anonymous namespace)::", "")
    depth = 0
    end, start = len(plain), 0
    for at, sign in enumerate(plain):
        depth += (sign == "<") - (sign == ">")
        if depth == 0 and sign == "(":
            end = at
            break
        if depth == 0 and (sign.isspace() or plain.startswith("::", at)):
            start = at + (1 if sign.isspace() else 2)
    function, _, arguments = plain[start:end].strip().partition("<")
    return Name(function.strip(), tuple(map(_argument, _split(arguments.rpartition(">")[0]))))


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part.strip()]


def _argument(text: str) -> str:
    plain = _CAST.sub("", text).replace(" ", "")
    plain = {"true": "1", "false": "0"}.get(plain, plain)
    number = _NUMBER.fullmatch(plain)
    return number[1] if number else plain
