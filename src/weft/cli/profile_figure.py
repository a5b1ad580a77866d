"""`weft profile --png`: cycles of the costliest lines, and the bounds by unit."""

from pathlib import Path
from typing import Any

from weft.core.errors import UsageError
from weft.diagnose.figure import require_matplotlib
from weft.profile.kernel_profile import KernelProfile

from .profile_output import place

LINES = 12


def draw(profile: KernelProfile, path: Path) -> None:
    """One row for each launch: lines on the left, bounds and the estimate's range on the right."""
    pyplot = require_matplotlib()
    rows = len(profile.launches)
    figure, axes = pyplot.subplots(rows, 2, figsize=(13, 4.5 * rows), squeeze=False)
    for (left, right), launch in zip(axes, profile.launches, strict=True):
        shown = launch.lines[:LINES]
        names = [f"{place(line.place)} ({line.unit})" for line in shown]
        _bars(left, names, [line.cycles for line in shown], f"{launch.entry}: cycles by line")
        terms = sorted(launch.bounds.terms.items(), key=lambda term: -term[1])
        _bars(right, [name for name, _ in terms], [cycles for _, cycles in terms], "cycles at least, by unit")
        right.axvspan(launch.warm.low, launch.warm.high, alpha=0.2, color="tab:orange", label="EST_warm")
        right.legend(loc="lower right")
    figure.suptitle(f"{profile.target} on {profile.chip.title}: modelled, not measured")
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {error}") from error
    finally:
        pyplot.close(figure)


def _bars(axis: Any, names: list[str], cycles: list[float], title: str) -> None:
    """The longest on top."""
    axis.barh(range(len(names)), cycles)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("cycles")
    axis.set_title(title, fontsize=10)
