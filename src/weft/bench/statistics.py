"""Statistics of timer samples. Pure functions: no GPU, no clock, no random numbers.

The only assumption about the noise is that calls of one round had the same conditions: intervals are order statistics,
whose confidence follows from the binomial distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from weft.core.errors import WeftError

CONFIDENCE = 0.99
"""Confidence of every interval. One comparison of equal kernels in a hundred then reports them as different."""

EVENT_RESOLUTION_MS = 0.0005
"""Resolution of CUDA events as documented: about half a microsecond."""

FEWEST = 8
"""Fewest samples for which an interval of this confidence exists."""

DRIFT_SHARE = 0.03
"""Largest relative change of a clock, or of the time of one kernel, from start to end."""


class BadTiming(WeftError):
    """Samples that are invalid or too few: no conclusion is possible."""


class Answer(StrEnum):
    """How a candidate compares with the baseline."""

    FASTER = "faster"
    SLOWER = "slower"
    NOT_DISTINGUISHABLE = "not distinguishable"


@dataclass(frozen=True)
class Interval:
    """A median and the order statistics around it."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The candidate's time divided by the baseline's: 0.97 is 3 % less."""

    answer: Answer
    ratio: Interval
    rounds: int

    def __str__(self) -> str:
        around = f"{100 * (self.ratio.low - 1):+.1f} … {100 * (self.ratio.high - 1):+.1f} %"
        if self.answer is Answer.NOT_DISTINGUISHABLE:
            return f"not distinguishable ({around} time)"
        return f"{self.answer}: {100 * (self.ratio.median - 1):+.1f} % time ({around})"


def check_samples(samples: Sequence[float], *, resolution: float = EVENT_RESOLUTION_MS) -> None:
    """Raise BadTiming for samples that are invalid or below the timer's resolution."""
    if len(samples) < FEWEST:
        raise BadTiming(f"{len(samples)} samples: an interval needs at least {FEWEST}")
    for number, sample in enumerate(samples):
        if not math.isfinite(sample):
            raise BadTiming(f"sample {number} is {sample}: the timer failed")
        if sample < 0:
            raise BadTiming(f"sample {number} is negative ({sample}): the events were recorded in the wrong order")
        if sample < resolution:
            raise BadTiming(
                f"sample {number} is {sample}, below the timer's resolution of {resolution}: nothing ran, or too little"
            )


def interval(samples: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval:
    """Return the median and its interval: the k-th smallest and largest sample.

    The true median is below the k-th smallest only if fewer than k of n tosses of a fair coin are heads.
    """
    ordered = sorted(samples)
    k = interval_rank(len(ordered), confidence)
    return Interval(median(ordered), ordered[k - 1], ordered[-k])


def interval_rank(count: int, confidence: float) -> int:
    """Return the largest k for which P(fewer than k heads of `count`) ≤ (1 - confidence) / 2."""
    allowed, below, k = (1 - confidence) / 2, 0.0, 0
    while k <= count // 2:
        below += math.comb(count, k) * 0.5**count
        if below > allowed:
            break
        k += 1
    if k == 0:
        raise BadTiming(f"{count} samples give no interval of {confidence:.0%}: take more")
    return k


def compare(candidate: Sequence[float], baseline: Sequence[float], *, confidence: float = CONFIDENCE) -> Comparison:
    """Compare samples of the same rounds in pairs: a drifting clock changes both of a pair alike."""
    if len(candidate) != len(baseline):
        raise BadTiming(f"{len(candidate)} samples of the candidate, {len(baseline)} of the baseline: give as many")
    check_samples(candidate)
    check_samples(baseline)
    ratio = interval([a / b for a, b in zip(candidate, baseline, strict=True)], confidence=confidence)
    if ratio.high < 1:
        answer = Answer.FASTER
    elif ratio.low > 1:
        answer = Answer.SLOWER
    else:
        answer = Answer.NOT_DISTINGUISHABLE
    return Comparison(answer, ratio, len(candidate))


def find_drift(samples: Sequence[float], *, share: float = DRIFT_SHARE) -> float | None:
    """Return the change from the first third to the last, if it is more than `share` and more than noise; else None.

    For times of one kernel as well as for clocks.
    """
    third = len(samples) // 3
    if third < 3:
        return None
    first, last = sorted(samples[:third]), sorted(samples[-third:])
    change = median(last) / median(first) - 1 if median(first) else math.inf
    quarter = third // 4
    overlap = last[quarter] <= first[-1 - quarter] if change > 0 else first[quarter] <= last[-1 - quarter]
    return change if abs(change) > share and not overlap else None
