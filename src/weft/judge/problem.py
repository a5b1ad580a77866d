"""A workload as a kernel sees it: arrays by name and macros; and what must come out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.error_report import ErrorReport, compare
from weft.attention.gates import GateResult, flash_gate, lse_gate, tight_gate
from weft.attention.quantise import SimFp8
from weft.attention.reference import Attended, Causal, attention, attention16
from weft.attention.regimes import make
from weft.core.errors import UsageError
from weft.kernels.ladder import ELEMENTS, MASKS

from .verdict import Workload

TASKS = ("sdpa", "fp8_sdpa")


@dataclass(frozen=True)
class Problem:
    """Inputs for the kernel, and the inputs as numbers for the references."""

    task: str
    workload: Workload
    arrays: Mapping[str, Array]
    """What the kernel is given."""
    q: Array
    k: Array
    v: Array
    """What those arrays mean: dequantised where they are codes."""

    @property
    def causal(self) -> Causal:
        return None if self.workload.mask == "none" else cast(Causal, self.workload.mask)

    def gold(self) -> Attended:
        """Attention in float64 on the kernel's own inputs."""
        return self._gold

    def emulated(self, algorithm: Algorithm) -> Emulated:
        """What the declared algorithm gives."""
        if algorithm not in self._emulated:
            with np.errstate(over="ignore", invalid="ignore"):  # an algorithm that overflows fits no right kernel
                self._emulated[algorithm] = emulate(algorithm, self.q, self.k, self.v, causal=self.causal)
        return self._emulated[algorithm]

    @cached_property
    def _gold(self) -> Attended:
        return attention(self.q, self.k, self.v, causal=self.causal)

    @cached_property
    def _emulated(self) -> dict[Algorithm, Emulated]:
        return {}

    @cached_property
    def ref16(self) -> Attended | None:
        """The 16-bit yardstick of FlashAttention's rule, where there is one and it is finite."""
        dtype = self.workload.dtype
        if self.task != "sdpa" or dtype not in ("f16", "bf16"):
            return None
        q, k, v = (x.astype(numpy_dtype(dtype)) for x in (self.q, self.k, self.v))
        found = attention16(q, k, v, causal=self.causal)
        return found if np.isfinite(found.o.astype(np.float64)).all() else None

    def defines(self) -> dict[str, str]:
        """Macros that select this workload's type and mask."""
        return {"ELEMENT": ELEMENTS[self.workload.dtype], "CAUSAL": str(MASKS.index(self.workload.mask))}


def pose(task: str, workload: Workload) -> Problem:
    """Draw the inputs of a workload."""
    if task == "sdpa":
        q, k, v = make(workload.regime, workload.shape, workload.dtype, workload.seed)
        return Problem(task, workload, {"q": q, "k": k, "v": v}, q, k, v)
    if task == "fp8_sdpa":
        arrays: dict[str, Array] = {}
        meant = []
        quantiser = SimFp8()
        for name, x in zip("qkv", make(workload.regime, workload.shape, workload.dtype, workload.seed), strict=True):
            coded = quantiser.encode(x.astype(np.float32))
            arrays[f"{name}_code"] = coded.codes
            arrays[f"{name}_scale"] = coded.scale.astype(np.float32)
            meant.append(quantiser.decode(coded.codes, coded.scale).astype(np.float32))
        return Problem(task, workload, arrays, *meant)
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


def judge(problem: Problem, algorithms: Sequence[Algorithm], o: Array, lse: Array | None) -> Judgement:
    """All gates that apply: the kernel against its own algorithm, and 16-bit ones by FlashAttention's rule.

    Of several algorithms that a kernel may follow, one must hold in every gate; if none does, the nearest is reported.
    """
    gold = problem.gold()
    ref16 = problem.ref16
    common = [] if ref16 is None else [flash_gate(o, gold.o, ref16.o, problem.workload.dtype)]
    error = compare(o, gold.o)
    tried = [Judgement((*_tight(problem, algorithm, o, lse), *common), error, gold) for algorithm in algorithms]
    return min(tried, key=lambda judged: (not judged.passed, max(gate.ratio for gate in judged.gates)))


def _tight(problem: Problem, algorithm: Algorithm, o: Array, lse: Array | None) -> list[GateResult]:
    emulated = problem.emulated(algorithm)
    gates = [tight_gate(o, emulated.o, problem.v, problem.workload.dtype, allowance=emulated.allowance)]
    if lse is not None:
        gates.append(lse_gate(lse, emulated.lse, allowance=emulated.allowance))
    return gates
