"""docs/howto/journal.md: its commands run on a journal of their own, shown output compared."""

from pathlib import Path

import pytest

from tests.docs.test_ten_minutes import agrees, blocks, carry_out, session

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "journal.md"


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "weft.db"))
    ran = 0
    for block in blocks(PAGE.read_text()):
        assert block.kind == "console"
        commands = session(block.body)
        outputs = carry_out([command for command, _ in commands], tmp_path)
        for (command, shown), printed in zip(commands, outputs, strict=True):
            where = f"{PAGE.name}:{block.line}: $ {command}"
            assert agrees(shown, printed), "\n".join([where, "shown:", *shown, "printed:", *printed])
            ran += 1
    assert ran >= 15
