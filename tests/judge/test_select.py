"""Which workloads a kernel is judged on."""

from weft.attention.shapes import SHAPES
from weft.judge.select import Choice, find_candidate, hide_seeds, workloads
from weft.kernels.ladder import RUNGS
from weft.tasks.task import Workload

EVERYTHING = Choice(
    shapes=("small",), regimes=("unit_normal", "large_magnitude"), dtypes=("f16", "bf16", "f32"), seeds=(0,)
)


def kinds(rung: str) -> set[tuple[str, str]]:
    _, supports = find_candidate(rung, task=None)
    return {(workload.dtype, workload.regime) for workload in workloads(supports, EVERYTHING)}


def test_a_rung_gets_every_type_and_regime_that_it_declares() -> None:
    everything = {(dtype, regime) for dtype in EVERYTHING.dtypes for regime in EVERYTHING.regimes}
    assert kinds("fp8_scalar") == kinds("scalar") == everything
    assert RUNGS["fp8_wmma"].f16_range
    assert kinds("fp8_wmma") == everything - {("bf16", "large_magnitude"), ("f32", "large_magnitude")}


def test_every_tenth_workload_has_a_hidden_seed() -> None:
    todo = [Workload(SHAPES["small"], "f16", "none", "unit_normal", seed) for seed in range(25)]
    found = hide_seeds(todo, 1 << 30)
    assert [at for at, workload in enumerate(found) if workload.seed == 1 << 30] == [9, 19]
    assert [workload.seed for at, workload in enumerate(found) if at not in (9, 19)] == [
        at for at in range(25) if at not in (9, 19)
    ]
    assert hide_seeds(todo[:9], 1 << 30) == tuple(todo[:9])
