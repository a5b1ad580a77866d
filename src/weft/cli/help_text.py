"""The help of groups and verbs: summaries are printed complete, and examples come first."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup


class FullSummaries(TyperGroup):
    """A group whose help prints the first line of each command complete, where typer cuts it to the width."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, summary(self.commands[name])) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def summary(command: Any) -> str:
    """Return the first paragraph of a command's help, without its examples."""
    paragraphs = (command.help or "").strip().split("\n\n")
    return " ".join(paragraphs[0].split())


def add_examples(command: Any, examples: Sequence[str]) -> Any:
    """Return the command; its help then opens with the examples, one per line."""
    if examples:
        heads = ["Example:", *[" " * len("Example:")] * (len(examples) - 1)]
        lines = "\n".join(f"{head}  {example}" for head, example in zip(heads, examples, strict=True))
        # The \b keeps click from filling the paragraph.
        command.help = f"\b\n{lines}\n\n{command.help or ''}"
    return command
