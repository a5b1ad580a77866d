"""A model's reply → a child, or what is wrong with it. Nothing in a reply runs here, and everything is checked.

This process only makes checks that take linear time; the supervisor's child screens and compiles what passes them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft.core.errors import WeftError
from weft.engines.launch_lines import parse_lines
from weft.evolve.levers.effects import Effect
from weft.evolve.levers.space import Change
from weft.evolve.records import LEVERS_PER_CHILD
from weft.supervise.screen import screen_options
from weft.tasks.task import Task

MOST_SOURCE_BYTES = 64 << 10
MOST_LINE_CHARS = 400
MOST_HYPOTHESIS_CHARS = 600
MOST_WORD_CHARS = 80
MOST_PREDICTED = 12
CUDA_FENCES = ("cuda", "cu", "cpp", "c++")
SELECTORS = ("ELEMENT", "CAUSAL", "WINDOW_LEFT", "WINDOW_RIGHT", "ENCODING")
"""Macros with which the judge selects type, mask, window and encoding."""

_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([\w+]*)[^`~]*")
_LEVER = re.compile(r"[A-Za-z][\w .-]{0,39}")
_HOST = re.compile(
    r"<<<|\bcuda(?:Malloc|Free|Memcpy|Memset|Launch|Device|Func|Stream|Event|Graph)\w*[ ]?\("
    r"|\bcu(?:Launch|Mem)\w+[ ]?\(|\bint[ ]main[ ]?\(|\bPYBIND11_MODULE\b|\bTORCH_LIBRARY\b"
)


class BrokenReply(WeftError):
    """The reply is not a candidate; the message is sent to the model."""


@dataclass(frozen=True)
class Rules:
    """The rules for a reply."""

    task: Task
    selectors: tuple[str, ...]
    """Macros that the start declares and every child must keep."""
    counters: tuple[str, ...]
    """Names that a prediction may use."""


@dataclass(frozen=True)
class Reply:
    """A child as the model describes it."""

    source: str
    changes: tuple[Change, ...]
    hypothesis: str
    predicted: tuple[Effect, ...]


def read_reply(text: str, rules: Rules) -> Reply:
    """Return the child of a reply. Raises BrokenReply."""
    answer = text.rpartition("</think>")[2]  # reasoning models put drafts there
    blocks = list(_blocks(answer))
    source = _only([body for label, body in blocks if label in CUDA_FENCES], "```cuda")
    described = _only([body for label, body in blocks if label == "json"], "```json")
    check_source(source, rules)
    try:
        record = json.loads(described)
    except (ValueError, RecursionError) as error:
        raise BrokenReply(f"the JSON block cannot be read: {error}") from None
    if not isinstance(record, dict):
        raise BrokenReply("the JSON block must be one object with levers, hypothesis and predicted")
    missing = [name for name in ("levers", "hypothesis", "predicted") if name not in record]
    if missing:
        raise BrokenReply(f"the JSON object lacks {', '.join(missing)}")
    return Reply(
        source,
        _changes(record["levers"]),
        _words(record["hypothesis"], "hypothesis", MOST_HYPOTHESIS_CHARS),
        _predicted(record["predicted"], rules),
    )


def check_source(source: str, rules: Rules) -> None:
    """Check a source without a compiler. Raises BrokenReply."""
    size = len(source.encode(errors="replace"))
    if size > MOST_SOURCE_BYTES:
        raise BrokenReply(f"the source has {size} bytes; the limit is {MOST_SOURCE_BYTES}")
    if "\0" in source or (not source.isascii() and "\ufffd" in source):
        raise BrokenReply("the source contains bytes that are not text")
    for number, line in enumerate(source.splitlines(), 1):
        if len(line) > MOST_LINE_CHARS:
            raise BrokenReply(f"line {number} of the source has {len(line)} characters; the limit is {MOST_LINE_CHARS}")
        host = _HOST.search(line.partition("//")[0])
        if host:
            raise BrokenReply(
                f"line {number} of the source has host code ({host[0]}): give device code only; launch lines "
                "describe the launches"
            )
    try:
        lines = parse_lines(source, "kernel.cu")
        screen_options(lines.options)
    except (WeftError, RecursionError) as error:
        raise BrokenReply(f"the launch lines are wrong: {error}") from None
    if not lines.launches:
        raise BrokenReply("the source has no `// weft: launch` line: keep the parent's launch lines")
    inputs = {line.name for line in lines.arrays if line.role in ("in", "inout")}
    if inputs != set(rules.task.inputs):
        given = ", ".join(sorted(inputs)) or "none"
        raise BrokenReply(f"the launch lines have the inputs {given}; the task has {', '.join(rules.task.inputs)}")
    outputs = {line.name for line in lines.arrays if line.role in ("out", "inout")}
    lacking = [output.name for output in rules.task.outputs if output.name not in outputs and not output.optional]
    if lacking:
        raise BrokenReply(f"the launch lines declare no output {', '.join(lacking)}, which the task requires")
    gone = [name for name in rules.selectors if name not in {define.name for define in lines.defines}]
    if gone:
        raise BrokenReply(f"the `define` line of {', '.join(gone)} is missing: the judge sets types and masks with it")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield label and body of the fenced blocks that are closed."""
    fence, label, body = "", "", list[str]()
    for line in text.splitlines():
        stripped = line.strip()
        if not fence:
            opening = _FENCE.fullmatch(stripped)
            if opening:
                fence, label, body = opening[1], opening[2].lower(), []
        elif stripped and set(stripped) == {fence[0]} and len(stripped) >= len(fence):
            yield label, "".join(f"{each}\n" for each in body)
            fence = ""
        else:
            body.append(line)


