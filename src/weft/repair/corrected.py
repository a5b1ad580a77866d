"""How much of an error an edit corrects. An edit of the faulty line that is not the right one often corrects a part."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from weft.engines.arguments import Array
from weft.tasks.task import Problem, Task

WRONG = 0.25
"""An element is wrong if its error is at least this part of the largest: every result is a little off."""
LEFT = 0.25
"""It is corrected if at most this part of its error is left."""


@dataclass(frozen=True)
class Errors:
    """The distance of each element of the outputs from the reference; infinite where one of them is not a number."""

    of: Mapping[str, Array]

    def corrected(self, before: "Errors") -> float:
        """Return the share of the wrong elements that an edit corrects; 0 if it makes others wrong."""
        corrected = wrong = 0
        for name, old in before.of.items():
            finite = old[np.isfinite(old)]
            least = WRONG * float(finite.max(initial=0.0))
            was_wrong = np.isinf(old) | (old >= least) & (old > 0)
            if np.any(~was_wrong & (self.of[name] > np.maximum(old, least))):
                return 0.0
            left = np.where(np.isinf(old), np.inf, LEFT * np.where(np.isinf(old), 0.0, old))
            corrected += int(np.count_nonzero(was_wrong & (self.of[name] < left)))
            wrong += int(np.count_nonzero(was_wrong))
        return corrected / wrong if wrong else 0.0


def reference_of(task: Task, problem: Problem) -> Mapping[str, Array]:
    """Return the expected outputs."""
    return {name: np.asarray(array, np.float64) for name, array in task.reference(problem).items()}


def errors_of(outputs: Mapping[str, Array], reference: Mapping[str, Array]) -> Errors:
    """Return how far the outputs are from the reference."""
    found = {}
    for name, right in reference.items():
        if name in outputs and outputs[name].shape == right.shape:
            actual = outputs[name].astype(np.float64)
            with np.errstate(invalid="ignore"):
                distance = np.where(actual == right, 0.0, np.abs(actual - right))
            found[name] = np.where(np.isnan(distance), np.inf, distance)
    return Errors(found)
