"""The backward pass of attention as a problem: its inputs come from a forward problem; references and gates."""

import zlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from weft.attention.backward import Backward, BackwardCall, backward16
from weft.attention.bias import bias_gate
from weft.attention.contract import Contract
from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.error_report import compare
from weft.attention.gates import GateResult, element_gate, flash_gate

from .attention_inputs import draw_attention
from .attention_problem import AttentionProblem
from .task import Declared, Judgement, Output, Outputs, Problem, Workload

GRADIENTS = (
    Output("dq", lambda shape: shape.q, any_order=True),
    Output("dk", lambda shape: shape.kv, any_order=True),
    Output("dv", lambda shape: shape.kv, any_order=True),
)
LARGE = 256.0
"""Where V is larger, dO is divided by it."""


@dataclass(frozen=True)
class BackwardProblem(Problem):
    """One backward call. O and LSE are exact results of the forward pass, rounded to their types."""

    forward: AttentionProblem

    @cached_property
    def call(self) -> BackwardCall:
        """The kernel's own inputs."""
        given = {name: self.arrays[name] for name in ("q", "k", "v", "o", "lse", "do")}
        contract = self.forward.contract
        return BackwardCall(**given, mask=self.forward.mask, scale=contract.scale, logits=self.forward.logits)

    @cached_property
    def gold(self) -> Backward:
        """Every stage in float64, from the kernel's own inputs."""
        return self.call.run()

    @cached_property
    def limits(self) -> dict[str, Array]:
        """How far each element of a right kernel may be from `gold`."""
        return self.call.limits(self.gold, self.workload.dtype)

    @cached_property
    def float32_limits(self) -> dict[str, Array]:
        """The same if the kernel rounds nothing to 16 bits: the noise of float32 sums. A query with one visible key has
        dP = delta: exactly 0 in `gold` and in `ref16`, but the difference of two float32 sums in different orders in a
        right kernel."""
        return self.call.limits(self.gold, "f32")

    @cached_property
    def inherited(self) -> dict[str, Array]:
        """The part of it that may have the same sign in all elements."""
        return self.call.inherited(self.gold, self.workload.dtype)

    @cached_property
    def unrounded(self) -> tuple[dict[str, Array], ...]:
        """The gradients that right kernels may have before they round them to their type: a 16-bit kernel may round P
        and dS first. Where all weights are equal, P then rounds to the same side everywhere, and so does dV."""
        dtype, gold = self.workload.dtype, self.gold
        exact = {"dq": gold.dq, "dk": gold.dk, "dv": gold.dv}
        return (exact,) if dtype == "f32" else (exact, self.call.short(gold, dtype))

    @cached_property
    def ref16(self) -> dict[str, Array] | None:
        """The 16-bit reference of FlashAttention's rule, where there is one and it is finite."""
        if self.workload.dtype == "f32":
            return None
        found = backward16(self.call, self.workload.dtype)
        return found if all(np.isfinite(x).all() for x in found.values()) else None

    def defines(self) -> dict[str, str]:
        return self.forward.defines()


def draw_backward(contract: Contract, workload: Workload) -> BackwardProblem:
    """Return a forward problem's q, k, v, O and LSE, and a gradient of O that keeps all gradients in range."""
    forward = draw_attention(contract, workload)
    shape, dtype = workload.shape, numpy_dtype(workload.dtype)
    rng = np.random.default_rng([workload.seed, zlib.crc32(workload.regime.encode()), *shape.q, shape.skv])
    largest = float(np.abs(forward.v.astype(np.float64)).max())
    size = largest if largest > LARGE else 1.0  # dP, and with it the gradients, stay within the type's range
    do = (rng.standard_normal(shape.q) / size).astype(dtype)
    gold = forward.gold
    given = {"o": gold.o.astype(dtype), "lse": gold.lse.astype(np.float32), "do": do}
    return BackwardProblem(workload, {**forward.arrays, **given}, forward)


def backward_reference(problem: BackwardProblem) -> Outputs:
    """Return the gradients in float64."""
    return {output.name: getattr(problem.gold, output.name) for output in GRADIENTS}


def judge_backward(problem: BackwardProblem, outputs: Outputs, declared: Declared) -> Judgement:
    """Check each gradient against its derived limit, for a bias, and 16-bit kernels by FlashAttention's rule."""
    gates: list[GateResult] = []
    dtype, mask, gold = problem.workload.dtype, problem.forward.mask, problem.gold
    keys = {"dq": mask.sum(axis=-1)} | dict.fromkeys(("dk", "dv"), mask.sum(axis=-2) * problem.call.group)
    for name in (output.name for output in GRADIENTS):
        out, expected = outputs[name], getattr(gold, name)
        found = [element_gate("tight", out, expected, problem.limits[name])]
        before, noise = [each[name] for each in problem.unrounded], problem.float32_limits[name]
        bias = bias_gate(out, before, dtype, keys=keys[name], noise=noise, common=problem.inherited[name])
        found += [] if bias is None else [bias]
        if problem.ref16 is not None:
            found.append(flash_gate(out, expected, problem.ref16[name], dtype, problem.float32_limits[name]))
        gates += [replace(gate, gate=f"{gate.gate} {name}") for gate in found]
    return Judgement(tuple(gates), compare(outputs["dq"], gold.dq), gold.dq)
