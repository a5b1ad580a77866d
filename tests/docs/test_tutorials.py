"""Tutorials whose consoles are run as they stand. Red to green and the fleet have tests of their own."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, run_page
from tests.in_turn import one_in

PAGES = {"ci_without_a_gpu.md": 6, "green_to_fast.md": 9, "triton_on_a_laptop.md": 6}
"""Page → how many commands it shows at least."""

ELSEWHERE = {"evolve_overnight.md", "fleet.md", "red_to_green.md", "own_kernel.md"}
"""Shown as run on a day (evolve, fleet), or tested in test_red_to_green.py and tests/door."""


@pytest.mark.parametrize("page", one_in(3, PAGES))
def test_the_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    # A page's own pytest is nobody's child; under CI it would fold no line of its summary.
    for name in ("BUILD_NUMBER", "CI", "GITHUB_ACTIONS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    assert run_page(DOCS / "tutorials" / page, tmp_path) >= PAGES[page]


def test_no_tutorial_is_left_out() -> None:
    assert {page.name for page in (DOCS / "tutorials").glob("*.md")} - ELSEWHERE == set(PAGES)
