"""PTX → cubin by ptxas, where one is installed: registers and stack of kernels that came without machine code."""

import contextlib
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from weft.core.distribution import install_command
from weft.core.errors import CompileError, ToolMissing

from .cache import Cache, cache_key
from .cuda_headers import package_file

PACKAGES = (
    ("nvidia-cuda-nvcc", "bin/ptxas"),
    ("triton", "nvidia/bin/ptxas-blackwell"),
    ("triton", "nvidia/bin/ptxas"),
)
_RELEASE = re.compile(r"\bV(\d+)\.(\d+)\.(\d+)")


@functools.cache
def assembler() -> Path:
    """Return the newest ptxas, of the path or of a package: an older one refuses PTX of a newer compiler.

    Raises ToolMissing.
    """
    found = [Path(path)] if (path := shutil.which("ptxas")) else []
    for package, file in PACKAGES:
        with contextlib.suppress(ToolMissing):
            found.append(package_file(package, file))
    if not found:
        raise ToolMissing(f"there is no ptxas: put one on the path, or install Triton's: {install_command('triton')}")
    return max(found, key=_release)


def _release(program: Path) -> tuple[int, ...]:
    """Return the version that a ptxas prints; () if it does not run."""
    try:
        printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = _RELEASE.search(printed)
    return tuple(map(int, found.groups())) if found else ()


def assemble(ptx: str, target: str) -> bytes:
    """Return the cubin of a PTX text for a target such as sm_89; cached. Raises ToolMissing or CompileError."""
    program = assembler()
    cache, key = Cache("ptxas"), cache_key([str(program), str(program.stat().st_mtime_ns), target, ptx])
    stored = cache.get(key)
    if stored is not None:
        return stored
    with tempfile.TemporaryDirectory(prefix="weft-ptxas-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [str(program), f"-arch={target}", "-lineinfo", "-o", str(result), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolMissing(f"{program} does not run: {error}") from error
        if done.returncode != 0:
            raise CompileError(f"ptxas: {done.stderr.strip()[:500]}")
        cubin = result.read_bytes()
    cache.put(key, cubin)
    return cubin
