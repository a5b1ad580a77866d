"""The smallest failing workload, with judges that fail for a known reason."""

import time
from collections.abc import Callable

from weft.attention.error_report import Block
from weft.attention.gates import GateResult
from weft.attention.shapes import SHAPES, Shape
from weft.core.records import Finding
from weft.core.status import Status
from weft.diagnose.shrink import Judge, same_failure, shrink
from weft.judge.verdict import Verdict
from weft.tasks.task import Workload


def work(shape: Shape, *, mask: str = "none", regime: str = "unit_normal") -> Workload:
    return Workload(shape, "f16", mask, regime, 0)


def judge(fails: Callable[[Workload], bool], status: Status = Status.INCORRECT_NUMERICAL) -> Judge:
    def decide(workload: Workload) -> Verdict:
        return Verdict(workload, status if fails(workload) else Status.PASSED)

    return decide


def smallest(first: Workload, fails: Callable[[Workload], bool], *, blocks: tuple[int, ...] = ()) -> Workload:
    decide = judge(fails)
    found = shrink(decide(first), decide, blocks=blocks, masks=("none", "top_left", "bottom_right"))
    assert fails(found.workload), "what is handed back fails"
    return found.workload


def test_second_tile_of_a_ragged_length() -> None:
    found = smallest(work(SHAPES["ragged"]), lambda each: each.shape.skv > 32, blocks=(16, 32))
    assert found.shape == Shape("shrunk", 1, 1, 1, 5, 33, 32)


def test_full_tiles_stay_full() -> None:
    found = smallest(work(SHAPES["split_256"]), lambda each: each.shape.skv > 32, blocks=(16, 32))
    assert found.shape.skv == 64 and found.shape.sq % 16 == 0


def test_full_tiles_are_given_up_where_others_passed() -> None:
    decide = judge(lambda each: each.shape.skv > 32)
    first = decide(work(SHAPES["split_256"]))
    assert shrink(first, decide, blocks=(64,)).workload.shape.skv == 64
    assert shrink(first, decide, blocks=(64,), partial_tiles=True).workload.shape.skv == 48


def test_what_is_needed_is_kept() -> None:
    first = work(SHAPES["gqa_4_ragged"], mask="top_left", regime="sorted_keys")
    found = smallest(first, lambda each: each.shape.hq > 1 and each.mask == "top_left" and each.shape.d == 64)
    assert (found.shape.hq, found.shape.hkv, found.mask, found.shape.d) == (4, 1, "top_left", 64)
    assert found.regime == "unit_normal" and found.shape.b == 1


def test_two_heads_where_one_is_right() -> None:
    found = smallest(work(SHAPES["mission"]), lambda each: each.shape.hq > 1)
    assert (found.shape.hq, found.shape.hkv) == (2, 2)


def test_nothing_smaller_fails() -> None:
    first = work(SHAPES["small"])
    assert smallest(first, lambda each: each == first) == first


def test_another_failure_does_not_count() -> None:
    """A kernel that refuses the smaller shape has not failed as the larger one did."""
    first = work(SHAPES["split_128"])

    def decide(workload: Workload) -> Verdict:
        return Verdict(workload, Status.INCORRECT_NUMERICAL if workload.shape.skv >= 96 else Status.LAUNCH_ERROR)

    assert shrink(decide(first), decide).workload.shape.skv == 96


def test_same_failure() -> None:
    workload = work(SHAPES["small"])
    block = Block(0, 0, 0)
    wrong_o, wrong_lse = (
        Verdict(workload, Status.INCORRECT_NUMERICAL, gates=(GateResult(gate, False, block, 1.0, 0.1),))
        for gate in ("tight", "lse")
    )
    assert same_failure(wrong_o, wrong_o) and not same_failure(wrong_o, wrong_lse)
    races = [Verdict(workload, Status.UNSAFE, findings=(Finding(code, ""),)) for code in ("R101", "R101", "M101")]
    assert same_failure(races[0], races[1]) and not same_failure(races[0], races[2])
    assert not same_failure(races[0], Verdict(workload, Status.INCORRECT_NUMERICAL))


def test_time_is_bounded() -> None:
    def slow(workload: Workload) -> Verdict:
        time.sleep(0.05)
        return Verdict(workload, Status.PASSED)

    start = time.monotonic()
    first = Verdict(work(SHAPES["validation_2048"]), Status.INCORRECT_NUMERICAL)
    assert shrink(first, slow, seconds=0.1) == first
    assert time.monotonic() - start < 2


def test_the_kernel_supports_the_smaller_workload() -> None:
    first = work(SHAPES["d128"])
    decide = judge(lambda each: True)
    assert shrink(decide(first), decide, takes=lambda work: work.shape.d != 32).workload.shape.d == 64
