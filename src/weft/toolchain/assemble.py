"""PTX → cubin by ptxas, where one is installed: registers and stack of kernels that came without machine code."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from weft.core.errors import CompileError, ToolMissing

from .cache import Cache, cache_key
from .cuda_headers import package_file


@functools.cache
def assembler() -> Path:
    """Return ptxas: of the path, or the one that Triton brings. Raises ToolMissing."""
    found = shutil.which("ptxas")
    return Path(found) if found else package_file("triton", "nvidia/bin/ptxas")


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
