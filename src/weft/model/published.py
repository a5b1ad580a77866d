"""Published measurements that the model is compared with: numbers only, with their sources."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from weft.core.chips import Citation
from weft.core.errors import UsageError

_PER_SECOND = {"gflops": 1e9, "tflops": 1e12}


@dataclass(frozen=True)
class Series:
    """Kernels of one problem on one GPU."""

    name: str
    source: Citation
    chip: str
    clock_ghz: float | None
    """None: not published, so only the chip's maximum clock limits it."""
    flop: int
    """Floating-point operations of one launch."""
    microseconds: Mapping[str, float]
    """Measured time by kernel."""


@cache
def published() -> Mapping[str, Series]:
    """Return every series of published.json by name."""
    rows = json.loads(files(__package__).joinpath("published.json").read_text(encoding="utf-8"))["series"]
    found = {}
    for name, row in rows.items():
        times = {kernel: _microseconds(row["unit"], value, row["flop"]) for kernel, value in row["points"].items()}
        source = Citation(row["title"], row["url"])
        found[name] = Series(name, source, row["chip"], row["clock_ghz"], row["flop"], MappingProxyType(times))
    return MappingProxyType(found)


def _microseconds(unit: str, value: float, flop: int) -> float:
    if unit == "microseconds":
        return value
    if unit not in _PER_SECOND:
        raise UsageError(f"published.json: unknown unit {unit!r}")
    return flop / (value * _PER_SECOND[unit]) * 1e6
