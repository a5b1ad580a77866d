"""docs/howto/evolve.md: its commands run on a store of their own, shown output compared."""

from pathlib import Path

from tests.docs.test_ten_minutes import agrees, blocks, carry_out, session

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "evolve.md"


def test_the_page(tmp_path: Path) -> None:
    ran = 0
    for block in blocks(PAGE.read_text()):
        if block.kind != "console":
            continue
        commands = session(block.body)
        outputs = carry_out([command for command, _ in commands], tmp_path)
        for (command, shown), printed in zip(commands, outputs, strict=True):
            where = f"{PAGE.name}:{block.line}: $ {command}"
            assert agrees(shown, printed), "\n".join([where, "shown:", *shown, "printed:", *printed])
            ran += 1
    assert ran == 3
