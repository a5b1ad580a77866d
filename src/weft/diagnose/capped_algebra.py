"""The algebra of kernels with a soft cap: what is computed from one score alone, as its tanh, stays this score."""

import numpy as np
import numpy.typing as npt

from .algebra import Algebra
from .nodes import Numbers
from .tags import Kind, Tags, full


class CappedAlgebra(Algebra):
    """A tanh is computed from exponentials, reciprocals, sums and selections of one complete score. A maximum is
    subtracted before the exponential of a weight, so that one is not meant.
    """

    def exponential(self, a: Tags) -> Tags:
        return self._of_score(a, super().exponential(a))

    def inverse(self, a: Tags) -> Tags:
        return self._of_score(a, super().inverse(a))

    def function(self, a: Tags) -> Tags:
        return self._of_score(a, super().function(a))

    def total(self, a: Tags, b: Tags, *, minus: bool = False) -> Tags:
        return self._of_one_score(a, b, super().total(a, b, minus=minus))

    def largest(self, a: Tags, b: Tags) -> Tags:
        return self._of_one_score(a, b, super().largest(a, b))

    def clamped(self, a: Tags, b: Tags) -> Tags:
        return self._of_one_score(a, b, super().clamped(a, b))

    def is_mask(self, values: Numbers) -> npt.NDArray[np.bool_]:
        """Return False for 1, the tanh of large numbers."""
        return np.asarray(np.abs(values) != 1)

    def _of_score(self, a: Tags, otherwise: Tags) -> Tags:
        return np.where(a["kind"] == Kind.S, a, otherwise)

    def _of_one_score(self, a: Tags, b: Tags, otherwise: Tags) -> Tags:
        whole = full(a["terms"], self.sizes.shape.d) & full(b["terms"], self.sizes.shape.d)
        same = whole & (a["kind"] == Kind.S) & (b["kind"] == Kind.S) & (a["row"] == b["row"]) & (a["col"] == b["col"])
        return np.where(same & (a["col"] >= 0), a, otherwise)
