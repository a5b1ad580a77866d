"""`scripts/import_circles` finds an import cycle in every form, and reports nothing if there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "import_circles"


def run_on(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    package = folder / "made_up"
    for name, text in files.items():
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return subprocess.run([sys.executable, SCRIPT, package], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "back",
    [
        "from .a import A\n",
        "from . import a\n",
        "import made_up.a\n",
        "from made_up import a\n",
        "def late():\n    from made_up.a import A\n    return A\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import A\n",
    ],
    ids=["name", "module", "dotted", "package", "in a function", "for the type checker"],
)
def test_a_circle_is_found(tmp_path: Path, back: str) -> None:
    done = run_on(tmp_path, {"__init__.py": "", "a.py": "from .b import B\nA = 1\n", "b.py": back + "B = 1\n"})
    assert done.returncode == 1
    assert "made_up.a imports made_up.b" in done.stdout
    assert "made_up.b imports made_up.a" in done.stdout


def test_a_circle_through_packages_is_found_and_others_are_not_part_of_it(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "top.py": "from .low.one import ONE\n",
        "low/__init__.py": "",
        "low/one.py": "from ..high.two import TWO\nONE = 1\n",
        "high/__init__.py": "",
        "high/two.py": "from made_up.high import three\nTWO = 2\n",
        "high/three.py": "def late():\n    from ..low import one\n    return one\n",
    }
    done = run_on(tmp_path, files)
    assert done.returncode == 1
    assert "import circle of 3 modules" in done.stdout
    assert "made_up.top imports" not in done.stdout
    assert done.stdout.endswith("7 modules, 1 import circles\n")


def test_a_diamond_is_no_circle(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "a.py": "from .b import B\nfrom .c import C\n",
        "b.py": "from .d import D\nB = 1\n",
        "c.py": "from .d import D\nC = 1\n",
        "d.py": "import json\nD = 1\n",
    }
    done = run_on(tmp_path, files)
    assert (done.returncode, done.stdout) == (0, "5 modules, 0 import circles\n")
