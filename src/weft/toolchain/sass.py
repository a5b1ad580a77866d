"""cubin → SASS text, by NVIDIA's disassembler if it is installed (extra `sass`)."""

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError, WeftError
from weft.core.records import Binary

from .cuda_headers import package_file

OPTIONS = ("-c", "-g", "-gp")
"""All options of the disassembler that Weft uses: no header, source lines, lines of the PTX."""
Disassembler = Callable[[bytes, Sequence[str]], str]
"""A function from code and options to text."""


def disassemble(binary: Binary, *, line_info: bool = False, ptx_lines: bool = False) -> str:
    """Return the SASS of every function of a Binary; `line_info` adds source lines, `ptx_lines` those of the PTX."""
    if not binary.cubin:
        raise UsageError(f"{binary.source_name} has no cubin to disassemble")
    options = ["-c", *(["-g"] if line_info else []), *(["-gp"] if ptx_lines else [])]
    try:
        return _used[-1](binary.cubin, options)
    except ToolMissing:
        raise
    except WeftError as error:
        raise WeftError(f"nvdisasm failed on {binary.source_name}: {error}") from error


def use_disassembler(run: Disassembler) -> None:
    """Use `run` from now on: a process that must not start another one has this done elsewhere."""
    _used.append(run)


def disassembler() -> Path:
    """The program. Raises ToolMissing."""
    return package_file("nvidia-cuda-nvdisasm", "bin/nvdisasm", install=install_command("sass"))


def _run(cubin: bytes, options: Sequence[str]) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(disassembler()), *options, file.name]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if result.returncode != 0:
        raise WeftError(result.stderr.strip())
    return result.stdout


_used: list[Disassembler] = [_run]
