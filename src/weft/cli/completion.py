"""`weft completion`: the script that makes TAB complete verbs, options, kernels, shapes, regimes, tasks and codes.

The only file that uses private names of typer, which has no public ones that leave pydantic unloaded: pyproject.toml
therefore has an upper bound for typer, and every other command works without these names.
"""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script, install

VARIABLE = "_WEFT_COMPLETE"


class Shell(StrEnum):
    """That can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script: `eval "$(weft completion bash)"`, or keep it where the shell looks for such.

    `weft --install-completion` does the latter.
    """
    print(get_completion_script(prog_name="weft", complete_var=VARIABLE, shell=shell.value).strip())


def answer_shells() -> None:
    """Let the command line answer a shell that completes: each shell asks in its own form."""
    completion_init()


def install_completion() -> None:
    """For the shell that runs: its script, and the line that reads it at the next start."""
    shell, path = install(prog_name="weft", complete_var=VARIABLE)
    print(f"completion for {shell} is in {path}; it works from the next shell on")
