"""What samples of a timer say. Pure functions: no GPU, no clock, no random numbers.

Nothing is assumed about the noise but that calls of one round met the same conditions: intervals are order statistics,
whose confidence follows from coin tosses alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from weft.core.errors import WeftError

CONFIDENCE = 0.99
"""Of every interval. One comparison in a hundred of equal kernels then calls them different."""

EVENT_RESOLUTION_MS = 0.0005
"""What CUDA promises for its events: about half a microsecond."""

FEWEST = 8
"""Samples below which no interval of this confidence exists."""

DRIFT_SHARE = 0.03
"""By how much a clock, or the time of one and the same kernel, may change from start to end."""


class BadTiming(WeftError):
    """Samples that no clock gives, or too few of them: nothing may be concluded."""


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
    """The candidate's time over the baseline's: 0.97 is 3 % less."""

    answer: Answer
    ratio: Interval
    rounds: int

    def __str__(self) -> str:
        around = f"{100 * (self.ratio.low - 1):+.1f} … {100 * (self.ratio.high - 1):+.1f} %"
        if self.answer is Answer.NOT_DISTINGUISHABLE:
            return f"not distinguishable ({around} time)"
        return f"{self.answer}: {100 * (self.ratio.median - 1):+.1f} % time ({around})"


def check_samples(samples: Sequence[float], *, resolution: float = EVENT_RESOLUTION_MS) -> None:
    """Raise BadTiming for what no clock gives, and for what it cannot resolve."""
    if len(samples) < FEWEST:
        raise BadTiming(f"{len(samples)} samples: an interval needs at least {FEWEST}")
    for number, sample in enumerate(samples):
        if not math.isfinite(sample):
            raise BadTiming(f"sample {number} is {sample}: the timer failed")
        if sample < 0:
            raise BadTiming(f"sample {number} is {sample}: time does not run backwards, so the events are misused")
        if sample < resolution:
            raise BadTiming(
                f"sample {number} is {sample}, below the timer's resolution of {resolution}: nothing ran, or too little"
            )


def interval(samples: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval:
    """The median and its interval: the k-th smallest and largest sample.

    The true median lies below the k-th smallest only if fewer than k of n tosses of a fair coin come up heads.
    """
    ordered = sorted(samples)
    k = interval_rank(len(ordered), confidence)
    return Interval(median(ordered), ordered[k - 1], ordered[-k])


def interval_rank(count: int, confidence: float) -> int:
    """The largest k for which P(fewer than k heads of `count`) ≤ (1 - confidence) / 2."""
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
    """Samples of the same rounds, pair by pair: a clock that wanders moves both of a pair alike."""
    if len(candidate) != len(baseline):
        raise BadTiming(f"{len(candidate)} samples against {len(baseline)}: a round has one of each")
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
    """The change from the first third to the last, if it is more than `share` and more than noise; else None.

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
