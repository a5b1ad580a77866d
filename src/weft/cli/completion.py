"""`weft completion`: print the script that completes verbs, options, kernels, shapes, regimes, tasks and codes.

Only this file uses private names of typer, because its public names load pydantic. pyproject.toml therefore has an
upper bound for typer, and every other command works without these names.
"""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script, install

VARIABLE = "_WEFT_COMPLETE"


class Shell(StrEnum):
    """A shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script: use `eval "$(weft completion bash)"`, or save it for the shell to load.

    `weft --install-completion` saves it for the shell in use.
    """
    print(get_completion_script(prog_name="weft", complete_var=VARIABLE, shell=shell.value).strip())


def answer_shells() -> None:
    """Register the completion classes of typer, one per shell."""
    completion_init()


def install_completion() -> None:
    """Write the script for the shell in use, and the line that loads it at the next start."""
    shell, path = install(prog_name="weft", complete_var=VARIABLE)
    print(f"completion for {shell} is in {path}; it works in shells that start from now on")
