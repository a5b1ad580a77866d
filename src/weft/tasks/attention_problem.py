"""Attention as a problem: q, k and v as numbers and as the kernel's inputs, its references and its gates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from weft.attention.bias import bias_gate
from weft.attention.contract import CODED, DENSE, Contract
from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.error_report import ErrorReport, compare
from weft.attention.errors import ContractError
from weft.attention.gates import GateResult, flash_gate, lse_gate, quantised_gate, tight_gate
from weft.attention.layouts import element_numbers, pack, packed_shape, unpack
from weft.attention.logits import Logits
from weft.attention.quantisation_noise import DRAWS, MANY_DRAWS, noise_size
from weft.attention.quantise import QUANTISERS, Quantiser
from weft.attention.reference import Attended, Causal, attention, attention16
from weft.kernels.ladder import ENCODINGS

from .declared import algorithms_of
from .task import PLAIN, Declared, Judgement, Output, Outputs, Problem


@dataclass(frozen=True)
class AttentionProblem(Problem):
    """One call of attention."""

    q: Array
    k: Array
    v: Array
    """The values of the kernel's arrays: dequantised where they are codes."""
    original: tuple[Array, Array, Array] | None = None
    """q, k and v before they were quantised."""
    scales: tuple[Array, Array, Array] | None = None
    """Their scales (b, h); 0: not quantised."""
    rows: Array | None = None
    """The queries that are judged; None: all. q holds only these."""
    contract: Contract = DENSE
    """Which attention it is."""
    heads: Array | None = None
    """The query heads that are judged; None: all."""

    @property
    def causal(self) -> Causal:
        return None if self.workload.mask == "none" else cast(Causal, self.workload.mask)

    @cached_property
    def mask(self) -> Array:
        """(sq, skv) or (b, 1, sq, skv): which key each query of q may see."""
        whole = self.contract.mask(self.workload.shape, self.causal)
        return whole if self.rows is None else whole[..., self.rows, :]

    @cached_property
    def logits(self) -> Logits:
        """What is done to scaled scores before the softmax."""
        whole = self.contract.logits(self.workload.shape, self.causal, self.arrays)
        return whole if self.rows is None or self.heads is None else whole.cut(self.rows, self.heads)

    @property
    def has_stages(self) -> bool:
        """Whether kernels have the stages that `emulated` computes."""
        return True

    @property
    def is_plain(self) -> bool:
        """Whether scores are logits, and the arrays dense: attention with codes or windows."""
        return replace(self.contract, left=None, right=None) in (DENSE, CODED)

    @property
    def is_dense(self) -> bool:
        """Whether the kernel's arrays are the dense ones."""
        return self.contract.layout == "dense"

    @property
    def quantiser(self) -> Quantiser:
        return QUANTISERS[self.workload.encoding]

    @cached_property
    def gold(self) -> Attended:
        """Attention in float64 on the kernel's own inputs."""
        return self.attend(self.q, self.k, self.v)

    @cached_property
    def exact(self) -> Attended:
        """Attention in float64 on the inputs before quantisation."""
        return self.gold if self.original is None else self.attend(*self.original)

    def attend(self, q: Array, k: Array, v: Array) -> Attended:
        """Return this attention of other numbers, in float64."""
        return attention(q, k, v, mask=self.mask, scale=self.contract.scale, logits=self.logits)

    @cached_property
    def noise(self) -> Array:
        """The expected error of O from quantisation, per head and block of rows."""
        return self._noise(DRAWS)

    @cached_property
    def rare_noise(self) -> Array:
        """The same from many draws, for blocks whose error is mostly small and rarely large."""
        return self._noise(MANY_DRAWS)

    def _noise(self, draws: int) -> Array:
        if self.original is None or self.scales is None:
            raise ContractError("only quantised inputs have quantisation noise")
        return noise_size(self.quantiser, self.original, self.scales, self.exact, attend=self.attend, draws=draws)

    def emulated(self, algorithm: Algorithm) -> Emulated:
        """Return the results of the declared algorithm."""
        if algorithm not in self._emulated:
            with np.errstate(over="ignore", invalid="ignore"):  # no right kernel matches an algorithm that overflows
                self._emulated[algorithm] = emulate(
                    algorithm,
                    self.q,
                    self.k,
                    self.v,
                    mask=self.mask,
                    scale=self.contract.scale,
                    logits=self.logits,
                )
        return self._emulated[algorithm]

    @cached_property
    def _emulated(self) -> dict[Algorithm, Emulated]:
        return {}

    @cached_property
    def ref16(self) -> Attended | None:
        """The 16-bit reference of FlashAttention's rule, where there is one and it is finite."""
        dtype = self.workload.dtype
        if self.workload.encoding != PLAIN or dtype not in ("f16", "bf16"):
            return None
        q, k, v = (x.astype(numpy_dtype(dtype)) for x in (self.q, self.k, self.v))
        found = attention16(q, k, v, mask=self.mask, scale=self.contract.scale, logits=self.logits)
        return found if np.isfinite(found.o.astype(np.float64)).all() else None

    def defines(self) -> dict[str, str]:
        chosen = super().defines() | self.contract.defines()
        if self.workload.encoding != PLAIN:
            chosen["ENCODING"] = str(ENCODINGS.index(self.workload.encoding))
        return chosen

    def part(self, rows: Array, heads: Array) -> "AttentionProblem":
        """Return the problem restricted to some queries of some heads, each with its own copy of its key head."""
        kv_heads = heads // self.workload.shape.group

        def cut(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
            return q[:, heads][:, :, rows], k[:, kv_heads], v[:, kv_heads]

        q, k, v = cut(self.q, self.k, self.v)
        scales = self.scales and (self.scales[0][:, heads], self.scales[1][:, kv_heads], self.scales[2][:, kv_heads])
        original = self.original and cut(*self.original)
        return AttentionProblem(self.workload, self.arrays, q, k, v, original, scales, rows, self.contract, heads)

    def packed(self, outputs: Outputs) -> dict[str, Array]:
        """Return dense outputs in the kernel's layout."""
        return pack(self.contract, self.workload.shape, outputs)

    @cached_property
    def element_numbers(self) -> Mapping[str, Array]:
        """Which element of the dense array each element of the kernel's q, k, v, o and lse is, by their names there."""
        return element_numbers(self.contract, self.workload.shape, self.arrays)

    def unpacked(self, outputs: Outputs) -> dict[str, Array]:
        """Return a kernel's outputs as dense arrays."""
        return unpack(self.contract, self.workload.shape, outputs, self.gold._asdict())


def outputs_of(contract: Contract) -> tuple[Output, Output]:
    """Return O and the optional LSE in the contract's layout."""
    return (
        Output("o", lambda shape: packed_shape(contract, shape, "o")),
        Output("lse", lambda shape: packed_shape(contract, shape, "lse"), dtype="f32", optional=True),
    )


OUTPUTS = outputs_of(DENSE)


def attention_reference(problem: AttentionProblem) -> Outputs:
    """Return O and LSE in float64."""
    return problem.packed(problem.gold._asdict())


def judge_attention(problem: AttentionProblem, outputs: Outputs, declared: Declared) -> Judgement:
    """Apply all gates: the kernel against its own algorithm, and 16-bit kernels by FlashAttention's rule.

    If a kernel may follow several algorithms, one must pass every gate; if none does, the nearest is reported.
    """
    outputs = problem.unpacked(outputs)
    o, lse = outputs["o"], outputs.get("lse")
    gold, ref16, dtype = problem.gold, problem.ref16, problem.workload.dtype
    common = [] if ref16 is None else [flash_gate(o, gold.o, ref16.o, dtype)]
    error, expected = compare(o, gold.o), problem.packed({"o": gold.o})["o"]
    tried = []
    for algorithm in algorithms_of(declared, problem.workload.encoding, dtype):
        gates = (*_against(problem.emulated(algorithm), problem, o, lse), *common)
        tried.append((Judgement(gates, error, expected), algorithm))
    judged, algorithm = min(tried, key=lambda each: (not each[0].passed, max(gate.ratio for gate in each[0].gates)))
    return Judgement(judged.gates, error, expected, _parts(problem, problem.emulated(algorithm), o))


def judge_coded(problem: AttentionProblem, outputs: Outputs, declared: Declared) -> Judgement:
    """Apply the gates of attention on the dequantised inputs, and check the total error against the original inputs."""
    judged, outputs = judge_attention(problem, outputs, declared), problem.unpacked(outputs)
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


def _against(emulated: Emulated, problem: AttentionProblem, o: Array, lse: Array | None) -> list[GateResult]:
    dtype = problem.workload.dtype
    gates = [tight_gate(o, emulated.o, problem.v, dtype, allowance=emulated.allowance)]
    if lse is not None:
        gates.append(lse_gate(lse, emulated.lse, allowance=emulated.allowance))
    bias = bias_gate(o, (problem.gold.o, emulated.unrounded), dtype, keys=problem.mask.sum(axis=-1))
    return gates if bias is None else [*gates, bias]


def _parts(problem: AttentionProblem, emulated: Emulated, o: Array) -> Mapping[str, ErrorReport]:
    """Return the two errors that every kernel has; see `attention/oracle.py` for all of them."""
    return {"err_algorithm": compare(emulated.o, problem.gold.o), "err_kernel": compare(o, emulated.o)}
