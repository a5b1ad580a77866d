"""The source distribution contains everything that its tests import and read."""

import ast
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[2]
OURS = ("benchmarks", "examples", "scripts", "tasks", "tests")
"""Folders whose modules tests import as `folder.module`."""
_IMPORTS = re.compile(rf"^ *(?:from|import) (?:{'|'.join(OURS)})\b", re.MULTILINE)
ALWAYS = frozenset({"pyproject.toml", ".gitignore"})
"""Packed by hatchling whatever its configuration is."""


@cache
def packed() -> frozenset[str]:
    """Returns the paths in the source distribution, as hatchling would pack them."""
    builder = SdistBuilder(str(ROOT))
    with builder.config.set_build_data({"artifacts": [], "force_include": {}}):
        return ALWAYS | {file.distribution_path for file in builder.recurse_included_files()}


def imported() -> dict[str, set[str]]:
    """Returns the files of this repository that tests import, each with the tests that do."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _IMPORTS.search(text) else ():
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                file = ROOT.joinpath(*name.split(".")).with_suffix(".py")
                if name.partition(".")[0] in OURS and file.is_file():
                    found.setdefault(file.relative_to(ROOT).as_posix(), set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_every_file_that_tests_import_is_packed() -> None:
    needed = imported()
    assert len(needed) > 50 and any(path.startswith("benchmarks/") for path in needed)
    missing = {path: sorted(users)[0] for path, users in needed.items() if path not in packed()}
    assert missing == {}


def test_every_file_of_the_repository_is_packed_and_no_other() -> None:
    """What tests read by its path (pages, scripts, measurements, the files of CI) is among them."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no git repository: it may be the source distribution itself")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    assert {"mkdocs.yml", "scripts/check", ".ci/run", "docs/index.md"} <= tracked
    assert tracked - packed() == set()
    untracked = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert packed() - tracked - set(untracked.stdout.split("\0")) == set()
