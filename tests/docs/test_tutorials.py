"""Tutorials whose consoles are run unmodified. Red to green and the fleet have separate tests."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, run_page
from tests.in_turn import one_in

PAGES = {"ci_without_a_gpu.md": 6, "green_to_fast.md": 9, "triton_on_a_laptop.md": 6}
"""Page → how many commands it shows at least."""

ELSEWHERE = {"evolve_overnight.md", "fleet.md", "red_to_green.md", "own_kernel.md"}
"""They show the output of one day (evolve, fleet), or are tested in test_red_to_green.py and tests/door."""


@pytest.mark.parametrize("page", one_in(3, PAGES))
def test_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    # The pytest of a page must not see that it runs inside a pytest; under CI it would not shorten its summary.
    for name in ("BUILD_NUMBER", "CI", "GITHUB_ACTIONS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    assert run_page(DOCS / "tutorials" / page, tmp_path) >= PAGES[page]


def test_no_tutorial_is_left_out() -> None:
    assert {page.name for page in (DOCS / "tutorials").glob("*.md")} - ELSEWHERE == set(PAGES)
