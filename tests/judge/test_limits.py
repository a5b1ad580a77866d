"""A head dimension that a kernel itself refuses is a limit; every other refusal is a failure."""

from pathlib import Path

import pytest

from weft.core.status import Status
from weft.judge.judge import Policy
from weft.judge.judging import LIMITS, Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.select import Choice, find_candidate, plan
from weft.judge.verdict import Verdict, conclude
from weft.judge.verdict_json import verdict_of, verdict_record
from weft.kernels.ladder import RUNGS

SCALAR = RUNGS["scalar"].path.read_text()
BODY = "    constexpr int PER_LANE"


def judged(
    folder: Path,
    check: str,
    *,
    limits: bool = True,
    masks: tuple[str, ...] = ("none",),
    dtypes: tuple[str, ...] = ("f16",),
) -> list[Verdict]:
    path = folder / "kernel.cu"
    assert BODY in SCALAR
    path.write_text(SCALAR.replace(BODY, f"    {check}\n{BODY}", 1))
    candidate, supports = find_candidate(str(path), task=None)
    shapes = ("small",) if len(dtypes) > 1 else ("small", "odd_d", "d48")
    choice = Choice(shapes, ("unit_normal", "offsets"), masks, dtypes, seeds=(0,))
    policy = Policy(("racecheck",), limits=LIMITS if limits else (), large_sizes=False)
    return [each.verdict for each in Judging(LocalRuns(candidate), supports.task, plan(supports, choice), policy)]


def test_a_static_assertion_about_d_is_a_limit(tmp_path: Path) -> None:
    verdicts = judged(tmp_path, 'static_assert(D % 16 == 0, "vectors of 16");')
    (limit,) = [verdict for verdict in verdicts if not verdict.passed]
    assert limit.limit and limit.aside and limit.status is Status.COMPILE_ERROR
    assert (
        limit.message.startswith("the kernel refuses D = 57 at odd_d (COMPILE_ERROR: ")
        and "vectors of 16" in limit.message
    )
    assert {verdict.workload.shape.name for verdict in verdicts if verdict.passed} == {"small", "d48"}
    found = conclude(verdicts, 4)
    assert found.status is Status.PASSED and found.judged == 4 and "refuses D = 57" in found.message
    assert verdict_of(verdict_record(limit)) == limit


def test_an_assertion_about_d_is_a_limit(tmp_path: Path) -> None:
    verdicts = judged(tmp_path, "assert(D % 16 == 0);")
    (limit,) = [verdict for verdict in verdicts if not verdict.passed]
    assert limit.limit and limit.message.startswith(
        "the kernel refuses D = 57 at odd_d (UNSAFE: X402 assertion failed: "
    )
    assert conclude(verdicts, 4).status is Status.PASSED


@pytest.mark.parametrize("check", ["assert(D != 57 || SKV > 99);", "if (D == 57) o[-9] = 0; assert(D != 57);"])
def test_another_assertion_or_finding_is_a_failure(check: str, tmp_path: Path) -> None:
    """A value that is not the head dimension may be wrong because of a mistake."""
    assert conclude(judged(tmp_path, check), 6).status is Status.UNSAFE


def test_a_type_that_does_not_compile_is_a_limit(tmp_path: Path) -> None:
    check = "static_assert(sizeof(ELEMENT) == 2);"
    (limit,) = [verdict for verdict in judged(tmp_path, check, dtypes=("f16", "f32")) if not verdict.passed]
    assert limit.limit and limit.message.startswith("the kernel refuses f32 at small (COMPILE_ERROR: ")


def test_a_limit_is_a_failure_where_the_caller_chose_it(tmp_path: Path) -> None:
    verdicts = judged(tmp_path, "static_assert(D % 16 == 0);", limits=False)
    assert conclude(verdicts, 6).status is Status.COMPILE_ERROR


@pytest.mark.parametrize("check", ["static_assert(D > 64);", "static_assert(CAUSAL == 0);"])
def test_a_build_that_never_runs_is_broken(tmp_path: Path, check: str) -> None:
    """The first shape does not compile, or one mask never does: neither concerns a head dimension."""
    verdicts = judged(tmp_path, check, masks=("none", "top_left"))
    assert conclude(verdicts, 12).status is Status.COMPILE_ERROR


def test_wrong_numbers_are_not_a_limit(tmp_path: Path) -> None:
    verdicts = judged(tmp_path, "if (D == 57) scale *= 1.01f;")
    assert conclude(verdicts, 6).status is Status.INCORRECT_NUMERICAL
