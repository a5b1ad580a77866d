"""NVRTC through cuda-bindings: takes source text and options, returns log, PTX and cubin. No driver is needed."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.core.errors import CompileError, ToolMissing

NAME_MAP = "__nv_name_map"
"""The file name in NVRTC's errors about name expressions."""


@dataclass(frozen=True)
class Compilation:
    """The result of a run of the compiler."""

    ok: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    lowered: dict[str, str] = field(default_factory=dict)
    """Name expression → mangled name."""


@functools.cache
def _library() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise ToolMissing(f"no NVRTC ({error}): pip install cuda-bindings nvidia-cuda-nvrtc") from error
    return nvrtc


@functools.cache
def version() -> str:
    """Return the version, such as `nvrtc 13.4`."""
    _, major, minor = _library().nvrtcVersion()
    return f"nvrtc {major}.{minor}"


def compile_program(source: str, *, name: str, options: Sequence[str], expressions: Sequence[str] = ()) -> Compilation:
    """Compile one translation unit. A refusal by the compiler is a value; any other failure raises: ToolMissing where a
    part of NVRTC is not installed, otherwise CompileError.
    """
    nvrtc = _library()

    def checked(outcome: tuple[Any, ...], doing: str) -> Any:
        if outcome[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC failed to {doing}: {outcome[0].name}")
        return outcome[1] if len(outcome) > 1 else None

    def read(size_of: Any, copy: Any, doing: str) -> bytes:
        buffer = bytearray(checked(size_of(program), doing))  # written in place: must not be an immutable bytes
        checked(copy(program, buffer), doing)
        return bytes(buffer)

    program = checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []), "start")
    try:
        for expression in expressions:
            checked(nvrtc.nvrtcAddNameExpression(program, expression.encode()), f"accept the entry {expression!r}")
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, "return the log")
        text = log.rstrip(b"\0 \n").decode(errors="replace")
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_BUILTIN_OPERATION_FAILURE:  # its second library, not the source
            raise ToolMissing(f"{text or status.name}: pip install --force-reinstall nvidia-cuda-nvrtc")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return Compilation(ok=False, log=text or status.name)
        lowered = {
            expression: checked(
                nvrtc.nvrtcGetLoweredName(program, expression.encode()), f"name the entry {expression!r}"
            ).decode()
            for expression in expressions
        }
        ptx = read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, "return the PTX").rstrip(b"\0").decode()
        cubin = read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, "return the cubin")
        return Compilation(ok=True, log=text, ptx=ptx, cubin=cubin, lowered=lowered)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
