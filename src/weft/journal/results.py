"""What a command printed, read back: its last line, and how each shape came out."""

import json
import re
from collections.abc import Iterator, Sequence

from .records import ShapeResult

TAIL_LINES = 40
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
_MAX_LINE = 400
"""A line of a journal; a JSON document on one line would be none."""


def plain(text: str) -> str:
    """Without colours, and as a terminal leaves a line that was drawn over."""
    lines = _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def last_line(text: str) -> str:
    """The summary: by the rule of every verb, the last line."""
    document = _json(text)
    if document is not None:
        shapes = shape_results(text)
        return "; ".join(f"{each.shape}: {each.text}" for each in shapes) or "a JSON document"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The line that compute-sanitizer taught everybody to look for counts errors; the one above says of what.
    if lines[1:] and lines[-1].startswith("ERROR SUMMARY"):
        lines[-1] = f"{lines[-2]} · {lines[-1]}"
    return lines[-1][:_MAX_LINE] if lines else ""


def tail(text: str) -> str:
    return "\n".join(line[:_MAX_LINE] for line in text.strip("\n").splitlines()[-TAIL_LINES:])


def shape_results(text: str) -> tuple[ShapeResult, ...]:
    """Of `weft check`, from its table or its JSON; nothing where the output is neither."""
    document = _json(text)
    return tuple(_from_table(text.splitlines()) if document is None else _from_json(document))


def _json(text: str) -> object:
    """The document, or None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        document: object = json.loads(text)
    except ValueError:
        return None
    return document


def _from_json(document: object) -> Iterator[ShapeResult]:
    """{target: [{"shape": …, "status": …, "debug_build": …}, …]}."""
    targets = document if isinstance(document, dict) else {}
    for target, rows in targets.items():
        verdicts = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        known = [row for row in verdicts if {"shape", "status"} <= row.keys() and not row.get("debug_build")]
        for shape in dict.fromkeys(row["shape"] for row in known):
            here = [row for row in known if row["shape"] == shape]
            passed = sum(row["status"] == "PASSED" for row in here)
            failures = dict.fromkeys(str(row["status"]) for row in here if row["status"] != "PASSED")
            said = f"{passed} of {len(here)}" + (f" ({', '.join(failures)})" if failures else "")
            yield ShapeResult(str(shape), f"{target} {said}" if len(targets) > 1 else said)


def _from_table(lines: Sequence[str]) -> Iterator[ShapeResult]:
    """The rows under the header `shape`, tab-separated in a pipe and drawn on a terminal."""
    rows = [(line, _cells(line)) for line in lines]
    for at, (_, header) in enumerate(rows):
        if header[:1] != ["shape"] or len(header) < 2:
            continue
        for line, cells in rows[at + 1 :]:
            if len(cells) == len(header):
                texts = [
                    f"{name} {cell}" if header[2:] else cell for name, cell in zip(header[1:], cells[1:], strict=True)
                ]
                yield ShapeResult(cells[0], ", ".join(texts))
            elif not re.fullmatch(r"[\s┡╇┩━├┼┤─└┴┘╪╞╡═]+", line):
                return
        return


def _cells(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return [cell.strip() for cell in re.split("[│┃]", line.strip())[1:-1]]
