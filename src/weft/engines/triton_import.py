"""The process that imports and compiles a Triton file: it reads requests as JSON and returns Binaries as plain data.

A Triton file is Python. Its import may do anything to its process, so it is never imported in the judge's process.
`triton_child.py` starts this program, one per file.
"""

import functools
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from types import ModuleType
from typing import Any, BinaryIO

from weft.core.errors import CompileError, LaunchError, UsageError, WeftError
from weft.core.records import Binary
from weft.toolchain import binary_file
from weft.toolchain.triton_aot import compile_triton, parameter_names, require_triton

ALIGNED = 16
"""Triton specialises for pointers aligned to this many bytes, and for integers that are a multiple of it."""


def main() -> None:
    """Answer requests until there are no more. What the file prints goes to standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with questions, answers:
        for line in questions:
            _send(answers, *_answer(json.loads(line)))


def _answer(question: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    try:
        return {}, binary_file.pack(_compile(question))
    except WeftError as error:
        diagnostics = error.diagnostics if isinstance(error, CompileError) else ()
        head = {"error": type(error).__name__, "message": str(error), "diagnostics": [asdict(d) for d in diagnostics]}
        return head, b""


def _send(answers: BinaryIO, head: dict[str, Any], payload: bytes) -> None:
    answers.write(json.dumps({**head, "bytes": len(payload)}).encode() + b"\n" + payload)
    answers.flush()


def _compile(question: Mapping[str, Any]) -> Binary:
    """Compile the kernel of one launch, whose line passes arguments in the order of the function's parameters."""
    sys.path[:] = question["sys_path"]
    name, constants, settings, passed = (question[key] for key in ("name", "constants", "settings", "arguments"))
    function = getattr(_module(question["path"], question["digest"]), name, None)
    if function is None:
        raise UsageError(f"{question['path']} has no function {name}")
    runtime, constexprs = parameter_names(function)
    parameters = [each for each in runtime if each not in constants]
    if len(parameters) != len(passed):
        raise LaunchError(f"{name} takes {', '.join(parameters)}; the line passes {len(passed)} arguments")
    for constexpr in constexprs:
        if constexpr not in constants and constexpr not in question["names"]:
            raise LaunchError(f"no value for {constexpr}: write {name}<{constexpr}=…>, or declare a size of this name")
        constants.setdefault(constexpr, question["names"].get(constexpr))
    return compile_triton(
        function,
        signature={parameter: kind for parameter, (kind, _) in zip(parameters, passed, strict=True)},
        constexprs=constants,
        arch=question["arch"],
        attrs={parameter: ALIGNED for parameter, (_, aligned) in zip(parameters, passed, strict=True) if aligned},
        num_warps=int(settings.pop("num_warps", 4)),
        num_stages=int(settings.pop("num_stages", 3)),
        options=settings,
    )


@functools.cache
def _module(path: str, digest: str) -> ModuleType:
    """Import the file as a separate module."""
    require_triton()
    spec = importlib.util.spec_from_file_location(f"weft_triton_{digest[:16]}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


if __name__ == "__main__":
    main()
