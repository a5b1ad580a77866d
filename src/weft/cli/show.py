"""`weft show`: what a CUDA file compiles to."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from weft.core.chips import choose_gpu, target_of
from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.engines.launch_lines import options_of
from weft.toolchain import compile_cuda, disassemble
from weft.toolchain.ptx_file import is_ptx, read_ptx

from .options import ARCH_HELP, COMPILER_HELP, GPU_HELP, Compiler, macros
from .tables import print_table


class Form(StrEnum):
    """What to show."""

    PTX = "ptx"
    SASS = "sass"
    LLVM = "llvm"
    RESOURCES = "resources"
    SHARED = "shared"


def show(
    source: Annotated[Path, typer.Argument(help="A CUDA C++ file with device code, or PTX.", dir_okay=False)],
    form: Annotated[Form, typer.Option("--as", help="What to show.")] = Form.PTX,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    include: Annotated[list[str] | None, typer.Option("-I", metavar="DIR", help="Find includes.")] = None,
    compiler: Annotated[Compiler, typer.Option(help=COMPILER_HELP)] = Compiler.NVRTC,
    entry: Annotated[
        list[str] | None, typer.Option("--entry", help="A kernel, templates as in C++: attn<64,true>.")
    ] = None,
    mode: Annotated[str, typer.Option(help="Tensor-core arithmetic of LLVM IR: hardware or ieee.")] = "hardware",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a kernel compiles to: PTX, SASS, LLVM IR, resources, shared memory."""
    mangled, expressions = _entries(entry or ())
    target = target_of(choose_gpu(gpu, arch))
    if is_ptx(source):
        _refuse_compiling(source, define or include)
        binary = read_ptx(source, arch=target, entries=expressions)
    else:
        binary = compile_cuda(
            source,
            arch=target,
            defines=macros(define),
            include_dirs=include or (),
            entries=expressions,
            options=options_of(source),
            compiler=compiler.value,
        )
    binary = _only(binary, mangled, expressions)
    if form in (Form.RESOURCES, Form.SHARED):
        columns, rows = _resource_rows(binary) if form is Form.RESOURCES else _shared_rows(binary)
        if as_json:
            _print_json(binary, form, [dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)
    else:
        text = _text(binary, form, mode)
        if as_json:
            _print_json(binary, form, text)
        else:
            print(text, end="" if text.endswith("\n") else "\n")
    _summarise(binary)


def _refuse_compiling(source: Path, asked: list[str] | None) -> None:
    if asked:
        raise UsageError(f"{source} is compiled already: -D and -I have no meaning")


def _entries(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of the PTX, which are only looked up, and name expressions, which the compiler instantiates."""
    return [name for name in names if name.startswith("_Z")], [name for name in names if name[:2] != "_Z"]


def _only(binary: Binary, mangled: Sequence[str], expressions: Sequence[str]) -> Binary:
    """With the chosen kernels; a mangled name must be one of those that compiled."""
    if not mangled:
        return binary
    entries = dict(binary.entries) if expressions else {}
    readable = {symbol: name for name, symbol in binary.entries.items()}
    for symbol in mangled:
        if symbol not in readable and f".entry {symbol}(" not in binary.ptx:
            known = ", ".join(binary.entries.values()) or "none"
            raise UsageError(f"no kernel {symbol} in {binary.source_name}; it has {known}")
        entries[readable.get(symbol, symbol)] = symbol
    return dataclasses.replace(binary, entries=entries)


def _text(binary: Binary, form: Form, mode: str) -> str:
    if form is Form.PTX:
        return binary.ptx
    if form is Form.SASS:
        return disassemble(binary)
    if mode not in ("hardware", "ieee"):
        raise UsageError(f"mode {mode!r}: use 'hardware' or 'ieee'")
    if not binary.entries:
        raise UsageError(f"{binary.source_name} has no kernel; a template needs --entry 'name<64>'")
    from weft.vm.program import llvm_text  # LLVM is slow to load, and only this form needs it

    return "\n".join(llvm_text(binary.ptx, mangled, mode=mode) for mangled in binary.entries.values())


def _resource_rows(binary: Binary) -> tuple[list[str], list[list[str | int]]]:
    columns = ["entry", "registers", "spill_store_bytes", "spill_load_bytes", "static_shared_bytes"]
    columns += ["local_bytes", "constant_bytes"]
    rows: list[list[str | int]] = []
    for name, mangled in binary.entries.items():
        used = binary.resources.get(mangled)
        if used is None:
            raise UsageError(f"ptxas gave no figures for {name} ({binary.compiler})")
        fields = dataclasses.asdict(used)
        rows.append([name, *(fields[column] for column in columns[1:])])
    return columns, rows


def _shared_rows(binary: Binary) -> tuple[list[str], list[list[str | int]]]:
    rows: list[list[str | int]] = []
    for name, mangled in binary.entries.items():
        if mangled not in binary.shared:
            raise UsageError(f"the layout of {name}'s shared memory could not be read from the cubin")
        rows += [[name, symbol.name, symbol.offset, symbol.size_bytes] for symbol in binary.shared[mangled]]
    return ["entry", "symbol", "offset", "size_bytes"], rows


def _print_json(binary: Binary, form: Form, content: object) -> None:
    record = {
        "source": binary.source_name,
        "arch": binary.arch,
        "compiler": binary.compiler,
        "flags": binary.flags,
        "entries": binary.entries,
        "defines": binary.defines,
        "ptx_digest": binary.ptx_digest,
        "diagnostics": [str(diagnostic) for diagnostic in binary.diagnostics],
        form.value: content,
    }
    print(json.dumps(record, indent=2))


def _summarise(binary: Binary) -> None:
    """To standard error, so that what is shown can be piped on."""
    for diagnostic in binary.diagnostics:
        print(diagnostic, file=sys.stderr)
    for macro, value in binary.defines.items():
        if value.endswith("(unused)"):
            print(f"warning: -D {macro}: no file mentions {macro}", file=sys.stderr)
    names = ", ".join(binary.entries) or "no kernel"
    print(f"{binary.source_name}: {names} for {binary.arch} by {binary.compiler}", file=sys.stderr)
