"""A search space without a language model: kernel files with `lever` lines, their points and expected effects."""

from .children import Exhausted, crossover, two_levers
from .effects import Effect, observed, predicted, predicted_together
from .render import render
from .space import FAMILIES, Change, Point, Space, family, space_of, start_of

__all__ = [
    "FAMILIES",
    "Change",
    "Effect",
    "Exhausted",
    "Point",
    "Space",
    "crossover",
    "family",
    "observed",
    "predicted",
    "predicted_together",
    "render",
    "space_of",
    "start_of",
    "two_levers",
]
