"""What is done to scaled scores before the softmax: a soft cap, an added bias, and a sink that takes weight but has no
value.

    s = cap·tanh(q·k·scale / cap) + bias,    l = Σ exp(s - m) + exp(sink - m)
"""

from dataclasses import dataclass

import numpy as np

from .dtypes import Array
from .errors import ContractError

TANH_APPROX = 2.0**-11
"""The relative error of tanh.approx.f32, which kernels with 16-bit outputs may use."""


@dataclass(frozen=True, eq=False)
class Logits:
    """How scaled scores (b, hq, sq, skv) become logits; the default changes nothing."""

    soft_cap: float | None = None
    bias: Array | None = None
    """Added to the (capped) scores: any shape that broadcasts to (b, hq, sq, skv)."""
    sinks: Array | None = None
    """(hq,): a logit per query head that counts in the sum of each of its rows."""

    def __post_init__(self) -> None:
        if self.soft_cap is not None and not self.soft_cap > 0:
            raise ContractError(f"soft_cap is positive, or None for no cap; not {self.soft_cap!r}")

    @property
    def plain(self) -> bool:
        """Whether scores are logits as they are."""
        return self.soft_cap is None and self.bias is None

    def of(self, scores: Array, keys: slice = slice(None)) -> Array:
        """Return the logits of scaled scores (b, hq, sq, n) of these keys, in the type of the scores."""
        if self.soft_cap is not None:
            cap = scores.dtype.type(self.soft_cap)
            scores = np.tanh(scores / cap) * cap
        if self.bias is not None:
            scores = scores + self.bias[..., keys].astype(scores.dtype)
        return scores

    def head(self, batch: int, head: int) -> "Logits":
        """Return the logits of one head, for scores (sq, skv)."""
        bias, sinks = self.bias, self.sinks
        if bias is not None:
            full = np.broadcast_to(bias, (max(bias.shape[0], batch + 1), max(bias.shape[1], head + 1), *bias.shape[2:]))
            bias = full[batch, head]
        return Logits(self.soft_cap, bias, sinks if sinks is None else sinks[head : head + 1])

    def cut(self, rows: Array, heads: Array) -> "Logits":
        """Return the logits of some queries of some heads."""
        bias, sinks = self.bias, self.sinks
        if bias is not None:
            bias = bias if bias.shape[1] == 1 else bias[:, heads]
            bias = bias if bias.shape[2] == 1 else bias[:, :, rows]
        return Logits(self.soft_cap, bias, sinks if sinks is None else sinks[heads])

    def softmax(self, masked: Array) -> tuple[Array, Array]:
        """Return weights and log-sum-exp of masked logits (…, sq, skv); a sink is one more key without a value."""
        if self.sinks is None:
            return softmax(masked)
        column = np.broadcast_to(self._column(masked.ndim), (*masked.shape[:-1], 1)).astype(masked.dtype)
        weights, lse = softmax(np.concatenate([masked, column], axis=-1))
        return weights[..., :-1], lse

    def spread(self, m: Array, *, short: bool) -> Array:
        """Return how far right kernels may differ in the logits of rows whose largest is m (b, hq, sq).

        tanh and the added bias round relative to the logit, and a logit x weighs at most exp(x - m): max(|m|, 1) bounds
        |x| times its weight.
        """
        tanh = 0.0 if self.soft_cap is None else TANH_APPROX if short else 2.0**-21
        found = np.maximum(np.abs(m), 1.0) * (tanh + 2.0**-22)
        return np.asarray(found if self.bias is None else found + np.abs(self.bias).max(axis=-1) * 2.0**-23)

    def _column(self, ndim: int) -> Array:
        assert self.sinks is not None
        return self.sinks.reshape((-1, 1, 1) if ndim > 2 else (1, 1))


PLAIN_LOGITS = Logits()


def softmax(scores: Array) -> tuple[Array, Array]:
    """Return row-wise weights and log-sum-exp; a row of -inf gives zeros and -inf, without computing -inf - -inf."""
    m = scores.max(axis=-1, keepdims=True)
    empty = np.isneginf(m)
    p = np.exp(scores - np.where(empty, 0, m))
    l = p.sum(axis=-1, keepdims=True)
    some = np.where(empty, 1, l)  # divisor and logarithm of an empty row are never used
    lse = np.where(empty, -np.inf, m + np.log(some))
    return p / some, lse[..., 0]
