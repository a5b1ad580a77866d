"""nvcc as a second front end, for users with the CUDA toolkit: it also reads host code, and leaves it out.

nvcc compiles to PTX first and makes the cubin from that PTX, so both are the kernels that Weft runs. nvcc has no name
expressions: each becomes the address of a kernel in a device variable, whose initialiser in the PTX is the name.
"""

import contextlib
import fcntl
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core import knobs
from weft.core.errors import CompileError, ToolMissing

from .cache import cache_key
from .cuda_headers import SHIM_DIR
from .nvrtc import NAME_MAP, Compilation

_ENTRY_VARIABLE = re.compile(r"^(?:\.visible )?\.global \.align 8 \.u64 weft_entry_(\d+) = ([\w$%]+);\n", re.MULTILINE)
_NAME_ERROR = re.compile(rf"^({re.escape(NAME_MAP)}\((\d+)\): error[^:]*: )(.*)$", re.MULTILINE)
_DEVICE_CODE = (
    "-arch=",
    "-lineinfo",
    "-G",
    "--ptxas-options=",
    "-Xptxas",
    "-maxrregcount",
    "--maxrregcount",
    "-rdc=",
    "--relocatable-device-code=",
)
"""Flags that the step from PTX to cubin takes too."""
_NVRTC_ONLY = ("-default-device", "--device-as-default-execution-space")
"""Flags that let NVRTC read host code; nvcc does so without them."""
_WORDS_OF_THE_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables with flags from outside: they would change the result without being part of a cache key."""


@dataclass(frozen=True)
class _Tool:
    program: str
    release: str
    identity: str
    toolkit: Path


def version() -> str:
    """Return the version, such as `nvcc 13.0`."""
    return f"nvcc {_tool().release}"


def fingerprint() -> str:
    """Return the versions of nvcc and of the host compiler whose headers it reads: part of the cache key."""
    return _tool().identity


def include_dirs() -> tuple[Path, ...]:
    """Return the toolkit's headers, which nvcc finds without options."""
    folder = _tool().toolkit
    return (folder / "include", *sorted(folder.glob("targets/*/include")))


@functools.cache
def _tool() -> _Tool:
    program = _find()
    text = _run([program, "--version"], Path.cwd()).stdout
    release = re.search(r"release (\d+\.\d+)", text)
    if not release:
        raise ToolMissing(f"{program} --version does not print a release; put the nvcc of a CUDA toolkit on the PATH")
    host = shutil.which("gcc")
    compiler = _run([host, "--version"], Path.cwd()).stdout.partition("\n")[0] if host else "no gcc"
    planned = _run([program, "--dryrun", "-E", "-x", "cu", os.devnull], Path.cwd()).stderr
    top = re.search(r"^#\$ TOP=(.*)$", planned, re.MULTILINE)
    toolkit = Path(os.path.normpath(top[1])) if top else Path(program).parents[1]
    return _Tool(program, release[1], "\n".join((program, text, compiler)), toolkit)


def _places() -> list[str]:
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [shutil.which("nvcc") or "", *(f"{home}/bin/nvcc" for home in homes), "/usr/local/cuda/bin/nvcc"]


def _find() -> str:
    for place in _places():
        if os.access(place, os.X_OK):
            return place
    raise ToolMissing(
        "no nvcc on the PATH, in $CUDA_HOME/bin or in /usr/local/cuda/bin: install the CUDA toolkit, or omit "
        "--compiler nvcc (the default, NVRTC, is a pip package; with `// weft: option -default-device` it accepts "
        "headers with host code)"
    )


def compile_program(source: str, *, name: str, options: Sequence[str], expressions: Sequence[str] = ()) -> Compilation:
    """Compile as nvrtc.compile_program does: one translation unit; a refusal by the compiler is a value."""
    flags = [option for option in options if option not in _NVRTC_ONLY]
    with _folder(cache_key([fingerprint(), name, source, *flags, *expressions])) as here:
        shutil.copy(SHIM_DIR / "weft.h", here)
        (here / "unit.cu").write_text(f'#line 1 "{name}"\n{source}\n{_uses(expressions)}')
        near = f"-I{Path(name).parent}"  # the folder in which a quoted include of the file is searched
        made = _run([_tool().program, "-ptx", "unit.cu", "-o", "unit.ptx", "-I.", near, *flags], here)
        log = made.stdout + made.stderr
        if made.returncode:
            return Compilation(
                ok=False, log=_named(log, expressions).strip() or f"nvcc exited with status {made.returncode}"
            )
        text = (here / "unit.ptx").read_text()
        names = {int(number): symbol for number, symbol in _ENTRY_VARIABLE.findall(text)}
        if len(names) < len(expressions):
            missing = next(item for number, item in enumerate(expressions) if number not in names)
            raise CompileError(f"nvcc gave no symbol for the entry {missing!r}")
        ptx = _ENTRY_VARIABLE.sub("", text)
        (here / "unit.ptx").write_text(ptx)
        later = [flag for flag in flags if flag.startswith(_DEVICE_CODE)]
        assembled = _run([_tool().program, "-cubin", "unit.ptx", "-o", "unit.cubin", *later], here)
        log = "\n".join(part for part in (log, assembled.stdout, assembled.stderr) if part)
        if assembled.returncode:
            return Compilation(ok=False, log=log)
        lowered = {expression: names[number] for number, expression in enumerate(expressions)}
        return Compilation(ok=True, log=log, ptx=ptx, cubin=(here / "unit.cubin").read_bytes(), lowered=lowered)


@contextlib.contextmanager
def _folder(key: str) -> Iterator[Path]:
    """Yield the same folder for the same input, to one process at a time: nvcc hashes the path into internal names."""
    place = knobs.cache_dir() / "nvcc" / key
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("w")
    except OSError:
        with tempfile.TemporaryDirectory(prefix="weft-nvcc-") as folder:
            yield Path(folder)
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield place
        finally:
            for file in place.iterdir():
                if file.name != "lock":
                    file.unlink()


def _uses(expressions: Sequence[str]) -> str:
    """Return one line for each expression, so that a message's line is the number of its expression."""
    lines = [
        f'extern "C" __device__ const void* const weft_entry_{number} = (const void*)(&{expression});'
        for number, expression in enumerate(expressions)
    ]
    return "\n".join((f'#line 1 "{NAME_MAP}"', *lines, ""))


def _named(log: str, expressions: Sequence[str]) -> str:
    """Return the log with the entry named in messages about it, as NVRTC does."""
    return _NAME_ERROR.sub(lambda match: f"{match[1]}{match[3]} (in {expressions[int(match[2]) - 1]})", log)


def _run(command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name not in _WORDS_OF_THE_ENVIRONMENT}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ToolMissing(f"cannot run {command[0]}: {error}") from error
