"""Follows a page of the docs as a reader would: writes its files, runs its commands, compares the shown output."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(r"(?:^`(?P<file>[\w./]+)`:\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "<<end of command>>"


@dataclass(frozen=True)
class Block:
    """One fenced block of the page."""

    kind: str
    file: str | None
    body: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    for match in _FENCE.finditer(page):
        yield Block(match["kind"], match["file"], match["body"], page[: match.start("body")].count("\n") + 1)


def session(body: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console block with the output shown for it."""
    commands: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


def carry_out(commands: list[str], folder: Path, bin_folder: Path | None = None) -> list[list[str]]:
    """Run the commands in one shell, so that `$?` is the status of the one before; return what each prints.

    `bin_folder` is that of the environment with Weft; by default that of this process.
    """
    script = "".join(f'(exit $status)\n{command}\nstatus=$?; echo "{_MARK}"\n' for command in commands)
    bin_folder = bin_folder or Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",  # as on a terminal: both outputs in the order in which they were written
    }
    done = subprocess.run(
        ["bash", "-c", f"status=0\n{script}"],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return [part.strip("\n").splitlines() for part in done.stdout.split(_MARK)[:-1]]


def normal(line: str) -> str:
    """Tabs and runs of spaces count as one space."""
    return " ".join(line.split())


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Return whether the outputs agree; `…` means any text within a line, and alone on a line any lines."""

    def pattern(line: str) -> str:
        return r".*(?:\n.*)*" if line.strip() == "…" else ".*".join(map(re.escape, normal(line).split("…")))

    return re.fullmatch("\n".join(map(pattern, shown)), "\n".join(map(normal, printed))) is not None


def run_page(page: Path, folder: Path, bin_folder: Path | None = None) -> int:
    """Write the page's files into `folder` and run its consoles there, in order; returns how many commands ran."""
    written: dict[str, str] = {}
    ran = 0
    for block in blocks(page.read_text()):
        if block.file is not None:
            (folder / block.file).write_text(block.body)
            written[block.file] = block.body
        if block.kind != "console":
            continue
        commands = session(block.body)
        texts = [written[name] for name in written for command, _ in commands if name in command]
        if find_spec("triton") is None and any("import triton" in text for text in texts):
            continue
        outputs = carry_out([command for command, _ in commands], folder, bin_folder)
        for (command, shown), printed in zip(commands, outputs, strict=True):
            shown = [line for line in shown if line]
            where = f"{page.name}:{block.line}: $ {command}"
            assert agrees(shown, [line for line in printed if line]), "\n".join(
                [where, "shown:", *shown, "printed:", *printed]
            )
            ran += 1
    return ran
