"""The tool `show`: what a kernel compiles to, one page at a time."""

import dataclasses
from pathlib import Path as File
from typing import Annotated, Literal

from mcp.types import CallToolResult
from pydantic import Field

from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.interop.shown_binaries import shown_binaries
from weft.kernels.ladder import RUNGS
from weft.toolchain import disassemble

from .answers import ShowAnswer, reply
from .apart import apart
from .calls import AnyContext, Progress, carried_out
from .options import Gpu, Language, Path, Text
from .sources import Given, written

Form = Literal["resources", "shared", "ptx", "sass", "llvm"]
LINES, DETAILED_LINES, WARNINGS = 60, 600, 5


def show(
    context: AnyContext,
    path: Path = "",
    text: Text = "",
    language: Language = "cuda",
    form: Annotated[Form, Field(description="What to show.")] = "resources",
    entries: Annotated[
        list[str] | None, Field(description="Kernels to show; templates as in C++: attn<64,true>.")
    ] = None,
    defines: Annotated[dict[str, str] | None, Field(description="Macros.")] = None,
    gpu: Gpu = "l4",
    first_line: Annotated[int, Field(ge=1, description="First line of the page.")] = 1,
    detail: Annotated[bool, Field(description=f"{DETAILED_LINES} lines instead of {LINES}.")] = False,
) -> Annotated[CallToolResult, ShowAnswer]:
    """Show registers and spills, the layout of shared memory, PTX, SASS or LLVM IR. Needs no launch lines."""
    with carried_out():
        given, progress = Given(path, text, language), Progress(context)
        lines = DETAILED_LINES if detail else LINES
        arguments = {"given": given, "form": form, "gpu": gpu, "entries": entries or [], "defines": defines or {}}
        progress.tell("compiling")
        if given.text:
            return reply(apart(look_at, ShowAnswer, {**arguments, "page": (first_line, lines)}, progress))
        return reply(look_at(given, form, gpu, entries or [], defines or {}, page=(first_line, lines)))


def look_at(
    given: Given, form: Form, gpu: str, entries: list[str], defines: dict[str, str], *, page: tuple[int, int]
) -> ShowAnswer:
    """Compile and return the page."""
    with written(given) as target:
        path = RUNGS[target].path if target in RUNGS else File(target)
        binaries = shown_binaries(path, gpu=gpu, entries=entries, defines=defines)
        rows = [row for binary in binaries for row in _text(binary, form).splitlines()]
    first, most = page
    if first > max(1, len(rows)):
        raise UsageError(f"first_line is {first}, but there are only {len(rows)} lines")
    end = min(len(rows), first - 1 + most)
    return ShowAnswer(
        form=form,
        entries=tuple(entry for binary in binaries for entry in binary.entries),
        compiler=f"{binaries[0].compiler}, {binaries[0].arch}",
        text="\n".join(rows[first - 1 : end]),
        first_line=first,
        lines_in_all=len(rows),
        next=f"first_line={end + 1} shows the next page" if end < len(rows) else "",
        warnings=tuple(str(each) for binary in binaries for each in binary.diagnostics)[:WARNINGS],
    )


def _text(binary: Binary, form: Form) -> str:
    if form == "ptx":
        return binary.ptx
    if form == "sass":
        return disassemble(binary)
    if not binary.entries:
        raise UsageError(f"{binary.source_name} has no kernel; name a template in `entries`, such as name<64>")
    if form == "llvm":
        from weft.vm.program import llvm_text  # LLVM loads slowly, and only this form needs it

        return "\n".join(llvm_text(binary.ptx, mangled, mode="hardware") for mangled in binary.entries.values())
    rows = []
    for name, mangled in binary.entries.items():
        if form == "shared":
            symbols = binary.shared.get(mangled, ())
            rows += [f"{name}: {each.name} at {each.offset}, {each.size_bytes} bytes" for each in symbols]
        elif mangled in binary.resources:
            used = dataclasses.asdict(binary.resources[mangled])
            rows.append(f"{name}: " + ", ".join(f"{value} {field}" for field, value in used.items()))
        else:
            raise UsageError(f"ptxas gave no figures for {name} ({binary.compiler})")
    return "\n".join(rows) or "no static shared memory"
