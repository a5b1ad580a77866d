"""The family of attention: one frozen description of a call, from which everything about it derives.

A task is a point of this family. The description gives the inputs apart from q, k and v, the mask, what happens to
scores before the softmax, how the arrays are laid out, and the macros that tell a kernel about it. References,
emulation and gates only know dense arrays (b, h, s, d) with a mask and `Logits`; `layouts.py` converts other layouts.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from .dtypes import Array
from .errors import ContractError
from .logits import PLAIN_LOGITS, Logits
from .reference import Causal, visible
from .shapes import Shape

Layout = Literal["dense", "varlen", "paged"]
Q_SHARES = (1.0, 3 / 7, 0.0, 2 / 3, 1 / 5)
KV_SHARES = (1.0, 4 / 7, 1 / 3, 0.0, 5 / 7)
"""Lengths of batch entries as a share of the longest, in turn: the third has no query, the fourth no key."""
NO_LIMIT: Mapping[str, str] = MappingProxyType({"WINDOW_LEFT": "-1", "WINDOW_RIGHT": "-1", "SOFT_CAP": "0"})
"""The macros of an attention without a window and a cap, for kernels that have them."""
NO_SINK = -30.0
"""A sink that takes no weight, even from keys at the lower end of a soft cap."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """Which attention is computed. The causal mask, sizes and types are the workload's."""

    left: int | None = None
    """How many keys before the diagonal a query sees; None: all."""
    right: int | None = None
    """How many keys after it, if the mask is not causal; None: all."""
    soft_cap: float | None = None
    """Scores become cap·tanh(score / cap)."""
    bias: Literal["", "alibi", "additive"] = ""
    """`alibi`: slopes (hq,) times the distance of key and diagonal; `additive`: an array (hq, sq, skv)."""
    sinks: bool = False
    """Whether each query head has a logit without a value that counts in the sum (an input f32 (hq,))."""
    scale: float | None = None
    """The softmax scale; None: 1/sqrt(d)."""
    layout: Layout = "dense"
    """`varlen`: sequences of different lengths packed behind each other; `paged`: K and V in pages of a cache."""
    page: int = 16
    """Keys of a page."""
    coded: tuple[str, ...] = ()
    """Which of q, k and v are 8-bit codes with a scale per head. In pages only k and v may be, and sequences share the
    scales: a page may belong to several of them."""
    dropout: float = 0.0
    """Only 0 is supported: a random mask has no reference."""

    def __post_init__(self) -> None:
        if self.dropout:
            raise ContractError(f"dropout {self.dropout}: attention with dropout has no reference; use 0")
        if self.layout not in ("dense", "varlen", "paged") or self.bias not in ("", "alibi", "additive"):
            raise ContractError(f"unknown layout {self.layout!r} or bias {self.bias!r}")
        if min(self.left or 0, self.right or 0) < 0 or self.page < 1 or set(self.coded) - set("qkv"):
            raise ContractError("a window is at least 0, a page at least 1 key, and coded arrays are q, k or v")
        possible = {"dense": "qkv", "paged": "kv", "varlen": ""}[self.layout]
        if set(self.coded) - set(possible):
            able = f"{' and '.join(possible)} may be" if possible else "no array is"
            raise ContractError(
                f"8-bit codes of {', '.join(self.coded)} in the layout {self.layout!r}: {able} coded there"
            )

    @property
    def terms(self) -> tuple[str, ...]:
        """The inputs that change the logits."""
        named = {"alibi": ("slopes",), "additive": ("bias",), "": ()}[self.bias]
        return named + (("sinks",) if self.sinks else ())

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all inputs, in the order of a kernel's arguments."""
        ends = {"dense": (), "varlen": ("cu_seqlens_q", "cu_seqlens_k"), "paged": ("block_table", "seq_lens")}
        scales = (f"{name}_scale" for name in "qkv" if name in self.coded)
        return (*map(self.input_of, "qkv"), *ends[self.layout], *scales, *self.terms)

    def input_of(self, name: str) -> str:
        """Return the name of the input that has q, k or v."""
        cache = "_cache" if self.layout == "paged" and name != "q" else ""
        return f"{name}{cache}{'_code' if name in self.coded else ''}"

    def defines(self) -> dict[str, str]:
        """Return the macros that tell a kernel about this attention, as far as it has them."""
        found = {"WINDOW_LEFT": self.left, "WINDOW_RIGHT": self.right, "SOFT_CAP": self.soft_cap}
        paged = {"PAGE": str(self.page)} if self.layout == "paged" else {}
        return {name: str(value) for name, value in found.items() if value is not None} | paged

    def lengths(self, shape: Shape) -> tuple[Array, Array] | None:
        """Return the number of queries and of keys of each batch entry; None: all are as long as the shape says."""
        if self.layout == "dense":
            return None
        turn = np.arange(shape.b) % len(Q_SHARES)
        lq, lk = (np.ceil(np.array(shares)[turn] * n) for shares, n in ((Q_SHARES, shape.sq), (KV_SHARES, shape.skv)))
        if self.layout == "paged":
            lq = np.full(shape.b, shape.sq)
        return lq.astype(np.int32), lk.astype(np.int32)

    def mask(self, shape: Shape, causal: Causal, *, off: int = 0, lengths: tuple[Array, Array] | None = None) -> Array:
        """Return which keys each query sees: (sq, skv), or (b, 1, sq, skv) where sequences have their own lengths.

        With `off` the diagonal is that many keys too far; `lengths` replace those of the contract.
        """
        lengths, left, right = lengths or self.lengths(shape), self.left, self.right
        if lengths is None:
            return visible(shape.sq, shape.skv, causal, left=left, right=right, off=off)
        found = np.zeros((shape.b, 1, shape.sq, shape.skv), np.bool_)
        for batch, (sq, skv) in enumerate(zip(*lengths, strict=True)):
            found[batch, 0, :sq, :skv] = visible(int(sq), int(skv), causal, left=left, right=right, off=off)
        return found

    def draw_terms(self, shape: Shape, seed: int) -> dict[str, Array]:
        """Return the inputs that change the logits, in float32; deterministic in the shape's sizes and the seed."""
        sizes = (shape.b, shape.hq, shape.hkv, shape.sq, shape.skv, shape.d)
        rng = np.random.default_rng([seed, zlib.crc32(b"terms"), *sizes])
        drawn = {
            "slopes": np.exp2(-8 * np.arange(1, shape.hq + 1) / shape.hq),
            "bias": rng.standard_normal((shape.hq, shape.sq, shape.skv)),
            "sinks": rng.standard_normal(shape.hq) + 2,
        }
        drawn["sinks"][1:][-1:] = NO_SINK  # the last of several heads shows what other sinks outweigh
        return {name: drawn[name].astype(np.float32) for name in self.terms}

    def logits(self, shape: Shape, causal: Causal, terms: Mapping[str, Array]) -> Logits:
        """Return what is done to scaled scores, given the drawn terms."""
        if self.soft_cap is None and not self.terms:
            return PLAIN_LOGITS
        return Logits(self.soft_cap, self._bias(shape, causal, terms), terms.get("sinks"))

    def _bias(self, shape: Shape, causal: Causal, terms: Mapping[str, Array]) -> Array | None:
        if self.bias == "additive":
            return terms["bias"][None]
        if self.bias != "alibi":
            return None
        lengths = self.lengths(shape)
        ends = np.full((shape.b, 2), (shape.sq, shape.skv)) if lengths is None else np.stack(lengths, axis=1)
        shift = np.zeros(shape.b, np.int64) if causal == "top_left" else ends[:, 1] - ends[:, 0]
        query, key = np.arange(shape.sq)[:, None], np.arange(shape.skv)[None, :]
        distance = np.abs(key - query - shift[:, None, None])
        return np.asarray(-terms["slopes"][None, :, None, None] * distance[:, None])


DENSE = Contract()
CODED = Contract(coded=("q", "k", "v"))
"""Dense attention on numbers, and on 8-bit codes."""
