"""The backward pass of attention in float64, by formula, with its stages and the error that right kernels may have.

    P = exp(S - LSE),  dV = Pᵀ·dO,  dP = dO·Vᵀ,  delta = Σ_d dO∘O
    dS = P∘(dP - delta),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q

LSE and O are inputs, as the forward pass wrote them: in float32 and in the type of Q.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .dtypes import Array, numpy_dtype, rounded, ulp
from .gates import ORDER_SHARE
from .logits import PLAIN_LOGITS, Logits
from .reference import default_scale, in_type, mask_for, shape_of

STAGES = ("scores", "p", "dp", "delta", "ds", "dq", "dk", "dv")
"""In the order a kernel computes them."""
UNDERFLOW = 2.0**-126
"""What a kernel may flush to zero: the exponential of the hardware has no denormal results."""
DEVIATIONS = 4.5
"""Standard deviations that a sum of roundings may be off by."""


@dataclass(frozen=True)
class Backward:
    """Every stage: (b, hq, sq, skv), delta (b, hq, sq), gradients in the shapes of q, k and v."""

    scores: Array
    p: Array
    dp: Array
    delta: Array
    ds: Array
    dq: Array
    dk: Array
    dv: Array


@dataclass(frozen=True, eq=False)
class BackwardCall:
    """The inputs of a backward pass; `run` computes it."""

    q: Array
    k: Array
    v: Array
    o: Array
    lse: Array
    do: Array
    mask: Array
    scale: float | None = None
    logits: Logits = PLAIN_LOGITS

    def __post_init__(self) -> None:
        mask_for(shape_of(self.q, self.k, self.v), None, self.mask)

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return int(self.q.shape[1] // self.k.shape[1])

    @property
    def factor(self) -> float:
        """The softmax scale."""
        return default_scale(self.q.shape[3]) if self.scale is None else self.scale

    @cached_property
    def _widened(self) -> dict[str, Array]:
        return {}

    def wide(self, name: str) -> Array:
        """Return an input in float64; K and V with one head per query head. It is kept, as every limit needs it: do not
        change it.
        """
        if name not in self._widened:
            x = np.asarray(getattr(self, name)).astype(np.float64)
            self._widened[name] = np.repeat(x, self.group, axis=1) if name in "kv" else x
            self._widened[name].setflags(write=False)
        return self._widened[name]

    def per_key_head(self, x: Array) -> Array:
        """Return gradients (b, hq, skv, d) summed over the query heads that share a key head."""
        b, hq, skv, d = x.shape
        return np.asarray(x.reshape(b, hq // self.group, self.group, skv, d).sum(axis=2))

    def run(self) -> Backward:
        """Return all stages in float64. A row without a visible key has P = 0."""
        q, k, v, o, do = (self.wide(name) for name in ("q", "k", "v", "o", "do"))
        raw = q @ k.swapaxes(2, 3) * self.factor
        scores = np.where(self.mask, self.logits.of(raw), -np.inf)
        p = weights_of(scores, self.lse)
        dp, delta = do @ v.swapaxes(2, 3), (do * o).sum(axis=-1)
        ds = p * (dp - delta[..., None])
        dq, dk = self.of_scores(ds * self.slope(raw), q, k)
        return Backward(scores, p, dp, delta, ds, dq, dk, self.per_key_head(p.swapaxes(2, 3) @ do))

    def slope(self, raw: Array) -> Array:
        """Return the derivative of the logits by the scaled scores: 1, or 1 - tanh² under a soft cap."""
        cap = self.logits.soft_cap
        return np.ones(1) if cap is None else 1 - np.tanh(raw / cap) ** 2

    def of_scores(self, ds: Array, q: Array, k: Array) -> tuple[Array, Array]:
        """Return dQ and dK from the gradient of the scaled scores."""
        return self._to_q(ds, k), self._to_k(ds, q)

    def _to_q(self, ds: Array, k: Array) -> Array:
        return ds @ k * self.factor

    def _to_k(self, ds: Array, q: Array) -> Array:
        return self.per_key_head(ds.swapaxes(2, 3) @ q * self.factor)

    def short(self, exact: Backward, dtype: str) -> dict[str, Array]:
        """Return the gradients from P and dS rounded to a type, as tensor cores compute them, not yet rounded."""
        q, k, do = (self.wide(name) for name in ("q", "k", "do"))
        raw = q @ k.swapaxes(2, 3) * self.factor
        p, ds = rounded(exact.p, dtype), rounded(exact.ds * self.slope(raw), dtype)
        dq, dk = self.of_scores(ds, q, k)
        return {"dq": dq, "dk": dk, "dv": self.per_key_head(p.swapaxes(2, 3) @ do)}

    def limits(self, exact: Backward, dtype: str) -> dict[str, Array]:
        """Return how far each element of a right kernel may be from `exact`, derived from its roundings.

        Scores, dP and delta are sums of d products in float32, in any order; P has their relative error; dS and the
        gradients inherit these errors. A 16-bit kernel may round P and dS to its type before their products: steps of
        random sign, which add up as a random walk. Sums over rows or keys may be off by 1e-5 of their terms' size, as
        in the forward gate, and the result by an ulp.
        """
        q, k, do = (np.abs(self.wide(name)) for name in ("q", "k", "do"))
        p, ds = exact.p, np.abs(exact.ds)
        sums = ORDER_SHARE + 2.0**-25 * p.shape[3], ORDER_SHARE + 2.0**-25 * p.shape[2] * self.group
        inherited, added = self.inherited(exact, dtype), self._added(sums[1] * p, sums[0] * ds, sums[1] * ds)
        linear = {name: added[name] + inherited[name] for name in added}
        if dtype == "f32":
            random = {name: np.zeros(1) for name in linear}
        else:
            p_step, ds_step = (DEVIATIONS * _rounding(x, dtype) for x in (p, ds))
            random = {
                "dq": np.sqrt(ds_step**2 @ k**2) * self.factor,
                "dk": np.sqrt(self.per_key_head((ds_step**2).swapaxes(2, 3) @ q**2)) * self.factor,
                "dv": np.sqrt(self.per_key_head((p_step**2).swapaxes(2, 3) @ do**2)),
            }
        return {name: linear[name] + random[name] + ulp(getattr(exact, name), dtype) for name in linear}

    def inherited(self, exact: Backward, dtype: str) -> dict[str, Array]:
        """Return how far the errors of P and dS move each gradient, if all of them have the same sign: with equal
        scores, or one delta for all keys, they do.
        """
        errors = self.stage_errors(exact, dtype)
        return self._added(errors["p"], errors["ds"], errors["ds"])

    def _added(self, p: Array, ds_of_q: Array, ds_of_k: Array) -> dict[str, Array]:
        """Return the sums over sizes of P and dS with those of their factors."""
        q, k, do = (np.abs(self.wide(name)) for name in ("q", "k", "do"))
        dv = self.per_key_head(p.swapaxes(2, 3) @ do)
        return {"dq": self._to_q(ds_of_q, k), "dk": self._to_k(ds_of_k, q), "dv": dv}

    def stage_errors(self, exact: Backward, dtype: str) -> dict[str, Array]:
        """Return how far each element of the stages before the gradients may be off by sums in float32."""
        q, k, v, o, do = (np.abs(self.wide(name)) for name in ("q", "k", "v", "o", "do"))
        walk = math.sqrt(q.shape[3]) * 2.0**-23
        norms = {name: np.linalg.norm(x, axis=-1) for name, x in (("q", q), ("k", k), ("v", v), ("o", o), ("do", do))}
        lse = np.abs(np.where(np.isfinite(self.lse), self.lse, 0.0))[..., None]
        score = norms["q"][..., None] * norms["k"][:, :, None] * self.factor * walk + (lse + 4) * 2.0**-22
        if self.logits.soft_cap is not None:
            score = score + self.logits.spread(lse[..., 0], short=dtype != "f32")[..., None]
        p, ds = exact.p, np.abs(exact.ds)
        e_p = p * score + UNDERFLOW * self.mask
        open_dp = norms["do"][..., None] * norms["v"][:, :, None] + (norms["do"] * norms["o"])[..., None]
        e_ds = ds * score + p * open_dp * walk + UNDERFLOW * (1 + open_dp) * self.mask
        dp, delta = norms["do"][..., None] * norms["v"][:, :, None] * walk, norms["do"] * norms["o"] * walk
        return {"scores": score, "p": e_p, "dp": dp, "delta": delta, "ds": e_ds}


def _rounding(x: Array, dtype: str) -> Array:
    """Return the typical error of rounding x ≥ 0 to a type: that of a uniform position, or its own where larger."""
    return np.asarray(np.maximum(ulp(x, dtype) / math.sqrt(12) * (x > 0), np.abs(rounded(x, dtype) - x)))


def weights_of(scores: Array, lse: Array) -> Array:
    """Return exp(S - LSE); 0 in rows without a visible key, where both are -inf."""
    shift = np.where(np.isneginf(lse), 0.0, lse.astype(np.float64))[..., None]
    return np.asarray(np.exp(scores - shift))


def backward16(call: BackwardCall, dtype: str) -> dict[str, Array]:
    """Return the gradients as a 16-bit framework computes them, the reference of FlashAttention's rule.

    S, P, dP, dS and the gradients are each rounded to the type; sums are float32, and O and LSE are not used.
    """
    numpy = numpy_dtype(dtype)
    q, k, v, do = (call.wide(name).astype(np.float32) for name in ("q", "k", "v", "do"))
    scores = in_type(in_type(q * np.float32(call.factor), numpy) @ k.swapaxes(2, 3), numpy)
    weights, _ = call.logits.softmax(np.where(call.mask, in_type(call.logits.of(scores), numpy), np.float32(-np.inf)))
    p, dp = in_type(weights, numpy), in_type(do @ v.swapaxes(2, 3), numpy)
    with np.errstate(invalid="ignore", over="ignore"):
        ds = in_type(p * (dp - (p * dp).sum(axis=-1, keepdims=True)), numpy)
        ds = in_type(ds * call.slope(scores).astype(np.float32), numpy)
        dq = ds @ k * np.float32(call.factor)
        dk = call.per_key_head(in_type(ds.swapaxes(2, 3) @ in_type(q * np.float32(call.factor), numpy), numpy))
        dv = call.per_key_head(in_type(p.swapaxes(2, 3) @ do, numpy))
    return {name: rounded(x, dtype) for name, x in (("dq", dq), ("dk", dk), ("dv", dv))}
