"""cubin → SASS text, by NVIDIA's disassembler when it is installed (extra `sass`)."""

import subprocess
import tempfile
from pathlib import Path

from weft.core.errors import ToolMissing, UsageError, WeftError
from weft.core.records import Binary

from .cuda_headers import package_file


def disassemble(binary: Binary, *, line_info: bool = False, ptx_lines: bool = False) -> str:
    """The SASS of every function of a Binary; `line_info` adds the source lines, `ptx_lines` those of the PTX."""
    if not binary.cubin:
        raise UsageError(f"{binary.source_name} has no cubin to disassemble")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.cubin)
        file.flush()
        lines = [*(["-g"] if line_info else []), *(["-gp"] if ptx_lines else [])]
        command = [str(_nvdisasm()), "-c", *lines, file.name]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if result.returncode != 0:
        raise WeftError(f"nvdisasm failed on {binary.source_name}: {result.stderr.strip()}")
    return result.stdout


def _nvdisasm() -> Path:
    try:
        return package_file("nvidia-cuda-nvdisasm", "bin/nvdisasm")
    except ToolMissing as error:
        raise ToolMissing(f"SASS needs nvdisasm ({error})") from error
