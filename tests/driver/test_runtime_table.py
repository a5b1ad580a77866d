"""The names that our CUDA runtime exports, compared with NVIDIA's header and library as pip installs them."""

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import nvidia
import pytest

from weft.driver.program import RUNTIMES

RUNTIME = Path(str(files("weft.driver"))) / "runtime"


def installed(pattern: str) -> Path:
    """Return a file of the package nvidia-cuda-runtime."""
    found = [path for folder in nvidia.__path__ for path in Path(folder).glob(pattern)]
    assert found, f"no {pattern} is installed"
    return found[0]


def missing() -> list[str]:
    return re.findall(r"^MISSING(?:_PTSZ|_PTDS)?\((\w+)\)", (RUNTIME / "missing.h").read_text(), re.MULTILINE)


def exported(library: Path) -> dict[str, str]:
    """Return name → version of every function that a library exports."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    shown = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True)
    rows = re.findall(r"^[0-9a-f]+ [TW] (\w+)@@(\S+)$", shown.stdout, re.MULTILINE)
    return dict(rows)


def test_every_name_of_the_header_and_of_the_library_is_exported(driver_library: Path) -> None:
    header = re.sub(r"/\*.*?\*/", "", installed("*/include/cuda_runtime_api.h").read_text(), flags=re.DOTALL)
    declared = set(re.findall(r"extern\s+__host__[^;{}()]*?\b(cuda[A-Z]\w*)\s*\(", header))
    assert len(declared) > 250
    ours = set(exported(driver_library / "libcudart.so.13"))
    assert declared - ours == set()
    assert set(exported(installed("*/lib/libcudart.so.13"))) - ours == set()


@pytest.mark.parametrize("name", RUNTIMES)
def test_names_have_the_version_that_programs_ask_for(driver_library: Path, name: str) -> None:
    assert set(exported(driver_library / name).values()) == {name}


def test_no_name_is_refused_and_implemented() -> None:
    sources = "".join(path.read_text() for path in RUNTIME.glob("*.c"))
    implemented = set(re.findall(r"^EXPORT [\w ]+?[ *](\w+)\(", sources, re.MULTILINE))
    assert len(implemented) > 150
    assert not implemented & set(missing()) and len(missing()) == len(set(missing()))
