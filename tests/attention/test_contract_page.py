"""The reference page lists the shapes that the code has."""

import re
from pathlib import Path

from weft.attention.shapes import SHAPES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "attention_contract.md"


def test_the_table_of_shapes_matches_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \|((?: \d+ \|){6})$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: tuple(int(size) for size in re.findall(r"\d+", sizes)) for name, sizes in rows}
    assert listed == {row.name: (row.b, row.hq, row.hkv, row.sq, row.skv, row.d) for row in SHAPES.values()}
