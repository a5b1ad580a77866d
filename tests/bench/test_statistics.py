"""The statistics on simulated timers: real differences are found, equal kernels are reported as equal."""

import math
import random

import pytest

from weft.bench.statistics import Answer, BadTiming, check_samples, compare, find_drift, interval, interval_rank


def timer(rng: random.Random, mean: float, rounds: int, *, noise: float = 0.02, drift: float = 0.0) -> list[float]:
    """Return times like those of GPUs: a minimum, a tail to the right, rare outliers, and a drifting clock."""
    samples = []
    for number in range(rounds):
        slow = 1 + drift * number / rounds
        tail = rng.expovariate(1 / noise) + (5 * rng.random() if rng.random() < 0.02 else 0)
        samples.append(mean * slow * (1 + tail))
    return samples


def test_three_percent_are_found() -> None:
    rng = random.Random(1)
    answers = [compare(timer(rng, 0.097, 100), timer(rng, 0.100, 100)) for _ in range(100)]
    assert sum(found.answer is Answer.FASTER for found in answers) >= 95
    assert not any(found.answer is Answer.SLOWER for found in answers)
    assert all(0.95 < found.ratio.median < 0.99 for found in answers)
    slower = compare(timer(rng, 0.103, 100), timer(rng, 0.100, 100))
    assert slower.answer is Answer.SLOWER


@pytest.mark.parametrize("drift", [0.0, 0.2])
@pytest.mark.parametrize("rounds", [20, 50, 100, 301])
def test_equal_kernels_are_reported_as_equal(rounds: int, drift: float) -> None:
    rng = random.Random(rounds)
    runs = [
        compare(timer(rng, 0.1, rounds, drift=drift), timer(rng, 0.1, rounds, drift=drift)).answer for _ in range(100)
    ]
    assert runs.count(Answer.NOT_DISTINGUISHABLE) >= 95


def test_a_drifting_clock_does_not_hide_a_difference() -> None:
    """Unpaired, a difference of 3 % would be hidden by a drift of 20 %."""
    rng = random.Random(5)
    found = [compare(timer(rng, 0.097, 100, drift=0.2), timer(rng, 0.1, 100, drift=0.2)) for _ in range(20)]
    assert all(each.answer is Answer.FASTER for each in found)


def test_drift_is_flagged_and_noise_is_not() -> None:
    rng = random.Random(3)
    flagged = [find_drift(timer(rng, 0.1, 90, noise=0.01, drift=0.1)) for _ in range(100)]
    assert sum(change is not None for change in flagged) >= 99
    assert all(0.03 < change < 0.12 for change in flagged if change is not None)
    steady = [find_drift(timer(rng, 0.1, 90)) for _ in range(100)]
    assert sum(change is not None for change in steady) <= 1
    assert find_drift([1980] * 30 + [1700] * 30) == pytest.approx(1700 / 1980 - 1)
    assert find_drift([1980, 1995, 1980, 1965] * 10) is None


@pytest.mark.parametrize(
    ("samples", "why"),
    [([0.1] * 9 + [-0.001], "negative"), ([0.1] * 9 + [0.0], "resolution"), ([0.1] * 9 + [0.0002], "resolution"),
     ([0.1] * 9 + [math.nan], "timer failed"), ([0.1] * 9 + [math.inf], "timer failed"), ([0.1] * 7, "at least 8")],
)  # fmt: skip
def test_invalid_times_are_refused(samples: list[float], why: str) -> None:
    with pytest.raises(BadTiming, match=why):
        check_samples(samples)
    good = [0.1] * len(samples)
    with pytest.raises(BadTiming):
        compare(samples, good)
    with pytest.raises(BadTiming):
        compare(good, samples)


def test_rounds_must_be_pairs() -> None:
    with pytest.raises(BadTiming, match="9 samples of the candidate, 10 of the baseline"):
        compare([0.1] * 9, [0.1] * 10)


def test_ranks_of_the_interval_are_those_of_the_sign_test() -> None:
    """Printed tables: n = 20 at 95 % takes the 6th smallest and largest, n = 10 at 95 % the 2nd."""
    assert interval_rank(20, 0.95) == 6
    assert interval_rank(10, 0.95) == 2
    assert interval_rank(8, 0.99) == 1
    with pytest.raises(BadTiming, match="take more"):
        interval_rank(7, 0.99)


def test_the_interval_covers_the_median_as_often_as_stated() -> None:
    rng = random.Random(11)
    covered = 0
    for _ in range(2000):
        found = interval([rng.expovariate(1) for _ in range(25)], confidence=0.9)
        covered += found.low <= math.log(2) <= found.high
    assert covered / 2000 >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / 2000)


def test_an_outlier_changes_nothing() -> None:
    calm = compare([0.1] * 50, [0.1] * 50)
    wild = compare([0.1] * 47 + [9.0] * 3, [0.1] * 50)
    assert calm.ratio == wild.ratio
