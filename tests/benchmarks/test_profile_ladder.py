"""The ladder's table: one head times the heads is the complete launch, and the page has the result of a run."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import profile_ladder
from weft.core.errors import UsageError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "ladder_profile.md"


@pytest.mark.parametrize("rung", ["wmma", pytest.param("fp8_mma", marks=pytest.mark.sweep)])
def test_heads_times_one_head_is_the_whole(rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wavefronts, instructions and bounds are exactly those of a run of all four heads."""
    scaled = profile_ladder.row(rung, "validation_128")
    monkeypatch.setattr(profile_ladder, "WHOLE", ("validation_128",))
    whole = profile_ladder.row(rung, "validation_128")
    assert scaled.est == pytest.approx(whole.est) and scaled.est_at == pytest.approx(whole.est_at)
    same = replace(scaled, est=whole.est, est_at=whole.est_at, last_est=whole.last_est)
    assert same == whole and whole.lb_warm > 0


def test_a_grid_that_depends_on_the_number_of_heads_is_refused() -> None:
    """`pipelined` splits the keys if there are few heads."""
    with pytest.raises(UsageError, match="not 8 times those of one head"):
        profile_ladder.row("pipelined", "validation_512")


@pytest.mark.parametrize(
    ("rung", "triton"),
    [("pipelined", "fa_triton"), pytest.param("fp8_pipelined", "fp8_triton", marks=pytest.mark.sweep)],
)
def test_the_best_cuda_rungs_are_no_slower_than_the_triton_rungs(rung: str, triton: str) -> None:
    """They are no slower by the estimate at both weights of an issue slot, and have no bank conflicts."""
    ours, theirs = profile_ladder.row(rung, "mission"), profile_ladder.row(triton, "mission")
    assert all(mine <= other for mine, other in zip(ours.est_at, theirs.est_at, strict=True))
    assert ours.excess == 0


def test_the_page_holds_what_a_run_gives() -> None:
    row = profile_ladder.row("wmma", "mission")
    summary, first = between(PAGE, profile_ladder.SUMMARY), between(PAGE, profile_ladder.TABLES).split("### ")[1]
    assert row.cells() in first.splitlines() and row.short() in summary
    for rung in profile_ladder.ORDER:
        assert f"| `{rung}` |" in first and f"| `{rung}` |" in summary


def test_both_tables_are_written_between_their_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    for name in (profile_ladder.SUMMARY, profile_ladder.TABLES):
        profile_ladder.put(page, name, f"new {name}")
        assert between(page, name) == f"\nnew {name}\n"
    assert page.read_text().splitlines()[0] == PAGE.read_text().splitlines()[0]


def between(page: Path, name: str) -> str:
    return page.read_text().split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]
