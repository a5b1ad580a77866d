"""One element's arithmetic written out as the FP8 recipe has it."""

from .worked import Worked


class RecipeWorked(Worked):
    """Q, K, V and P are E4M3 values, U is a sum of their products."""

    def _operand(self, name: str, index: tuple[int, ...]) -> str:
        mean = " - its mean" if name == "k" else ""
        return f"e4m3(({name}[{', '.join(map(str, index))}]{mean}) / step)"

    def _scores(self, tile: int | None, index: tuple[int, ...]) -> str:
        product = float(self.expected["products", tile][index])
        return f"(Σ_d q·k) · step_q · step_k · scale · log2(e) = {product:.6g} · {self._factor(tile, index):.6g}"

    def _factor(self, tile: int | None, index: tuple[int, ...]) -> float:
        product, score = (float(self.expected[stage, tile][index]) for stage in ("products", "scores"))
        return score / product if product else 0.0

    def _p(self, tile: int | None, index: tuple[int, ...]) -> str:
        score, m = float(self.expected["masked", tile][index]), float(self.expected["m", tile][index[:3]])
        return f"e4m3(2^8 · exp2(score - m)) = e4m3(256 · exp2({score:.6g} - {m:.6g}))"

    def _l(self, tile: int | None, index: tuple[int, ...]) -> str:
        before = self._before("l", tile, index)
        if before is None:
            return "Σ P over the tile's keys, P before its rounding"
        return f"l · exp2(m_old - m_new) + Σ P, with {before:.6g} · {self._rescale(tile, index):.6g}"

    def _o(self, tile: int | None, index: tuple[int, ...]) -> str:
        last = self._last_tile()
        u, l = float(self.expected["u", last][index]), float(self.expected["l", last][index[:3]])
        return f"U / (2^8 · l) · step_v = {u:.6g} / (256 · {l:.6g}) · step_v"

    def _lse(self, tile: int | None, index: tuple[int, ...]) -> str:
        m, l = (float(self.expected[name, self._last_tile()][index]) for name in ("m", "l"))
        return f"(m + log2 l) · ln 2 + q·mean(k) · scale, with m = {m:.6g}, l = {l:.6g}"
