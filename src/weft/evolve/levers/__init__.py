"""A search space without a language model: kernel files with `lever` lines, their points and expected effects."""

from .children import Exhausted, crossover, two_levers
from .effects import Effect, observed, predicted, predicted_together
from .render import render
from .space import FAMILIES, Change, Point, Space, family, rung_source, rung_space, space_of, start_of, start_space

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
    "rung_source",
    "rung_space",
    "space_of",
    "start_of",
    "start_space",
    "two_levers",
]
