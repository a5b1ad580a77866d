"""The errors of passed workloads that `weft check` prints: one line per shape."""

from collections.abc import Mapping, Sequence

from weft.judge.shape_errors import ShapeErrors, shape_errors
from weft.judge.verdict import Verdict

from .tables import print_table

COLUMNS = ("shape", "largest error", "mean error", "bad elements", "gate", "its error", "its limit", "of workload")


def show_errors(verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Print, for each target and shape, the errors of the workload that came nearest to the limit of a gate."""
    for target, results in verdicts.items():
        if rows := [_row(errors) for errors in shape_errors(results)]:
            print(f"{target}: errors against float64 of the passed workload that is nearest to its limit")
            print_table(COLUMNS, rows)


def _row(errors: ShapeErrors) -> tuple[str, ...]:
    error, gate = errors.error, errors.gate
    limits = (gate.gate, f"{gate.error:.2g}", f"{gate.limit:.2g}") if gate is not None else ("-", "-", "-")
    bad = f"{100 * error.bad_share:.2g} %"
    workload = str(errors.worst).removeprefix(f"{errors.shape} ")
    return (errors.shape, f"{error.max:.2g}", f"{error.mean:.2g}", bad, *limits, workload)
