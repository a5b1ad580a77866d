"""The public names of `weft`: `__all__`, the lazy table and the types that a checker sees are one list."""

import ast
import inspect
from importlib.metadata import version

import pytest

import weft


def names_for_the_type_checker() -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(inspect.getsource(weft)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                found |= {name.name: f"{statement.module}:{name.name}" for name in statement.names}
    return found


def test_the_lists_agree() -> None:
    assert set(weft.__all__) == set(weft._LAZY)
    assert names_for_the_type_checker() == weft._LAZY


@pytest.mark.parametrize("name", weft.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(weft, name) is not None
    assert name in dir(weft)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'virtual_gpu'"):
        _ = weft.virtual_gpu


def test_the_version_is_the_installed_one() -> None:
    assert weft.__version__ == version("weft-gpu")
