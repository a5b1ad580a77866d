"""The packages Weft works with: which versions are here, what each gives, and the line that adds a missing one.

Nothing is imported: a version is in the name of its package's `.dist-info` folder. importlib.metadata would parse
the entire metadata of each, which takes a fifth of the time that `weft doctor` takes.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from weft.core.distribution import DISTRIBUTION, install_command

REQUIRED = {
    "numpy": "arrays",
    "ml_dtypes": "bf16 and FP8 in NumPy",
    "llvmlite": "the virtual GPU: PTX becomes code of this CPU",
    "cuda-bindings": "Python's way to NVRTC",
    "nvidia-cuda-nvrtc": "CUDA C++ to PTX and, by the ptxas in it, to SASS",
    "nvidia-cuda-runtime": "CUDA's headers",
    "nvidia-cuda-crt": "CUDA's headers",
    "nvidia-cuda-cccl": "CUDA's headers: cuda::pipeline, CUB",
    "typer": "the command line",
    "rich": "tables and bars",
    "sqlalchemy": "the store of searches and the journal",
    "lz4": "weft exec: compressed code inside programs",
    "zstandard": "weft exec: compressed code inside programs",
}
"""Distribution → what it gives. The version ranges are in Weft's own metadata."""
OPTIONAL = {
    "triton": ("triton", "Triton kernels: weft run kernel.py, weft triton, pytest --weft"),
    "torch": ("torch", "torch tensors, weft.torch, Triton scripts; the baseline of weft bench"),
    "nvidia-cuda-nvdisasm": ("sass", "weft profile, weft evolve, weft show --as sass"),
    "nvidia-cuda-cuobjdump": ("sass", "weft show --as sass of a whole binary"),
    "cuda-core": ("cuda", "a real GPU: weft bench, weft validate-gpu"),
    "matplotlib": ("figures", "pictures: --png of diagnose and profile"),
    "openai": ("llm", "weft evolve --proposer llm"),
    "mcp": ("mcp", "weft mcp, for coding agents"),
    "ray": ("fleet", "a fleet on a Ray cluster"),
    "psycopg": ("postgres", "a store on PostgreSQL, for a fleet"),
}
"""Distribution → the extra that installs it, and what it gives."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Package:
    """One package, here or not."""

    name: str
    version: str | None
    gives: str
    required: bool
    install: str
    """The line that adds it."""

    @property
    def missing(self) -> bool:
        return self.version is None


def packages() -> tuple[Package, ...]:
    """Returns every package that Weft uses, the required ones first."""
    here = _folders()
    asked = _requirements(here.get(DISTRIBUTION))
    rows = [(name, gives, True, f"pip install '{asked.get(_plain(name), name)}'") for name, gives in REQUIRED.items()]
    rows += [(name, gives, False, install_command(extra)) for name, (extra, gives) in OPTIONAL.items()]
    return tuple(
        Package(name, _version(here.get(_plain(name))), gives, required, install)
        for name, gives, required, install in rows
    )


def _folders() -> dict[str, Path]:
    """Package → its `.dist-info`, as the first folder of the path has it."""
    found: dict[str, Path] = {}
    for folder in filter(os.path.isdir, sys.path):
        for entry in os.scandir(folder):
            if entry.name.endswith(".dist-info"):
                found.setdefault(_plain(entry.name.partition("-")[0]), Path(entry.path))
    return found


def _version(folder: Path | None) -> str | None:
    return folder.name.removesuffix(".dist-info").partition("-")[2] if folder is not None else None


def _requirements(weft: Path | None) -> dict[str, str]:
    """Name → the requirement as Weft's metadata declares it; empty where Weft is not installed by pip."""
    if weft is None:
        return {}
    found: dict[str, str] = {}
    for line in (weft / "METADATA").read_text().partition("\n\n")[0].splitlines():
        field, _, value = line.partition(": ")
        requirement = value.partition(";")[0].strip()
        name = _NAME.match(requirement)
        if field == "Requires-Dist" and name is not None:
            found.setdefault(_plain(name[0]), requirement)
    return found


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
