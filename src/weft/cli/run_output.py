"""The output of `weft run`: figures of the outputs, the origin of the inputs, findings, and what was not checked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.core.finding_codes import Severity
from weft.core.finding_json import finding_record, suppressed_record
from weft.core.finding_text import counted, summary
from weft.core.records import Run
from weft.engines.arguments import Array
from weft.engines.element_types import ELEMENT_TYPES
from weft.engines.kernel_file import KernelFile
from weft.engines.launch_records import ArrayLine
from weft.probes.tools import LOOKS_FOR

from .findings_output import text_lines
from .tables import print_table
from .terminal import print_line

FILLED = ("in", "inout", "constant")
"""Roles of arrays that have values before the first launch."""

_NAMES = {dtype: name for name, dtype in ELEMENT_TYPES.items()}
_RANDOM = ("normal", "uniform")


@dataclass(frozen=True)
class ArraySummary:
    """Figures of one array over its elements that are not NaN (None if there are none), and a count of NaN."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("output", "type", "shape", "min", "max", "mean", "NaN")

    name: str
    element: str
    shape: tuple[int, ...]
    least: float | int | None
    most: float | int | None
    mean: float | None
    nan_count: int

    def row(self) -> tuple[str, ...]:
        """Return the row of a table."""
        shape = "×".join(map(str, self.shape))
        figures = (_figure(value) for value in (self.least, self.most, self.mean))
        return (self.name, self.element, shape, *figures, str(self.nan_count))

    def record(self) -> dict[str, object]:
        """Return the JSON record; infinity, which JSON lacks, is written as text."""
        return {
            "name": self.name,
            "type": self.element,
            "shape": self.shape,
            "min": _json(self.least),
            "max": _json(self.most),
            "mean": _json(self.mean),
            "nan_count": self.nan_count,
        }


@dataclass(frozen=True)
class FilledInput:
    """An input and where its values come from."""

    name: str
    origin: str
    """`random (normal, seed 0)`, `zeros`, or the file."""


@dataclass(frozen=True)
class ShownRun:
    """Everything that is printed about a run."""

    kernel: KernelFile
    run: Run
    outputs: tuple[ArraySummary, ...]
    inputs: tuple[FilledInput, ...]
    checkers: tuple[str, ...]
    """The checkers that were on."""
    mode: str

    @property
    def not_checked(self) -> dict[str, str]:
        """Return checkers that were off → what they would find."""
        return {name: what for name, what in LOOKS_FOR.items() if name not in self.checkers}

    @property
    def verdict(self) -> str:
        """Return `clean` only if every checker was on."""
        if not self.run.clean:
            return counted(len(self.run.findings), "finding")
        warnings = sum(finding.level is Severity.WARNING for finding in self.run.findings)
        if not warnings and not self.not_checked:
            return "clean"
        found = "no errors" + (f", {counted(warnings, 'warning')}" if warnings else "")
        if not self.not_checked:
            return found
        tools = "all" if len(self.not_checked) == len(LOOKS_FOR) else ",".join(self.not_checked)
        return f"{found}; {' and '.join(self.not_checked.values())} not checked: --tool {tools}"


def filled_from(line: ArrayLine, sources: Mapping[str, str], seed: int) -> FilledInput:
    """Return where the values of an input come from: `sources` of given arrays, else the line's initialiser."""
    if line.name in sources:
        return FilledInput(line.name, sources[line.name])
    start = line.initialiser
    assert start is not None  # the run refused an input without values
    bounds = f"({', '.join(bound.text for bound in start.bounds)})" if start.bounds else ""
    spelled = f"{start.name}{bounds}"
    return FilledInput(line.name, f"random ({spelled}, seed {seed})" if start.name in _RANDOM else spelled)


def show(shown: ShownRun, limit: int) -> None:
    """Print the run as text; at most `limit` findings."""
    kernel, run = shown.kernel, shown.run
    if run.printed:
        print(run.printed, end="" if run.printed.endswith("\n") else "\n")
    if shown.outputs:
        print_table(ArraySummary.COLUMNS, [array.row() for array in shown.outputs])
    for line in text_lines(run.findings, limit=limit):
        print(line)
    if shown.inputs:
        print(f"inputs {_inputs(shown)}")
    print(f"source {run.source_digest[:16]} · PTX {run.ptx_digest[:16]}")
    if run.defines:
        print("defines " + " ".join(f"{name}={value}" for name, value in run.defines.items()))
    counters = {name: value for name, value in run.counters.items() if name != "inst_executed"}
    if counters:
        print(" · ".join(f"{name} {value}" for name, value in counters.items()))
    launches = f"{len(run.entries)} of {len(kernel.launches)} launches" if len(kernel.launches) > 1 else "1 launch"
    ran = f"{launches}, {run.instructions} warp instructions, {kernel.arch} {shown.mode}"
    print(f"{kernel.path}: {shown.verdict} · {ran}")
    print_line(summary(run.findings, run.suppressed))


def _inputs(shown: ShownRun) -> str:
    """`q, k, v: random (normal, seed 0) · mask: zeros`."""
    names: dict[str, list[str]] = {}
    for filled in shown.inputs:
        names.setdefault(filled.origin, []).append(filled.name)
    return " · ".join(f"{', '.join(alike)}: {origin}" for origin, alike in names.items())


def record(shown: ShownRun) -> dict[str, object]:
    """Return the JSON record of the run."""
    kernel, run = shown.kernel, shown.run
    return {
        "source": kernel.path,
        "clean": run.clean,
        "checkers": shown.checkers,
        "not_checked": list(shown.not_checked),
        "arch": kernel.arch,
        "mode": shown.mode,
        "entries": run.entries,
        "printed": run.printed,
        "inputs": [{"name": filled.name, "from": filled.origin} for filled in shown.inputs],
        "outputs": [array.record() for array in shown.outputs],
        "findings": [finding_record(finding) for finding in run.findings],
        "suppressed": [suppressed_record(item) for item in run.suppressed],
        "instructions": run.instructions,
        "counters": dict(run.counters),
        "source_digest": run.source_digest,
        "ptx_digest": run.ptx_digest,
        "defines": dict(run.defines),
    }


def summarise(name: str, array: Array) -> ArraySummary:
    """Return the figures of one array: in double precision, of integers as integers."""
    element = _NAMES[array.dtype]
    if array.dtype.kind in "iub":
        wide, nan_count = array.reshape(-1), 0
    else:
        floats = array.astype(np.float64).reshape(-1)
        wide = floats[~np.isnan(floats)]
        nan_count = floats.size - wide.size
    if not wide.size:
        return ArraySummary(name, element, array.shape, None, None, None, nan_count)
    least, most = wide.min().item(), wide.max().item()
    with np.errstate(invalid="ignore"):  # +inf and -inf have no mean
        mean = float(wide.mean(dtype=np.float64))
    return ArraySummary(name, element, array.shape, int_or_float(least), int_or_float(most), mean, nan_count)


def int_or_float(value: float | int | bool) -> float | int:
    """Return a number; a bool becomes 0 or 1."""
    return int(value) if isinstance(value, bool) else value


def _figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _json(value: float | int | None) -> float | int | str | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
