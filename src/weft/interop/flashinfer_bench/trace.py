"""A verdict as the evaluation of a Trace."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import weft

from .records import Trace, Workload, plain_number

STATUS: Mapping[str, str] = {
    "PASSED": "PASSED",
    "COMPILE_ERROR": "COMPILE_ERROR",
    "RESOURCE_ERROR": "RUNTIME_ERROR",
    "LAUNCH_ERROR": "RUNTIME_ERROR",
    "UNSAFE": "RUNTIME_ERROR",
    "INCORRECT_SHAPE": "INCORRECT_SHAPE",
    "INCORRECT_DTYPE": "INCORRECT_DTYPE",
    "INCORRECT_NUMERICAL": "INCORRECT_NUMERICAL",
    "NONDETERMINISTIC": "INCORRECT_NUMERICAL",
    "TIMEOUT": "TIMEOUT",
    "CRASHED": "RUNTIME_ERROR",
    "OUT_OF_MEMORY": "RUNTIME_ERROR",
}
"""Weft's status → flashinfer-bench's. A status without a decision has none: such a workload was not evaluated."""

NOT_TIMED = "not timed: Weft measures no time, so `performance` is all zeros"


def trace(
    definition: str,
    workload: Workload,
    solution: str,
    *,
    status: str,
    message: str = "",
    errors: tuple[float, float] | None = None,
    arch: str = "sm_89",
    timestamp: str,
) -> Trace:
    """Return the Trace. `errors` are the largest absolute and relative errors, where numbers were compared."""
    known = STATUS[status]
    evaluation: dict[str, Any] = {
        "status": known,
        "environment": {"hardware": f"Weft virtual GPU ({arch})", "libs": _libraries()},
        "timestamp": timestamp,
        "log": " · ".join(
            each for each in (_said(status, known, message), NOT_TIMED if known == "PASSED" else "") if each
        ),
    }
    if known in ("PASSED", "INCORRECT_NUMERICAL"):
        absolute, relative = errors if errors is not None else (float("nan"), float("nan"))
        evaluation["correctness"] = {
            "max_relative_error": plain_number(relative),
            "max_absolute_error": plain_number(absolute),
        }
    if known == "PASSED":
        evaluation["performance"] = {"latency_ms": 0.0, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
    return Trace(definition, workload, solution, evaluation)


def _said(status: str, known: str, message: str) -> str:
    name = "" if status == known else f"{status}: "
    return f"{name}{message}"


def _libraries() -> dict[str, str]:
    found = {"weft": weft.__version__}
    for name in ("numpy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
