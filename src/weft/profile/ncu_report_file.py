"""Reads a report of ncu: CSV, or `.ncu-rep` through the Python module of Nsight Compute."""

import importlib
from pathlib import Path
from typing import Any

from weft.core.errors import ToolMissing, UsageError

from .ncu_csv import EXPORT, RENAMED, capability_of, extent_of, read_csv
from .ncu_numbers import base_unit
from .ncu_records import Measured, NcuLaunch

SINGLE = 1e-6
"""Relative precision: fractions may come from single precision."""


def read_report(path: Path) -> tuple[NcuLaunch, ...]:
    """Read a CSV of ncu, or a report file; raises UsageError or ToolMissing with what to do."""
    if not path.is_file():
        raise UsageError(f"there is no report {path}")
    if path.suffix == ".ncu-rep":
        return _read_report_file(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not text; rename a report of ncu to .ncu-rep, or export its CSV with: {EXPORT}"
        ) from error
    return read_csv(text, str(path))


def _read_report_file(path: Path) -> tuple[NcuLaunch, ...]:
    try:
        module = importlib.import_module("ncu_report")
    except ImportError as error:
        raise ToolMissing(
            f"{path} needs NVIDIA's module ncu_report: put the folder extras/python of Nsight Compute on PYTHONPATH; "
            f"or export it where ncu is: {EXPORT.replace('report.ncu-rep', path.name)}"
        ) from error
    try:
        context = module.load_report(str(path))
    except Exception as error:  # the type of exception depends on the module's version
        raise UsageError(f"ncu_report cannot read {path}: {error}") from error
    launches: list[NcuLaunch] = []
    for at in range(context.num_ranges() if context is not None else 0):
        workload = context.range_by_idx(at)
        for number in range(workload.num_actions()):
            launches.append(_launch(workload.action_by_idx(number), str(len(launches))))
    if not launches:
        raise UsageError(f"{path} contains no kernel")
    return tuple(launches)


def _launch(action: Any, number: str) -> NcuLaunch:
    metrics: dict[str, Measured] = {}
    for name in sorted(action.metric_names()):
        found = _value(action.metric_by_name(name))
        if found is not None:
            metrics[RENAMED.get(name, name)] = found
    return NcuLaunch(
        number=number,
        kernel=str(action.name(action.NameBase_DEMANGLED)),
        grid=extent_of(metrics, "grid"),
        block=extent_of(metrics, "block"),
        capability=capability_of(metrics),
        metrics=metrics,
    )


def _value(metric: Any) -> Measured | None:
    """Return integers exactly, other numbers as floats, None for text."""
    if metric is None:
        return None
    value = metric.value() if hasattr(metric, "value") else metric.as_double()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    factor, unit = base_unit(str(metric.unit() or "") if hasattr(metric, "unit") else "")
    exact = float(value).is_integer()
    return Measured(value * factor, 0.0 if exact else abs(value) * factor * SINGLE, unit)
