"""docs/howto/import_torch_extension.md and ptx_files.md: files written, commands run, shown output compared."""

from pathlib import Path

import pytest

from tests.docs.test_ten_minutes import agrees, blocks, carry_out, session

FOLDER = Path(__file__).parents[2] / "docs" / "howto"


@pytest.mark.parametrize(("page", "least"), [("import_torch_extension.md", 7), ("ptx_files.md", 5)])
def test_the_page(page: str, least: int, tmp_path: Path) -> None:
    ran = 0
    for block in blocks((FOLDER / page).read_text()):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.body)
        if block.kind != "console":
            continue
        commands = session(block.body)
        outputs = carry_out([command for command, _ in commands], tmp_path)
        for (command, shown), printed in zip(commands, outputs, strict=True):
            where = f"{page}:{block.line}: $ {command}"
            assert agrees(shown, printed), "\n".join([where, "shown:", *shown, "printed:", *printed])
            ran += 1
    assert ran >= least
