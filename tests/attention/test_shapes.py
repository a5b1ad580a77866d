"""The table of shapes."""

import pytest

from weft.attention.errors import ContractError
from weft.attention.shapes import SHAPES, Shape, shape


def sizes(name: str) -> tuple[int, int, int, int]:
    row = SHAPES[name]
    assert (row.hq, row.sq) == (row.hkv, row.skv)
    return row.q


def test_the_sizes_of_the_design() -> None:
    assert sizes("mission") == (1, 8, 512, 64)
    assert sizes("small") == (1, 1, 32, 64)
    assert sizes("long") == (1, 8, 2048, 64)
    validation = [sizes(name) for name in SHAPES if name.startswith("validation")]
    assert validation == [(1, 4, 128, 64), (1, 8, 512, 64), (2, 8, 2048, 64), (2, 8, 2048, 128)]
    assert sizes("split_4") == (1, 1, 4, 4)
    assert [sizes(f"split_{s}") for s in (64, 65, 128, 192, 256, 512)] == [
        (1, 1, s, 64) for s in (64, 65, 128, 192, 256, 512)
    ]


def test_the_odd_ones_are_there() -> None:
    rows = SHAPES.values()
    assert {row.d for row in rows} >= {32, 64, 80, 96, 128}
    assert {row.group for row in rows} == {1, 2, 3, 4, 5, 8}
    assert any(row.sq == row.skv == 1 for row in rows)
    assert any(row.sq < row.skv for row in rows) and any(row.sq > row.skv for row in rows)
    assert any(row.sq % 16 and row.skv % 16 for row in rows)


def test_names_are_those_of_the_rows() -> None:
    assert all(name == row.name for name, row in SHAPES.items())
    assert shape("mission") is SHAPES["mission"]


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ContractError, match="no multiple"):
        Shape("odd_group", 1, 6, 4, 8, 8, 8)
    with pytest.raises(ContractError, match="at least 1"):
        Shape("empty", 1, 1, 1, 0, 8, 8)
    with pytest.raises(ContractError, match="unknown shape 'misson'"):
        shape("misson")
