"""requirements-dev.txt has the `dev` extra and the extras that tests need, with torch and triton pinned."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def extras(*names: str) -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = [Requirement(row) for name in names for row in project["optional-dependencies"][name]]
    return {row.name: row for row in rows}


def developer_requirements() -> dict[str, Requirement]:
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    rows = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {row.name: row for row in rows}


def test_same_tools_and_ranges() -> None:
    tools = {name: row for name, row in developer_requirements().items() if name not in ("torch", "triton")}
    assert tools == extras("cuda", "dev", "docs", "figures", "fleet", "llm", "mcp", "postgres", "sass")


def test_torch_and_triton_are_pinned_within_what_weft_accepts() -> None:
    for name, accepted in extras("torch", "triton").items():
        (pin,) = developer_requirements()[name].specifier
        assert pin.operator == "=="
        assert accepted.specifier.contains(pin.version)
