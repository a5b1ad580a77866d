"""`fp8_sdpa`: attention on 8-bit codes of Q, K and V with a scale per head, linear (sim-FP8) or E4M3."""

from dataclasses import replace
from functools import partial

from weft.attention.contract import CODED
from weft.attention.dtypes import Array
from weft.attention.error_report import compare
from weft.attention.gates import GateResult, quantised_gate
from weft.attention.shapes import SHAPES
from weft.kernels.ladder import ENCODINGS

from .attention_problem import AttentionProblem, judge_attention
from .declared import algorithms_of
from .family import attention_task
from .mutants.quantised import QUANTISED_MUTANTS
from .sdpa import CERTIFIED_ON, QUICK_REGIMES, QUICK_SHAPES, SDPA
from .task import Axes, Declared, Judgement, Outputs, Workload


def judge(problem: AttentionProblem, outputs: Outputs, declared: Declared) -> Judgement:
    """Apply the gates of attention on the dequantised inputs, and check the total error against the original inputs."""
    judged = judge_attention(problem, outputs, declared)
    whole = _whole_error(problem, outputs, declared, problem.noise)
    if judged.passed and not whole.passed:  # all else is right: perhaps only a rare rounding
        whole = _whole_error(problem, outputs, declared, problem.rare_noise)
    parts = {"err_quant": compare(problem.gold.o, problem.exact.o), **judged.parts}
    return replace(judged, gates=(*judged.gates, whole), parts=parts)


def _whole_error(problem: AttentionProblem, outputs: Outputs, declared: Declared, noise: Array) -> GateResult:
    dtype, exact = problem.workload.dtype, problem.exact.o
    gates = [
        quantised_gate(outputs["o"], exact, noise, problem.emulated(each).o, problem.gold.o, dtype)
        for each in algorithms_of(declared, problem.workload.encoding, dtype)
    ]
    return min(gates, key=lambda gate: gate.ratio)


FP8_SDPA = attention_task(
    CODED,
    name="fp8_sdpa",
    what="attention on 8-bit codes with a scale per head, linear (sim_fp8) or e4m3; O in f16, bf16 or f32, and LSE",
    judge=judge,
    workloads=Axes(tuple(SHAPES), encodings=ENCODINGS),
    quick=Axes(QUICK_SHAPES, (*QUICK_REGIMES, "uneven_channels"), encodings=ENCODINGS),
    mutants=(*SDPA.mutants, *QUANTISED_MUTANTS),
    certified_on=tuple(map(partial(replace, encoding="sim_fp8"), CERTIFIED_ON))
    + tuple(map(partial(replace, encoding="e4m3"), CERTIFIED_ON[:3]))
    + (
        Workload(SHAPES["ragged"], "f16", "none", "uneven_channels", 0, "e4m3"),
        Workload(SHAPES["split_512"], "f16", "none", "offsets", 0, "sim_fp8"),
    ),
    any_size=SDPA.any_size,
)
