"""The barrier of a cooperative group of several warps: what a warp learns, and when."""

import numpy as np
import pytest

from weft.probes.group_clock import GroupClock, Key

START = 0x1000
ALL = 0xFFFFFFFF


def row(*epochs: int) -> np.ndarray:
    return np.array(epochs, np.int32)


@pytest.fixture
def clock() -> GroupClock:
    return GroupClock(range(START, START + 1024))


def learned(clock: GroupClock, key: Key, warp: int, lanes: int = ALL) -> list[tuple[int, list[int]]]:
    return [(mask, news.tolist()) for mask, news in clock.look(key, warp, lanes)]


@pytest.mark.parametrize(
    ("address", "warp", "key"),
    [
        (START, 0, (7, 0, 0)),
        (START, 3, (7, 0, 1)),  # pairs of warps
        (START + 4, 7, (7, 1, 1)),  # groups of four
        (START + 12, 15, (7, 3, 0)),  # groups of sixteen
        (START + 20, 0, None),  # behind the words: the slots
        (START - 4, 0, None),
    ],
)
def test_every_size_of_groups_has_a_word(clock: GroupClock, address: int, warp: int, key: Key | None) -> None:
    assert clock.key(7, warp, address) == key


def test_without_the_systems_memory_there_is_no_group() -> None:
    assert GroupClock(range(0)).key(0, 0, 0) is None


def test_the_last_warp_learns_from_all_and_the_others_when_it_releases_them(clock: GroupClock) -> None:
    key = (0, 0, 0)
    assert clock.arrive(key, 0, row(5, -1)) is None
    assert learned(clock, key, 0) == []  # it waits
    last = clock.arrive(key, 1, row(-1, 3))
    assert last is not None and last.tolist() == [5, 3]
    assert learned(clock, key, 0) == []  # the last warp combines values before it releases
    clock.clear(key, 1, row(5, 4))
    assert learned(clock, key, 0) == [(ALL, [5, 4])]


def test_a_released_warp_does_not_learn_what_came_after_the_release(clock: GroupClock) -> None:
    key = (0, 0, 0)
    clock.arrive(key, 0, row(5, -1))
    clock.arrive(key, 1, row(-1, 3))
    clock.clear(key, 1, row(5, 3))
    clock.arrive(key, 1, row(5, 9))  # for the next phase, before warp 0 has looked
    assert learned(clock, key, 0) == [(ALL, [5, 3])]


def test_other_groups_of_the_same_size_are_separate(clock: GroupClock) -> None:
    first, second = (0, 0, 0), (0, 0, 1)
    clock.arrive(first, 0, row(5, -1))
    assert clock.arrive(second, 2, row(-1, 3)) is None
    assert learned(clock, second, 3) == [(ALL, [-1, 3])]


def test_a_warp_that_clears_its_own_bit_releases_nothing(clock: GroupClock) -> None:
    key = (0, 0, 0)
    clock.clear(key, 0, row(1, 1))
    clock.arrive(key, 0, row(5, -1))
    clock.clear(key, 1, row(1, 1))
    assert learned(clock, key, 0) == []


def test_a_warp_that_has_not_arrived_learns_from_the_warp_with_the_value(clock: GroupClock) -> None:
    """shfl: the source arrives, the others read its slot before they arrive."""
    key = (0, 0, 0)
    clock.arrive(key, 0, row(5, -1))
    assert learned(clock, key, 1) == [(ALL, [5, -1])]


def test_one_lane_waits_for_its_warp(clock: GroupClock) -> None:
    """sync: the other lanes meet it at a bar.warp.sync; what they read next is not the end of that wait."""
    key = (0, 0, 0)
    for warp in (0, 1):
        clock.arrive(key, warp, row(1, 1))
    clock.clear(key, 1, None)
    assert learned(clock, key, 0, 1) == [(1, [1, 1])]
    clock.arrive(key, 1, row(1, 7))
    clock.meet(0, 0)
    assert learned(clock, key, 0) == [(ALL, [1, 7])]
