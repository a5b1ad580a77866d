"""FlashInfer's unmodified prefill kernel for Hopper: TMA, wgmma and setmaxnreg, by its own host code's parameters."""

import pytest

from benchmarks.hopper_attention import CASES, compile_case, run_case


@pytest.mark.sweep  # two minutes of NVRTC
def test_prefill_is_right_and_silent() -> None:
    case = next(case for case in CASES if case.source == "flashinfer_prefill.cu")
    binary = compile_case(case, None)
    for schedule in range(3):
        outcome = run_case(case, binary, schedule)
        assert outcome.gate.passed, str(outcome.gate)
        assert outcome.lse_error < 1e-5
        assert outcome.findings == ()
