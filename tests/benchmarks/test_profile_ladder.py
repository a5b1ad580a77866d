"""The ladder's table: one head times the heads is the whole launch, and the page holds what a run gives."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import profile_ladder
from weft.core.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "ladder_profile.md"


@pytest.mark.parametrize("rung", ["wmma", "fp8_mma"])
def test_heads_times_one_head_is_the_whole(rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wavefronts, instructions and bounds are exactly those of a run of all four heads."""
    scaled = profile_ladder.row(rung, "validation_128")
    monkeypatch.setattr(profile_ladder, "WHOLE", ("validation_128",))
    whole = profile_ladder.row(rung, "validation_128")
    assert scaled.est == pytest.approx(whole.est) and scaled.est_at == pytest.approx(whole.est_at)
    same = replace(scaled, est=whole.est, est_at=whole.est_at, last_est=whole.last_est)
    assert same == whole and whole.lb_warm > 0


def test_a_grid_that_hangs_on_the_number_of_heads_is_refused() -> None:
    """`pipelined` splits the keys where the heads are few."""
    with pytest.raises(UsageError, match="not 8 times those of one head"):
        profile_ladder.row("pipelined", "validation_512")


def test_the_page_holds_what_a_run_gives() -> None:
    first = PAGE.read_text().split("### ")[1]
    assert profile_ladder.row("wmma", "mission").cells() in first.splitlines()
    for rung in profile_ladder.ORDER:
        assert f"| `{rung}` |" in first
