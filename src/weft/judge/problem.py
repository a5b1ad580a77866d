"""A workload as a kernel sees it: arrays by name and macros; and what must come out of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.error_report import ErrorReport, compare
from weft.attention.gates import GateResult, flash_gate, lse_gate, tight_gate
from weft.attention.quantise import SimFp8
from weft.attention.reference import Attended, Causal, attention, attention16
from weft.attention.regimes import make
from weft.core.errors import UsageError

from .verdict import Workload

TASKS = ("sdpa", "fp8_sdpa")
MASKS: Mapping[str, Causal] = {"none": None, "top_left": "top_left", "bottom_right": "bottom_right"}
"""Names of masks; their order is the macro CAUSAL of a kernel file."""
ELEMENTS = {"f32": "float", "f16": "half", "bf16": "__nv_bfloat16"}
"""Types of O → the macro ELEMENT of a kernel file."""


@dataclass(frozen=True)
class Problem:
    """Inputs for the kernel, and the inputs as numbers for the references."""

    workload: Workload
    arrays: Mapping[str, Array]
    """What the kernel is given."""
    q: Array
    k: Array
    v: Array
    """What those arrays mean: dequantised where they are codes."""

    @property
    def causal(self) -> Causal:
        return MASKS[self.workload.mask]

    def gold(self) -> Attended:
        """Attention in float64 on the kernel's own inputs."""
        return attention(self.q, self.k, self.v, causal=self.causal)

    def emulated(self, algorithm: Algorithm) -> Emulated:
        """What the declared algorithm gives."""
        return emulate(algorithm, self.q, self.k, self.v, causal=self.causal)

    def defines(self) -> dict[str, str]:
        """Macros that select this workload's type and mask."""
        return {"ELEMENT": ELEMENTS[self.workload.dtype], "CAUSAL": str(list(MASKS).index(self.workload.mask))}


def pose(task: str, workload: Workload) -> Problem:
    """Draw the inputs of a workload."""
    if task == "sdpa":
        q, k, v = make(workload.regime, workload.shape, workload.dtype, workload.seed)
        return Problem(workload, {"q": q, "k": k, "v": v}, q, k, v)
    if task == "fp8_sdpa":
        arrays: dict[str, Array] = {}
        meant = []
        quantiser = SimFp8()
        for name, x in zip("qkv", make(workload.regime, workload.shape, workload.dtype, workload.seed), strict=True):
            coded = quantiser.encode(x.astype(np.float32))
            arrays[f"{name}_code"] = coded.codes
            arrays[f"{name}_scale"] = coded.scale.astype(np.float32)
            meant.append(quantiser.decode(coded.codes, coded.scale).astype(np.float32))
        return Problem(workload, arrays, *meant)
    raise UsageError(f"task {task!r}: use one of {', '.join(TASKS)}")


@dataclass(frozen=True)
class Judgement:
    """An output held against its problem."""

    gates: tuple[GateResult, ...]
    error: ErrorReport
    gold: Attended

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)


def judge(problem: Problem, algorithm: Algorithm, o: Array, lse: Array | None) -> Judgement:
    """All gates that apply: the kernel against its own algorithm, and 16-bit ones by FlashAttention's rule."""
    dtype = problem.workload.dtype
    emulated = problem.emulated(algorithm)
    gold = problem.gold()
    gates = [tight_gate(o, emulated.o, problem.v, dtype, allowance=emulated.allowance)]
    if lse is not None:
        gates.append(lse_gate(lse, emulated.lse, allowance=emulated.allowance))
    if dtype in ("f16", "bf16") and problem.arrays.keys() >= {"q", "k", "v"}:
        inputs = [x.astype(numpy_dtype(dtype)) for x in (problem.q, problem.k, problem.v)]
        ref16 = attention16(inputs[0], inputs[1], inputs[2], causal=problem.causal)
        if np.isfinite(ref16.o.astype(np.float64)).all():
            gates.append(flash_gate(o, gold.o, ref16.o, dtype))
    return Judgement(tuple(gates), compare(o, gold.o), gold)
