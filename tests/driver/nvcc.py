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
OPTIONS = ["-std=c++17", "-lineinfo", "-gencode", "arch=compute_80,code=compute_80"]
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


def compile_programs(nvcc: str, folder: Path, names: list[str], runtime: str) -> dict[str, Path]:
    """Compile the programs that `folder` does not have yet, for either runtime; return name → executable."""
    libraries = library_options(nvcc)

    def run(target: Path, *arguments: str) -> None:
        made = target.with_suffix(f".{os.getpid()}{target.suffix}")
        done = subprocess.run([nvcc, *OPTIONS, *arguments, "-o", str(made)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        made.replace(target)

    def build(name: str) -> Path:
        sources = [PROGRAMS / f"{name}.cu", *PROGRAMS.glob(f"{name}_other.cu")]
        parts = [nvcc, *OPTIONS, *(path.read_text() for path in [PROGRAMS / "check.cuh", *sources])]
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        separate = ["-rdc=true"] if len(sources) > 1 else []
        objects = [folder / f"{source.stem}-{digest}.o" for source in sources]
        for source, made in zip(sources, objects, strict=True):
            if not made.exists():
                run(made, *separate, "-c", str(source))
        target = folder / f"{name}-{digest}-{runtime}"
        if not target.exists():
            run(target, *libraries, *separate, "--cudart", runtime, *map(str, objects))
        return target

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(build, names), strict=True))
