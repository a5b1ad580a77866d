"""The CSV that `ncu --csv` prints → launches: `--page raw` (wide, a row per launch) and `--page details` (long)."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.core.errors import UsageError
from weft.core.records import Dim3

from .ncu_numbers import Style, measured, style_of
from .ncu_records import Measured, NcuLaunch

EXPORT = "ncu --import report.ncu-rep --csv --page raw --print-units base > report.csv"
_NAME, _VALUE, _UNIT = "Metric Name", "Metric Value", "Metric Unit"
_OF_THE_LAUNCH = frozenset(
    "ID, Process ID, Process Name, Host Name, Kernel Name, Kernel Time, Context, Stream, Block Size, Grid Size, "
    "Device, CC, Section Name, Invocations".split(", ")
)
"""Columns that are not metrics."""
LABELS = {
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Size": "launch__block_size",
    "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
    "Duration": "gpu__time_duration.sum",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Grid Size": "launch__grid_size",
    "L1 Tag Requests Global": "memory_l1_tag_requests_global",
    "L1 Wavefronts Shared": "memory_l1_wavefronts_shared",
    "L1 Wavefronts Shared Excessive": "derived__memory_l1_wavefronts_shared_excessive",
    "L1 Wavefronts Shared Ideal": "memory_l1_wavefronts_shared_ideal",
    "L2 Theoretical Sectors Global": "memory_l2_theoretical_sectors_global",
    "Registers Per Thread": "launch__registers_per_thread",
    "Shared Memory Configuration Size": "launch__shared_mem_config_size",
    "# SMs": "launch__sm_count",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Threads": "launch__thread_count",
    "Waves Per SM": "launch__waves_per_multiprocessor",
}
"""Names of metrics on the details page, from NVIDIA's section files."""
RENAMED = {
    "memory_l1_sectors_global": "memory_l1_tag_requests_global",
    "memory_l1_sectors_shared": "memory_l1_wavefronts_shared",
    "memory_l2_sectors_global": "memory_l2_theoretical_sectors_global",
}
"""Metric name before 2021.2 → since 2021.2."""
_EXTENT = re.compile(r"\(?\s*(\d+)\s*[,x]\s*(\d+)\s*[,x]\s*(\d+)\s*\)?")


@dataclass
class _Row:
    """A launch while its metrics are gathered."""

    cells: Mapping[str, str]
    metrics: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → the number and its unit, as printed."""


def read_csv(text: str, source: str) -> tuple[NcuLaunch, ...]:
    """Return the launches in order; raises UsageError where this is not a CSV of ncu, or is truncated."""
    rows = list(_rows(text, source))
    if not rows:
        raise UsageError(f"{source} is not a CSV of ncu with a kernel; write one with: {EXPORT}")
    style = style_of(number.strip() for row in rows for number, _ in row.metrics.values())
    return tuple(_launch(row, style) for row in rows)


def _rows(text: str, source: str) -> Iterator[_Row]:
    header: list[str] = []
    units: Mapping[str, str] = {}
    open_row: _Row | None = None
    for number, line in _whole_lines(text):
        cells = next(csv.reader([line]), [])
        if cells[:1] == ["ID"] and "Kernel Name" in cells:
            header, units = cells, {}
        if not header or line.startswith("==") or cells == header or not cells or not _is_row(cells, header):
            continue  # output of the program itself, and messages of ncu between the rows
        if len(cells) != len(header):
            raise UsageError(f"{source}:{number}: {len(cells)} columns, but the header has {len(header)}: truncated?")
        named = dict(zip(header, cells, strict=True))
        if not named["ID"].strip():
            units = named
        elif _NAME in named:
            if open_row is None or not _same_launch(open_row.cells, named):
                if open_row is not None:
                    yield open_row
                open_row = _Row(named)
            if named[_NAME]:
                metric = LABELS.get(named[_NAME], named[_NAME])
                open_row.metrics.setdefault(_renamed(metric), (named[_VALUE], named.get(_UNIT, "")))
        else:
            metrics = {_renamed(name): (named[name], units.get(name, "")) for name in named.keys() - _OF_THE_LAUNCH}
            yield _Row(named, metrics)
    if open_row is not None:
        yield open_row


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; a row whose last cell continues, as a rule's advice may, is one line."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        while line.startswith('"') and line.count('"') % 2:
            more = next(lines, None)
            if more is None:
                break
            line = f"{line} {more[1]}"
        yield number, line


def _is_row(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Whether it is a row: a launch starts with a number; the row of units has an empty first cell, and all columns."""
    first = cells[0].strip()
    return first.isdigit() if first else len(cells) == len(header)


def _same_launch(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(one.get(column) == other.get(column) for column in ("ID", "Process ID", "Kernel Name"))


def _renamed(metric: str) -> str:
    return RENAMED.get(metric, metric)


def _launch(row: _Row, style: Style) -> NcuLaunch:
    metrics: dict[str, Measured] = {}
    for name, (text, unit) in sorted(row.metrics.items()):
        found = measured(text, unit, style)
        if found is not None:
            metrics[name] = found
    cells = row.cells
    return NcuLaunch(
        number=cells["ID"].strip(),
        kernel=cells["Kernel Name"].strip(),
        grid=_extent(cells.get("Grid Size", "")) or extent_of(metrics, "grid"),
        block=_extent(cells.get("Block Size", "")) or extent_of(metrics, "block"),
        capability=cells.get("CC", "").strip() or capability_of(metrics),
        metrics=metrics,
    )


def _extent(text: str) -> Dim3 | None:
    found = _EXTENT.fullmatch(text.strip())
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def extent_of(metrics: Mapping[str, Measured], what: str) -> Dim3 | None:
    """Return the extent from `launch__grid_dim_x`, y and z; from the total size where these are missing."""
    sides = [metrics.get(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    if all(side is not None for side in sides):
        x, y, z = (int(side.value) for side in sides if side is not None)
        return x, y, z
    size = metrics.get(f"launch__{what}_size")
    return (int(size.value), 1, 1) if size is not None else None


def capability_of(metrics: Mapping[str, Measured]) -> str | None:
    """Return the compute capability from the device attributes."""
    parts = [metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")]
    return ".".join(str(int(part.value)) for part in parts if part) if all(parts) else None
