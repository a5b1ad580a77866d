"""Sets of numbers as short text."""

from collections.abc import Iterable
from itertools import pairwise

SHOWN = 6
"""The number of runs that are listed."""


def ranges(numbers: Iterable[int]) -> str:
    """Return 0, 1, 2, 3, 7 as `0-3, 7`, and 1, 3, 5, 7 as `1, 3 … 7 (every 2nd)`."""
    ordered = sorted(set(numbers))
    if len(ordered) > 3:
        steps = {b - a for a, b in pairwise(ordered)}
        if len(steps) == 1 and (step := steps.pop()) > 1:
            return f"{ordered[0]}, {ordered[1]} … {ordered[-1]} (every {_ordinal(step)})"
    runs: list[list[int]] = []
    for number in ordered:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    text = ", ".join("-".join(map(str, run)) for run in runs[:SHOWN])
    rest = sum(run[-1] - run[0] + 1 for run in runs[SHOWN:])
    return f"{text} and {rest} more up to {ordered[-1]}" if rest else text


def _ordinal(number: int) -> str:
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
