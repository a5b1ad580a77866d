"""What is shown for a pass: the workload of each shape that came nearest to the limit of a gate."""

from dataclasses import replace

from weft.attention.error_report import Block, ErrorReport
from weft.attention.gates import GateResult
from weft.attention.shapes import SHAPES, Shape
from weft.core.status import Status
from weft.judge.shape_errors import OWN_SIZES, shape_errors
from weft.judge.verdict import Verdict
from weft.tasks.task import Workload

SMALL = Workload(SHAPES["small"], dtype="f16", mask="none", regime="unit_normal", seed=0)


def verdict(
    workload: Workload, largest: float, *gates: tuple[str, float, float], status: Status = Status.PASSED
) -> Verdict:
    report = ErrorReport(largest, largest / 8, 0.0, 0.0, 1.0, 0.0, 0.0, 0, (0, 0, 0, 0))
    results = tuple(GateResult(name, error <= limit, Block(0, 0, 0), error, limit) for name, error, limit in gates)
    return Verdict(workload, status, gates=results, error=report)


def test_the_nearest_to_a_limit_is_shown_not_the_largest_error() -> None:
    loud = replace(SMALL, regime="large_magnitude")
    (found,) = shape_errors(
        [
            verdict(loud, 8.0, ("tight", 1.0, 10.0), ("lse", 0.0, 0.0)),
            verdict(SMALL, 1e-3, ("lse", 0.0, 1.0), ("tight", 9e-4, 1e-3)),
        ]
    )
    assert (found.shape, found.passed, found.worst) == ("small", 2, SMALL)
    assert found.gate is not None and (found.gate.gate, found.gate.error, found.gate.limit) == ("tight", 9e-4, 1e-3)
    assert found.error.max == 1e-3 and found.error.mean == 1e-3 / 8


def test_what_did_not_pass_or_has_no_numbers_is_not_shown() -> None:
    failed = verdict(SMALL, 1.0, ("tight", 1.0, 0.1), status=Status.INCORRECT_NUMERICAL)
    assert (
        shape_errors([failed, Verdict(SMALL, Status.PASSED), replace(failed, status=Status.PASSED, limit=True)]) == ()
    )


def test_sizes_that_the_kernel_suggests_are_one_row_and_a_task_may_have_no_gate() -> None:
    own = replace(SMALL, shape=Shape("SQ=17", 1, 1, 1, 17, 17, 64))
    first, second = shape_errors([verdict(SMALL, 0.5), verdict(own, 0.25)])
    assert (first.shape, second.shape) == ("small", OWN_SIZES)
    assert first.gate is None and first.to_record()["gate_limit"] is None
