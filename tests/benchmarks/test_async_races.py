"""Wrong asynchronous kernels and their right versions: a part of `benchmarks/async_races.py`, in every schedule."""

import pytest

from benchmarks.async_mistakes import MISTAKES, RIGHT, Mistake, Right
from benchmarks.async_races import KERNELS, alarm, missing
from tests.in_turn import one_in

ALWAYS = (
    "ring: phase inverted",
    "ring: released before the read",
    "ring: last load not awaited",
    "drain: fence of one warp",
    "drain: no wait",
    "drain: exit without a wait",
    "there_and_back: no wait for the store",
    "product: one warp waits",
    "product: waits for too few",
    "written: fence of one warp after the barrier",
    "written: no wait",
    "copied: fence before the wait",
    "multicast: released for the own CTA only",
    "multicast: exit after an arrival",
    "passed: relaxed barrier before the read",
    "lent: acquires for its CTA only",
    "sent: no barrier after the initialisation",
    "sent: too many bytes",
)


def test_there_are_enough_mistakes_with_different_texts() -> None:
    texts = {mistake.text(KERNELS) for mistake in MISTAKES}
    assert len(texts) == len(MISTAKES) >= 40
    assert {mistake.title for mistake in MISTAKES} >= set(ALWAYS)
    assert {mistake.kernel for mistake in MISTAKES} == {right.kernel for right in RIGHT}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, marks=[pytest.mark.sweep] * (mistake.title not in ALWAYS), id=mistake.title)
        for mistake in MISTAKES
    ],
)
def test_a_mistake_is_found_at_its_line(mistake: Mistake) -> None:
    assert missing(mistake) == ""


@pytest.mark.parametrize("right", one_in(2, RIGHT))
def test_a_right_kernel_has_no_finding(right: Right) -> None:
    assert alarm(right) == ""
