"""The pages about findings, docs/findings, in a wheel and in a checkout."""

from pathlib import Path

from .errors import ToolMissing

_PACKAGE = Path(__file__).parents[1]
PAGE_FOLDERS = (_PACKAGE / "docs" / "findings", _PACKAGE.parents[1] / "docs" / "findings")


def page(code: str) -> str:
    """Return the text of docs/findings/<code>.md."""
    for folder in PAGE_FOLDERS:
        file = folder / f"{code}.md"
        if file.is_file():
            return file.read_text()
    raise ToolMissing(f"{code}.md is not part of this installation; install Weft again")
