"""Outputs that hardly depend on the inputs: nothing but zeros, or the mean of V."""

import numpy as np

from weft.diagnose.records import Case, Signature

from .evidence import EXPLAINED, may_be, output_of, rank_of


def all_zeros(case: Case) -> Signature | None:
    """O is 0 where it should be something."""
    out = output_of(case)
    if out is None or out.o.any() or not out.right.any():
        return None
    message = f"all {out.o.size} elements of O are 0: nothing was added up, or the wrong buffer was stored"
    cure = "look at what the store of O reads: an accumulator that is never written, a loop over no tile, P = 0"
    return Signature("all_zeros", message, cure, 0.9)


def uniform_weights(case: Case) -> Signature | None:
    """Every key in sight weighs the same: O is the mean of V, and Q and K do not matter."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "q", "k", "products", "scores", "masked", "p"):
        return None
    left = out.left_over(out.attend(np.zeros((*out.o.shape[:3], out.mask.shape[1]))))
    if left > EXPLAINED / 4:
        return None
    message = "O is the mean of V over the keys in sight: every weight is the same, whatever Q and K are"
    cure = "look at the scores: multiplied by 0, never stored, or read before they are there"
    return Signature("uniform_weights", message, cure, rank_of(left) + 0.01, 1 - left)
