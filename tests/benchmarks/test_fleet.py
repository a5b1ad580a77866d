"""The arithmetic of benchmarks/fleet.py: overheads are computed per round, and a differing verdict is reported."""

from benchmarks.fleet import COUNT, MODES, Measured, one_round, summary, texts


def measured(seconds: float, status: str = "PASSED") -> Measured:
    return Measured(seconds, 2 * seconds, dict.fromkeys(range(COUNT), status))


def test_overheads_are_medians_of_rounds() -> None:
    found = {
        "bare": [measured(10), measured(20), measured(40)],
        "supervisor": [measured(11), measured(22), measured(60)],
        "ray": [measured(10), measured(25), measured(80)],
    }
    made = summary(found, 2)
    assert (made["supervisor_overhead"], made["ray_overhead"]) == (0.1, 0.25)
    assert made["bare_per_s"] == round(COUNT / 20, 4) and made["ray_core_seconds"] == round(2 * 25 / COUNT, 3)
    assert made["ray_overhead_range"] == [0.0, 1.0] and made["same_statuses"]


def test_another_verdict_is_seen() -> None:
    found = {mode: [measured(1.0)] for mode in MODES} | {"ray": [measured(1.0, "UNSAFE")]}
    assert not summary(found, 2)["same_statuses"]


def test_a_round_judges_the_complete_mix_in_every_mode_in_turns() -> None:
    asked: list[tuple[str, list[int]]] = []

    class Way:
        def __init__(self, name: str) -> None:
            self.name = name

        def measure(self, places: list[int], mark: str) -> Measured:
            asked.append((self.name, places))
            return Measured(1.0, 1.0, dict.fromkeys(places, "PASSED"))

    total = one_round({mode: Way(mode) for mode in MODES}, 1, 4)
    assert len(texts()) == COUNT
    for mode in MODES:
        assert sorted(total[mode].statuses) == list(range(COUNT)) and total[mode].seconds == 4.0
    assert [sorted(mode for mode, _ in asked[turn : turn + 3]) for turn in range(0, 12, 3)] == [sorted(MODES)] * 4
    assert len({asked[turn][0] for turn in range(0, 12, 3)}) == 3  # each begins once at least
