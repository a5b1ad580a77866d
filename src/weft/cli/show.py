"""`weft show`: print what a kernel compiles to, with the options of its launch lines."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from weft.core.chips import choose_gpu
from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.interop.shown_binaries import shown_binaries
from weft.judge.select import path_of
from weft.toolchain import disassemble

from .options import ARCH_HELP, COMPILER_HELP, GPU_HELP, Compiler, macros, sizes
from .tables import print_table

Row = dict[str, str | int]
"""Column → cell."""
RESOURCES = (
    "entry", "registers", "spill_store_bytes", "spill_load_bytes", "static_shared_bytes", "local_bytes",
    "constant_bytes",
)  # fmt: skip
SHARED = ("entry", "symbol", "offset", "size_bytes")


class Form(StrEnum):
    """What to show."""

    PTX = "ptx"
    SASS = "sass"
    LLVM = "llvm"
    RESOURCES = "resources"
    SHARED = "shared"


def show(
    source: Annotated[str, typer.Argument(help="A CUDA C++, Triton or PTX file, or a rung of the ladder.")],
    form: Annotated[Form, typer.Option("--as", help="What to show.")] = Form.PTX,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="S=N", help="Set a size; it may select a template argument."),
    ] = None,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    include: Annotated[
        list[str] | None, typer.Option("-I", metavar="DIR", help="Search this directory for includes.")
    ] = None,
    compiler: Annotated[Compiler, typer.Option(help=COMPILER_HELP)] = Compiler.NVRTC,
    entry: Annotated[
        list[str] | None, typer.Option("--entry", help="The kernel to show; a template as in C++: attn<64,true>.")
    ] = None,
    mode: Annotated[str, typer.Option(help="Tensor-core arithmetic of LLVM IR: hardware or ieee.")] = "hardware",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a kernel compiles to: PTX, SASS, LLVM IR, resources, shared memory.

    For a file with launch lines, shows the kernels it launches, with the macros and template arguments of its lines.
    """
    mangled, expressions = _entries(entry or ())
    binaries = [
        _only(binary, mangled, expressions)
        for binary in shown_binaries(
            path_of(source),
            gpu=choose_gpu(gpu, arch) if gpu or arch else "",
            entries=expressions,
            defines=macros(define),
            sizes=sizes(size),
            include_dirs=include or (),
            compiler=compiler.value,
        )
    ]
    contents = [_content(binary, form, mode) for binary in binaries]
    if as_json:
        records = [_record(binary, form, shown) for binary, shown in zip(binaries, contents, strict=True)]
        print(json.dumps(records if records[1:] else records[0], indent=2))
    elif form in (Form.RESOURCES, Form.SHARED):
        rows = [row for shown in contents for row in shown if not isinstance(row, str)]
        columns = RESOURCES if form is Form.RESOURCES else SHARED
        print_table(columns, [[row[column] for column in columns] for row in rows])
    else:
        for text in contents:
            print(text, end="" if str(text).endswith("\n") else "\n")
    for binary in binaries:
        _summarise(binary)


def _content(binary: Binary, form: Form, mode: str) -> "str | list[Row]":
    """Return text, or rows of a table."""
    if form is Form.RESOURCES:
        return _resource_rows(binary)
    return _shared_rows(binary) if form is Form.SHARED else _text(binary, form, mode)


def _entries(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that are in the PTX, and the name expressions that the compiler must instantiate."""
    return [name for name in names if name.startswith("_Z")], [name for name in names if name[:2] != "_Z"]


def _only(binary: Binary, mangled: Sequence[str], expressions: Sequence[str]) -> Binary:
    """Return the binary with the chosen kernels only; a mangled name must be in the PTX."""
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
    from weft.vm.program import llvm_text  # LLVM loads slowly, and only this form needs it

    return "\n".join(llvm_text(binary.ptx, mangled, mode=mode) for mangled in binary.entries.values())


def _resource_rows(binary: Binary) -> list[Row]:
    rows: list[Row] = []
    for name, mangled in binary.entries.items():
        used = binary.resources.get(mangled)
        if used is None:
            raise UsageError(f"ptxas gave no figures for {name} ({binary.compiler})")
        rows.append({"entry": name, **{column: getattr(used, column) for column in RESOURCES[1:]}})
    return rows


def _shared_rows(binary: Binary) -> list[Row]:
    rows: list[Row] = []
    for name, mangled in binary.entries.items():
        if mangled not in binary.shared:
            raise UsageError(f"the layout of {name}'s shared memory could not be read from the cubin")
        symbols = binary.shared[mangled]
        rows += [dict(zip(SHARED, (name, each.name, each.offset, each.size_bytes), strict=True)) for each in symbols]
    return rows


def _record(binary: Binary, form: Form, content: object) -> dict[str, object]:
    return {
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


def _summarise(binary: Binary) -> None:
    """Print a summary to standard error, so that standard output can be piped."""
    for diagnostic in binary.diagnostics:
        print(diagnostic, file=sys.stderr)
    for macro, value in binary.defines.items():
        if value.endswith("(unused)"):
            print(f"warning: -D {macro}: no file mentions {macro}", file=sys.stderr)
    names = ", ".join(binary.entries) or "no kernel"
    print(f"{binary.source_name}: {names} for {binary.arch} by {binary.compiler}", file=sys.stderr)
