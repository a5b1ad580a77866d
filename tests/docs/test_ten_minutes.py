"""docs/ten_minutes.md, followed as a reader would; and how shown and printed output are compared."""

import re
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, agrees, blocks, run_page

PAGE = DOCS / "ten_minutes.md"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new environment with Weft from a wheel file, as on the page; it uses this environment's other packages.

    .ci/run tests that all packages can be downloaded: it installs the wheel into an empty environment.
    """
    folder = tmp_path_factory.mktemp("fresh")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), "."]
    subprocess.run(command, cwd=DOCS.parent, check=True, stdout=subprocess.DEVNULL)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    for lent in Path(sysconfig.get_path("purelib")).iterdir():
        if "weft" not in lent.name:
            (packages / lent.name).symlink_to(lent)
    (wheel,) = (folder / "dist").glob("weft_gpu-*.whl")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    found = subprocess.run(
        [python, "-c", "import weft; print(weft.__file__)"], cwd=folder, capture_output=True, text=True
    )
    assert found.stdout.startswith(str(packages)), "the code of the wheel runs"
    return python.parent


def test_the_page(fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    start = time.monotonic()
    assert run_page(PAGE, tmp_path, fresh) >= 18, "the page shows fewer commands than expected"
    assert time.monotonic() - start < 600, "the page takes longer than ten minutes"
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_page_has_every_verb_of_the_workflow() -> None:
    shown = re.findall(r"^\$ weft (\w+)", PAGE.read_text(), re.MULTILINE)
    assert {"demo", "run", "show", "check", "diagnose", "profile", "report"} <= set(shown)


def test_every_block_is_run_or_written_but_the_installation() -> None:
    loose = [b for b in blocks(PAGE.read_text()) if b.kind != "console" and b.file is None]
    assert [block.kind for block in loose] == ["sh"] and "pip install" in loose[0].body


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a … c"], ["a b c"], True),
        (["a … c"], ["a b d"], False),
        (["a  b"], ["a\tb"], True),
        (["a", "…", "z"], ["a", "b", "c", "z"], True),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
        ([], [], True),
    ],
)
def test_comparison(shown: list[str], printed: list[str], same: bool) -> None:
    assert agrees(shown, printed) is same