def _only(found: list[str], fence: str) -> str:
    if len(found) != 1:
        raise BrokenReply(f"the reply has {len(found)} closed {fence} blocks; it must have exactly one, complete")
    return found[0]


def _changes(record: Any) -> tuple[Change, ...]:
    if not isinstance(record, list) or len(record) != LEVERS_PER_CHILD:
        found_count = len(record) if isinstance(record, list) else "something else"
        raise BrokenReply(
            f"`levers` must be a list of exactly two objects with name, before and after, not {found_count}"
        )
    found = tuple(_change(each) for each in record)
    if len({change.lever.lower() for change in found}) != LEVERS_PER_CHILD:
        raise BrokenReply(f"both levers are named {found[0].lever}: change two different ones")
    return found


def _change(record: Any) -> Change:
    if not isinstance(record, dict):
        raise BrokenReply("a lever is an object with name, before and after")
    name, before, after = (
        _words(record.get(each), f"a lever's {each}", MOST_WORD_CHARS) for each in ("name", "before", "after")
    )
    if not _LEVER.fullmatch(name):
        raise BrokenReply(f"{name!r} is not a lever's name: use letters, digits and _, at most 40")
    if before == after:
        raise BrokenReply(f"lever {name} stays {before}: a named lever must change")
    return Change(name, before, after)


def _predicted(record: Any, rules: Rules) -> tuple[Effect, ...]:
    if not isinstance(record, list) or not 1 <= len(record) <= MOST_PREDICTED:
        raise BrokenReply(
            f"`predicted` must be a list of 1 to {MOST_PREDICTED} objects with counter, direction and why"
        )
    found: dict[str, Effect] = {}
    for each in record:
        if not isinstance(each, dict):
            raise BrokenReply("a prediction is an object with counter, direction and why")
        counter, direction = each.get("counter"), each.get("direction")
        if counter not in rules.counters:
            raise BrokenReply(
                f"{str(counter)[:MOST_WORD_CHARS]!r} is not a counter; there are {', '.join(rules.counters)}"
            )
        if counter in found:
            raise BrokenReply(f"counter {counter} is predicted twice")
        if direction == "falls":
            found[counter] = Effect(counter, "falls", _words(each.get("why"), "why", 2 * MOST_WORD_CHARS))
        elif direction == "rises":
            found[counter] = Effect(counter, "rises", _words(each.get("why"), "why", 2 * MOST_WORD_CHARS))
        else:
            raise BrokenReply(f"the direction of {counter} must be `falls` or `rises`")
    return tuple(found.values())


def _words(value: Any, what: str, most: int) -> str:
    """Return one line of printable text, for terminals and later prompts."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise BrokenReply(f"{what} must be a non-empty text")
    line = " ".join("".join(char if char.isprintable() else " " for char in value).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
