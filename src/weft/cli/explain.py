"""`weft explain`: explain a finding's code, with an example and the cure."""

import json
import sys
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.core.finding_codes import FINDING_CODES, FindingCode
from weft.core.finding_pages import page
from weft.core.names import did_you_mean

from .tables import print_table
from .terminal import console


def explain(
    code: Annotated[str | None, typer.Argument(help="A finding's code, such as M101 (default: list all).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explain a finding's code: what happened, why it matters, an example, the cure."""
    if code is None:
        _list(as_json)
        return
    row = FINDING_CODES.get(code.upper())
    if row is None:
        hint, known = did_you_mean(code, FINDING_CODES), ", ".join(FINDING_CODES)
        raise UsageError(f"no finding has the code {code}{hint}; there are {known}")
    text = page(row.code)
    if as_json:
        print(json.dumps({**_record(row), "page": text}, indent=2))
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        console().print(Markdown(text))
    else:
        print(text, end="")


def _list(as_json: bool) -> None:
    if as_json:
        print(json.dumps([_record(row) for row in FINDING_CODES.values()], indent=2))
        return
    rows = [[row.code, row.severity, row.tool, row.name, row.cure] for row in FINDING_CODES.values()]
    print_table(["code", "severity", "tool", "what", "cure"], rows)


def _record(row: FindingCode) -> dict[str, object]:
    return {
        "code": row.code,
        "name": row.name,
        "tool": row.tool,
        "severity": row.severity,
        "cure": row.cure,
        "ends_launch": row.ends_launch,
    }
