"""The picture of docs/howto/pytest.md shows what the example project prints today."""

import html
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS

ROOT = DOCS.parent
PROJECT = ROOT / "examples/pytest_project"


def shown(picture: Path) -> str:
    """The picture's text; how long it took, and the rule that fills the rest of that line, are not compared."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())
    text = html.unescape("".join(texts)).replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"=+", "=", re.sub(r"in \d+\.\d+s", "in a while", text))


def test_the_picture(tmp_path: Path) -> None:
    today = tmp_path / "today.svg"
    subprocess.run([sys.executable, ROOT / "scripts/pytest_picture", today], check=True)
    text = shown(DOCS / "howto/pytest.svg")
    assert text == shown(today)

    # What it is there to show: the line without a mask, by name, from a test that only has to be run.
    lines = (PROJECT / "kernel.py").read_text().splitlines()
    (store,) = [number for number, line in enumerate(lines, 1) if "tl.store(" in line]
    assert "mask" not in lines[store - 1] and lines[store - 1].strip() in text
    for words in ("$ pytest --weft", "M101 out-of-bounds", f"kernel.py:{store}", "1 failed, 1 passed"):
        assert words in text, words


def test_the_page_has_it() -> None:
    page = (DOCS / "howto/pytest.md").read_text()
    assert "(pytest.svg)" in page and "(../../examples/pytest_project)" in page
