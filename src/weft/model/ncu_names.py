"""Names of Nsight Compute's metrics: which exist, and the grammar of their suffixes.

A counter has a roll-up over the units of its kind and may have a part (`l1tex__t_sectors.sum.per_second`), a ratio has
only `.ratio`, `.pct` or `.max_rate`, a throughput a roll-up and a percentage. A base name alone means all of them.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

ROLL_UPS = ("avg", "max", "min", "sum")
_SPANS = ("active", "elapsed", "frame", "region")
_PERCENTAGES = tuple(f"pct_of_peak_sustained_{span}" for span in _SPANS)
_PARTS = frozenset(
    [
        "peak_sustained",
        *(f"peak_sustained_{span}{rate}" for span in _SPANS for rate in ("", ".per_second")),
        "per_cycle_active",
        "per_cycle_elapsed",
        "per_cycle_in_frame",
        "per_cycle_in_region",
        "per_second",
        *_PERCENTAGES,
    ]
)
_RATIOS = ("ratio", "pct", "max_rate")
_PREFIX = re.compile(r"(breakdown|pmsampling):")
CAPABILITIES = ("8.0", "8.6", "8.9", "9.0")
"""The compute capabilities in the table."""


@dataclass(frozen=True)
class Kind:
    """A section of the table, and the compute capabilities that have the name."""

    section: str
    capabilities: tuple[str, ...]


@cache
def names() -> Mapping[str, Kind]:
    """Return base name → its kind. `[as they are]` and `[groups]` contain complete names."""
    found: dict[str, Kind] = {}
    section = ""
    for line in files(__package__).joinpath("ncu_names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, *capabilities = line.split()
            found[name] = Kind(section, tuple(capabilities) or CAPABILITIES)
    return MappingProxyType(found)


def problem(name: str, capability: str) -> str | None:
    """Return why ncu would not accept this name on such a GPU, according to the table; None if it would."""
    if name.startswith("regex:"):
        return _regex_problem(name.removeprefix("regex:"))
    whole = _PREFIX.sub("", name, count=1)
    base, _, ending = whole.partition(".")
    kind = names().get(whole) or names().get(base)
    if kind is None:
        return f"unknown metric; {_nearest(whole)}"
    if capability not in kind.capabilities:
        return f"ncu has it on compute capability {', '.join(kind.capabilities)}, not on {capability}"
    return None if whole in names() else _ending_problem(kind.section, ending)


def _ending_problem(section: str, ending: str) -> str | None:
    roll_up, _, part = ending.partition(".")
    if section == "ratios":
        return None if ending in _RATIOS else f"a ratio ends in .{', .'.join(_RATIOS)}, not in .{ending}"
    if section not in ("counters", "throughputs"):
        return f"it takes no suffix, but has .{ending}"
    if roll_up not in ROLL_UPS:
        return f"the first suffix is a roll-up: .{', .'.join(ROLL_UPS)}, not .{roll_up}"
    if section == "throughputs":
        return None if part in _PERCENTAGES else f"a throughput ends in .{roll_up}.{_PERCENTAGES[1]} or similar"
    return (
        None
        if not part or part in _PARTS
        else f"after .{roll_up} no suffix or one like .per_second may follow, not .{part}"
    )


def _regex_problem(expression: str) -> str | None:
    try:
        pattern = re.compile(expression)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None if any(pattern.search(name) for name in names()) else "it matches no known metric"


def _nearest(name: str) -> str:
    """Return the names that are spelled alike or have the same words, with the suffix if they can take it."""
    base, dot, ending = name.partition(".")
    close = difflib.get_close_matches(base, names(), n=3, cutoff=0.8) or _same_words(base)
    shown = [f"{each}.{ending}" if dot and _fits(each, ending) else each for each in close]
    return f"nearest: {', '.join(shown)}" if shown else "no metric has a similar name"


def _same_words(base: str) -> list[str]:
    """Return names of the same unit with most of the words, or parts: `gmio_stall` finds `stalled_mio_throttle`."""
    unit, _, rest = base.partition("__")
    words = [word for word in rest.split("_") if len(word) > 2]

    def found(name: str) -> int:
        parts = [part for part in name.partition("__")[2].split("_") if len(part) > 2]
        return sum(any(word in part or part in word for part in parts) for word in words)

    ranked = sorted(
        (each for each in names() if each.startswith(f"{unit}__")), key=lambda each: (-found(each), len(each), each)
    )
    return [each for each in ranked[:3] if 2 * found(each) > len(words)]


def _fits(name: str, ending: str) -> bool:
    return _ending_problem(names()[name].section, ending) is None
