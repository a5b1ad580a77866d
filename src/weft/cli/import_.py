"""`weft import`: the device code of a torch extension, with launch lines from its host code."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.interop.torch_extension.import_file import Imported, import_torch


def import_file(
    source: Annotated[Path, typer.Argument(help="A CUDA file with PyTorch host code.", dir_okay=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it here.")] = None,
    function: Annotated[str | None, typer.Option(help="The host function (default: the bound one).")] = None,
    shape: Annotated[
        list[str] | None, typer.Option("--shape", metavar="A=N,D", help="The shape of an array, if nothing says it.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option("--value", metavar="K=V", help="A number that the host function is given.")
    ] = None,
    include: Annotated[list[str] | None, typer.Option("-I", metavar="DIR", help="Find includes.")] = None,
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_89",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Separate a torch extension into device code and launch lines.

    Exit codes: 0 complete, 1 written with holes (???) to complete, 2 usage, 3 cannot be separated.
    """
    shapes = {name: text.split(",") for name, text in _pairs("--shape", shape).items()}
    found = import_torch(
        str(source), function=function, shapes=shapes, values=_pairs("--value", value), arch=arch,
        include_dirs=include or (),
    )  # fmt: skip
    if output is not None:
        try:
            output.write_text(found.text)
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error}") from error
    if as_json:
        print(json.dumps(_record(source, output, found), indent=2))
    elif output is None:
        print(found.text, end="")
    else:
        for line in found.lines:
            print(line)
    for problem in found.problems:
        print(f"{source}:{problem.line}: to complete: {problem.text}", file=sys.stderr)
    for note in found.notes:
        print(f"{source}:{note.line}: note: {note.text}", file=sys.stderr)
    where = f" → {output}" if output is not None else ""
    origin = f"launch lines from {found.function}" if found.function else "its own launch lines"
    left = len(found.problems)
    state = f"{left} to complete: each is a ??? in the lines" if left else "complete"
    print(f"{source}{where}: {origin}, {state}", file=sys.stderr)
    return 1 if found.problems else 0


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"{option} {text}: give it as NAME=…")
        found[name] = value
    return found


def _record(source: Path, output: Path | None, found: Imported) -> dict[str, object]:
    return {
        "source": str(source),
        "output": str(output) if output is not None else None,
        "complete": not found.problems,
        "function": found.function,
        "lines": found.lines,
        "to_complete": [{"line": each.line, "text": each.text} for each in found.problems],
        "notes": [{"line": each.line, "text": each.text} for each in found.notes],
        "text": found.text,
    }
