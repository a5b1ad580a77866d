"""`weft exec` for the tests: the stand-in driver is built if the package has none, or an older one."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import weft.driver
from weft.cli.main import main
from weft.core.errors import ToolMissing
from weft.driver.program import LIBRARY, library_folder

Exec = Callable[..., "Done"]

SOURCES = Path(weft.driver.__file__).parent


@pytest.fixture(scope="session")
def driver_library() -> Path:
    """The folder of the library that `weft exec` uses."""
    try:
        built = (library_folder() / LIBRARY).stat().st_mtime
    except ToolMissing:
        built = 0.0
    in_repository = Path("src/weft/driver").resolve() == SOURCES.resolve()
    if in_repository and built < max(file.stat().st_mtime for file in SOURCES.glob("*/*.[ch]")):
        if shutil.which("cc") is None:
            pytest.skip("no C compiler to build the stand-in driver")
        subprocess.run(["scripts/build_driver"], check=True, capture_output=True)
    return library_folder()


@dataclass(frozen=True)
class Done:
    """What `weft exec` and its program returned and printed."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def weft_exec(driver_library: Path, capfd: pytest.CaptureFixture[str]) -> Exec:
    """Run `weft exec` with these arguments in this process; `python` stands for this interpreter."""

    def run(*arguments: str) -> Done:
        code = main(["exec", *(sys.executable if word == "python" else word for word in arguments)])
        return Done(code, *capfd.readouterr())

    return run
