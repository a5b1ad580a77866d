"""The name `weft` on PyPI belongs to another project: nobody is told to install it from there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STRANGER = re.compile(r"pip install\s+(?:-\S+\s+)*['\"]?weft(?![-\w.]*\.whl)\b")


def test_nobody_is_sent_to_a_stranger() -> None:
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
    assert len(files) > 300
    assert [str(file) for file in files if STRANGER.search(file.read_text())] == []
    assert STRANGER.search("pip install 'weft[cuda]'")
    assert not STRANGER.search("pip install weft-0.1.0-py3-none-any.whl")
