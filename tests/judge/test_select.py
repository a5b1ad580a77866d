"""Which workloads a kernel is judged on."""

from weft.judge.select import Choice, find_candidate, workloads
from weft.kernels.ladder import RUNGS

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
