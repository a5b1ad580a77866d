"""docs/ten_minutes.md, done as a reader would; and how shown and printed output are compared."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, agrees, blocks, run_page

PAGE = DOCS / "ten_minutes.md"


def test_the_page(tmp_path: Path) -> None:
    assert run_page(PAGE, tmp_path) >= 12, "the page shows fewer commands than it is meant to"


def test_every_block_is_run_or_written_but_the_installation() -> None:
    loose = [b for b in blocks(PAGE.read_text()) if b.kind != "console" and b.file is None]
    assert [block.kind for block in loose] == ["sh"] and "pip install" in loose[0].body


def test_the_page_never_installs_the_other_project() -> None:
    """`weft` on PyPI belongs to somebody else."""
    assert not re.search(r"pip install\s+weft(?![-\w.]*\.whl)", PAGE.read_text())


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a … c"], ["a b c"], True),
        (["a … c"], ["a b d"], False),
        (["a  b"], ["a\tb"], True),
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
        ([], [], True),
    ],
)
def test_comparison(shown: list[str], printed: list[str], same: bool) -> None:
    assert agrees(shown, printed) is same
