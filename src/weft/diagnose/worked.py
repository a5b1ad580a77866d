"""One element's arithmetic written out: how it should be computed, and the kernel's value."""

import math
from collections.abc import Mapping

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.logits import Logits
from weft.attention.reference import default_scale
from weft.tasks.attention_problem import AttentionProblem

from .taps import Key

TERMS = 3
"""The number of terms of a sum that are written out."""


class Worked:
    """Writes out the arithmetic of a problem's elements."""

    def __init__(self, problem: AttentionProblem, algorithm: Algorithm, expected: Mapping[Key, Array]) -> None:
        self.problem, self.algorithm, self.expected = problem, algorithm, expected
        self.group = problem.workload.shape.group

    def element(self, key: Key, index: tuple[int, ...], actual: float) -> tuple[str, ...]:
        """Return the lines for one element of a stage."""
        stage, tile = key
        wanted = float(self.expected[key][index])
        lines = [f"{self._label(key, index)} should be {self._formula(stage, tile, index)} = {wanted:.6g}"]
        lines.append(f"the kernel has {actual:.6g}{_relation(actual, wanted)}")
        return tuple(lines)

    def keys(self, tile: int | None) -> range:
        """Return the keys of a tile; all keys for None."""
        keys = range(self.problem.workload.shape.skv)
        return keys if tile is None else keys[tile * self.algorithm.block_n :][: self.algorithm.block_n]

    def rescale(self, key: Key, row: tuple[int, ...]) -> float | None:
        """Return what l or U of a row is multiplied with before a tile is added; None where nothing was added yet."""
        stage, tile = key
        before = self._before("l", tile, row) if stage in ("l", "u") else None
        return self._rescale(tile, row) if before else None

    def _label(self, key: Key, index: tuple[int, ...]) -> str:
        stage, tile = key
        first = (tile or 0) * self.algorithm.block_n
        at = list(index)
        if stage in ("k", "v"):
            at[2] += first
        elif stage in ("products", "scores", "masked", "p"):
            at[3] += first
        after = f" after key {self.keys(tile)[-1]}" if stage in ("m", "l", "u") else ""
        return f"{stage}[{', '.join(map(str, at))}]{after}"

    def _formula(self, stage: str, tile: int | None, index: tuple[int, ...]) -> str:
        return str(getattr(self, f"_{stage}")(tile, index))

    def _q(self, tile: int | None, index: tuple[int, ...]) -> str:
        return self._operand("q", index)

    def _k(self, tile: int | None, index: tuple[int, ...]) -> str:
        b, h, row, d = index
        return self._operand("k", (b, h, row + (tile or 0) * self.algorithm.block_n, d))

    def _v(self, tile: int | None, index: tuple[int, ...]) -> str:
        b, h, row, d = index
        return self._operand("v", (b, h, row + (tile or 0) * self.algorithm.block_n, d))

    def _operand(self, name: str, index: tuple[int, ...]) -> str:
        codes, scale = (self.problem.arrays.get(f"{name}_{what}") for what in ("code", "scale"))
        if codes is not None and scale is not None:
            return f"code {int(codes[index])} decoded with scale {float(scale[index[:2]]):.6g}"
        return f"the input {name}[{', '.join(map(str, index))}]"

    def _products(self, tile: int | None, index: tuple[int, ...]) -> str:
        b, h, row, column = index
        q, k = self.expected["q", None][b, h, row], self.expected["k", tile][b, h // self.group, column]
        return f"Σ_d q·k = {_sum(q, k)}"

    def _scores(self, tile: int | None, index: tuple[int, ...]) -> str:
        if self.algorithm.scale_in == "q":
            return self._products(tile, index)
        scale = default_scale(self.problem.workload.shape.d)
        base = "" if self.algorithm.exp_base == math.e else " · log2(e)"
        scaled = f"{float(self.expected['products', tile][index]):.6g} · {scale:.6g}"
        if not self.problem.logits.plain:
            return f"{_logit(self.problem.logits)}, s = (Σ_d q·k) · scale{base} = {scaled}"
        return f"(Σ_d q·k) · scale{base} = {scaled}"

    def _masked(self, tile: int | None, index: tuple[int, ...]) -> str:
        row, key = index[2], index[3] + (tile or 0) * self.algorithm.block_n
        of_row = np.broadcast_to(self.problem.mask, (*self.problem.workload.shape.lse, self.problem.mask.shape[-1]))
        if of_row[(*index[:3], key)]:
            return f"the score, as key {key} is visible to query {row}"
        return f"masked, as key {key} is not visible to query {row}"

    def _m(self, tile: int | None, index: tuple[int, ...]) -> str:
        here = float(self.expected["masked", tile][index].max())
        before = self._before("m", tile, index)
        return f"the largest score so far, max({before:.6g}, {here:.6g})" if before is not None else "the largest score"

    def _p(self, tile: int | None, index: tuple[int, ...]) -> str:
        score, m = float(self.expected["masked", tile][index]), float(self.expected["m", tile][index[:3]])
        exp = "exp" if self.algorithm.exp_base == math.e else "exp2"
        return f"{exp}(score - m) = {exp}({score:.6g} - {m:.6g})"

    def _l(self, tile: int | None, index: tuple[int, ...]) -> str:
        added = float(self.expected["p", tile][index].astype(np.float64).sum())
        before = self._before("l", tile, index)
        if before is None:
            return "Σ P over the tile's keys"
        return f"l · exp(m_old - m_new) + Σ P = {before:.6g} · {self._rescale(tile, index):.6g} + {added:.6g}"

    def _u(self, tile: int | None, index: tuple[int, ...]) -> str:
        b, h, row, d = index
        p, v = self.expected["p", tile][b, h, row], self.expected["v", tile][b, h // self.group, :, d]
        before = self._before("u", tile, index)
        if before is None:
            return f"Σ P·V = {_sum(p, v)}"
        added = float(p.astype(np.float64) @ v.astype(np.float64))
        rescale = self._rescale(tile, index[:3])
        return f"U · exp(m_old - m_new) + Σ P·V = {before:.6g} · {rescale:.6g} + {added:.6g}"

    def _o(self, tile: int | None, index: tuple[int, ...]) -> str:
        if self.algorithm.splits > 1:
            return f"Σ U·exp(m - M) / Σ l·exp(m - M) over {self.algorithm.splits} splits"
        last = self.last_tile()
        if ("u", last) not in self.expected:
            return "softmax(q·kᵀ·scale)·v"
        u, l = float(self.expected["u", last][index]), float(self.expected["l", last][index[:3]])
        return f"U / l = {u:.6g} / {l:.6g}"

    def _lse(self, tile: int | None, index: tuple[int, ...]) -> str:
        if self.algorithm.splits > 1:
            return "M + log Σ l·exp(m - M)"
        m, l = (float(self.expected[name, self.last_tile()][index]) for name in ("m", "l"))
        return f"m + log l = {m * math.log(self.algorithm.exp_base):.6g} + log {l:.6g}"

    def last_tile(self) -> int:
        """Return the number of the last KV tile."""
        return -(-self.problem.workload.shape.skv // self.algorithm.block_n) - 1

    def _before(self, stage: str, tile: int | None, index: tuple[int, ...]) -> float | None:
        """Return the stage after the previous tile, in the same split."""
        if tile is None or tile == 0 or tile % self._tiles_per_split() == 0:
            return None
        return float(self.expected[stage, tile - 1][index])

    def _rescale(self, tile: int | None, index: tuple[int, ...]) -> float:
        assert tile is not None
        old, new = (float(self.expected["m", at][index]) for at in (tile - 1, tile))
        return 0.0 if math.isinf(old) else float(self.algorithm.exp_base ** (old - new))

    def _tiles_per_split(self) -> int:
        return -(-(self.last_tile() + 1) // self.algorithm.splits)


def _logit(logits: Logits) -> str:
    capped = f"{logits.soft_cap:g} · tanh(s / {logits.soft_cap:g})" if logits.soft_cap is not None else "s"
    return f"{capped} + bias" if logits.bias is not None else capped


def _sum(a: Array, b: Array) -> str:
    terms = " + ".join(f"{float(x):.4g}·{float(y):.4g}" for x, y in zip(a[:TERMS], b[:TERMS], strict=True))
    return terms if len(a) <= TERMS else f"{terms} + … ({len(a)} terms)"


def _relation(actual: float, wanted: float) -> str:
    if not math.isfinite(actual) or not math.isfinite(wanted):
        return ""
    ratio = f", {actual / wanted:.6g} times that" if wanted else ""
    return f": off by {actual - wanted:+.3g}{ratio}"
