"""The gates every attention kernel must pass, checked per head and per block of 64 rows."""

from dataclasses import dataclass

import numpy as np

from .dtypes import Array, epsilon, ulp
from .error_report import BLOCK_ROWS, Block, block_max, block_mean, block_rms, difference
from .errors import ContractError

ORDER_SHARE = 1e-5
"""The share of the column's max|V| by which float32 sums in another order may differ."""


@dataclass(frozen=True)
class GateResult:
    """Whether a gate passed, and the block with the largest ratio of error to limit."""

    gate: str
    passed: bool
    worst: Block
    error: float
    limit: float

    @property
    def ratio(self) -> float:
        """Error over limit in the worst block: at most 1 if the gate passed."""
        return float(_ratio(np.array(self.error), np.array(self.limit)))

    def __str__(self) -> str:
        relation = "is within" if self.passed else "exceeds"
        return f"{self.gate}: error {self.error:.3g} {relation} limit {self.limit:.3g} · {self.worst}"


def tight_gate(out: Array, emulated: Array, v: Array, dtype: str, *, allowance: Array | None = None) -> GateResult:
    """Gate 1: compare the kernel with its own algorithm, within 1 ulp of the output type + 1e-5·max|V| of the column.

    `allowance` (b, hq, sq), from `Emulated`, adds a share of max|V| per row for what the algorithm leaves open.
    """
    _check(out, emulated)
    if v.ndim != 4 or out.shape[1] % v.shape[1] or out.shape[0] != v.shape[0]:
        raise ContractError(f"v {v.shape} does not belong to an output {out.shape}")
    v_max = np.abs(v.astype(np.float64)).max(axis=2)
    share = ORDER_SHARE + (np.zeros(out.shape[:3]) if allowance is None else allowance)
    slack = share[..., None] * np.repeat(v_max, out.shape[1] // v.shape[1], axis=1)[:, :, None, :]
    return _elementwise("tight", out, emulated, ulp(emulated, dtype) + slack)


def lse_gate(lse: Array, emulated: Array, *, allowance: Array | None = None) -> GateResult:
    """Gate 1 for the LSE (b, hq, sq): within 1e-5·(1 + |LSE|) plus the allowance; -inf only equals -inf."""
    _check(lse[..., None], emulated[..., None])
    wide = emulated.astype(np.float64)
    limit = ORDER_SHARE * (1 + np.abs(np.where(np.isfinite(wide), wide, 0.0)))
    limit = limit + (0.0 if allowance is None else allowance)
    return _elementwise("lse", lse[..., None], emulated[..., None], limit[..., None])


def flash_gate(out: Array, gold: Array, ref16: Array, dtype: str, float32: Array | None = None) -> GateResult:
    """Gate 2, FlashAttention's rule for 16-bit kernels.

    max|out - gold| ≤ 2·max|ref16 - gold| + 2·max|gold·eps|, and the same for means with 1.5. Where terms cancel, both
    can be 0: the limit is at least `float32`, the error that a kernel may have with float32 throughout.
    """
    _check(out, gold)
    _check(ref16, gold)
    if dtype not in ("f16", "bf16"):
        raise ContractError(f"FlashAttention's rule is for f16 and bf16, not {dtype!r}")
    error, yardstick = np.abs(difference(out, gold)), np.abs(difference(ref16, gold))
    if not np.isfinite(yardstick).all():
        raise ContractError("the 16-bit reference is not finite: the gate would pass any output")
    rounding = np.abs(gold.astype(np.float64)) * epsilon(dtype)
    least = np.zeros_like(rounding) if float32 is None else float32
    largest = np.maximum(2 * (block_max(yardstick) + block_max(rounding)), block_max(least))
    average = np.maximum(1.5 * (block_mean(yardstick) + block_mean(rounding)), block_mean(least))
    peak, mean = _worst("flash max", block_max(error), largest), _worst("flash mean", block_mean(error), average)
    return max(peak, mean, key=lambda result: (not result.passed, result.ratio))


NOISE_FACTOR = 3.0
"""How much larger than expected an error may be: a block may be one row, whose error depends on a few inputs."""


def quantised_gate(out: Array, exact: Array, noise: Array, emulated: Array, gold: Array, dtype: str) -> GateResult:
    """Gate 3: the total error of a quantised kernel against attention on the original inputs.

    Per block, its RMS is at most 3 × the expected error of rounding the inputs (`noise`, from `noise_size`) and of the
    declared algorithm (`emulated` against `gold`, attention on the dequantised inputs), plus an ulp of the output.
    """
    _check(out, exact)
    rounding = block_rms(ulp(exact, dtype))
    algorithm = block_rms(difference(emulated, gold))
    limit = NOISE_FACTOR * np.sqrt(noise**2 + algorithm**2 + rounding**2)
    return _worst("quantised", block_rms(difference(out, exact)), limit)


def size_gate(name: str, out: Array, exact: Array, size: Array, dtype: str) -> GateResult:
    """Gate 3 where the expected `size` (b, h, blocks) of the total error is known: per block, its RMS is at most 3 ×
    that plus an ulp of the output."""
    _check(out, exact)
    limit = NOISE_FACTOR * np.sqrt(size**2 + block_rms(ulp(exact, dtype)) ** 2)
    return _worst(name, block_rms(difference(out, exact)), limit)


def element_gate(name: str, out: Array, expected: Array, limit: Array) -> GateResult:
    """Compare each element with its own limit, for tasks that define their own gate."""
    _check(out, expected)
    return _elementwise(name, out, expected, np.broadcast_to(limit, out.shape))


def _check(actual: Array, expected: Array) -> None:
    if actual.shape != expected.shape or actual.ndim != 4 or not actual.size:
        raise ContractError(f"cannot judge an output of shape {actual.shape}: expected {expected.shape}")


def _elementwise(gate: str, actual: Array, expected: Array, limit: Array) -> GateResult:
    """Compare each element with its own limit; the reported error and limit are those of the worst element."""
    error = np.abs(difference(actual, expected))
    ratio = _ratio(error, limit)
    batch, head, row, column = (int(i) for i in np.unravel_index(int(ratio.argmax()), ratio.shape))
    place = (batch, head, row, column)
    worst = Block(batch, head, row - row % BLOCK_ROWS)
    return GateResult(gate, bool((error <= limit).all()), worst, float(error[place]), float(limit[place]))


def _worst(gate: str, error: Array, limit: Array) -> GateResult:
    """Compare each block with its own limit."""
    batch, head, block = (int(i) for i in np.unravel_index(int(_ratio(error, limit).argmax()), error.shape))
    place = (batch, head, block)
    worst = Block(batch, head, block * BLOCK_ROWS)
    return GateResult(gate, bool((error <= limit).all()), worst, float(error[place]), float(limit[place]))


def _ratio(error: Array, limit: Array) -> Array:
    """Return error / limit; 0 where there is no error, infinite where the limit is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, np.where(np.isfinite(error), error / limit, np.inf))
