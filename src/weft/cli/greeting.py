"""`weft` alone: what it is, and what to do next."""

import shutil
import textwrap

from weft import __version__

from .terminal import paint

WHAT = "Weft runs the real compiled attention kernel on this CPU, checks it and says where it is wrong. No GPU needed."
NEXT = {
    "weft demo": "a wrong kernel found, explained and mended",
    "weft check wmma": "judge a rung of the ladder, or your kernel.cu",
    "weft diagnose kernel.cu": "its first wrong stage, the line and the cure",
    "weft profile wmma --gpu l4": "its cost on a GPU: counters, bounds (modelled)",
    "weft doctor": "what is installed here and what is missing",
    "weft --help": "every verb; weft VERB --help: its options",
}
"""Command → what it does."""

NARROW = 80
"""Columns below which a command and what it does stand in two lines, not side by side."""


def greet() -> None:
    """To standard output, folded to the terminal's width."""
    columns = shutil.get_terminal_size().columns
    print(paint(f"weft {__version__}", "heading"))
    print(textwrap.fill(WHAT, columns))
    print()
    width = max(map(len, NEXT)) + 4
    for command, what in NEXT.items():
        shown = paint(command, "command")
        indent = 4 if columns < NARROW else width
        lines = textwrap.wrap(what, columns - indent)
        first = "" if columns < NARROW else " " * (width - 2 - len(command)) + lines.pop(0)
        print(f"  {shown}{first}")
        for line in lines:
            print(" " * indent + line)
