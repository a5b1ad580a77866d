"""The nvcc programs of the tests, compiled once: by the nvcc on PATH, else by the one of the PyPI packages."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

PROGRAMS = Path("tests/driver/programs")
OPTIONS = ["-std=c++17", "-lineinfo", "--cudart", "shared", "-gencode", "arch=compute_80,code=compute_80"]
"""PTX of one target: no machine code is made, which halves the time."""


def find_nvcc() -> str | None:
    """Return the path of nvcc, or None. It needs a host compiler, too."""
    spec = find_spec("nvidia")
    packages = [Path(folder) / "cu13" / "bin" for folder in (spec.submodule_search_locations or [])] if spec else []
    found = shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(map(str, packages)))
    return found if found and shutil.which("g++") else None


def library_options(nvcc: str) -> list[str]:
    """Return where the shared runtime is: the PyPI package has no file without a version, which -lcudart looks for."""
    folder = Path(nvcc).resolve().parent.parent / "lib"
    if (folder / "libcudart.so").exists() or not (folder / "libcudart.so.13").exists():
        return []
    links = Path(tempfile.mkdtemp(prefix="weft-nvcc-"))
    (links / "libcudart.so").symlink_to(folder / "libcudart.so.13")
    return [f"-L{links}", f"-L{folder}"]


def compile_programs(nvcc: str, folder: Path, names: list[str], options: list[str] = OPTIONS) -> dict[str, Path]:
    """Compile the programs that `folder` does not have yet; return name → executable."""
    libraries = library_options(nvcc)

    def build(name: str) -> Path:
        sources = [PROGRAMS / "check.cuh", PROGRAMS / f"{name}.cu", *PROGRAMS.glob(f"{name}_other.cu")]
        parts = [nvcc, *options, *(path.read_text() for path in sources)]
        target = folder / f"{name}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
        if not target.exists():
            made = target.with_suffix(f".{os.getpid()}")
            extra = ["-rdc=true"] if len(sources) > 2 else []
            command = [nvcc, *options, *libraries, *extra, "-o", str(made), *map(str, sources[1:])]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            made.replace(target)
        return target

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(build, names), strict=True))
