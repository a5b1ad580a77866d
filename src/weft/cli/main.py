"""The command `weft`: loads a verb only when it is called, maps errors to exit codes, prints the greeting.

A verb is a function in its own file, annotated for typer, with a row in verbs.py. It returns its exit code (None is 0)
or raises a WeftError. Exit codes: 0 clean, 1 findings or wrong, 2 usage or tool failure, 3 could not be judged
(unsupported), 4 stopped at a checkpoint of a budget (journal), 5 nothing selected.
"""

import io
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import weft
from weft.core import knobs
from weft.core.errors import CompileError, ParseError, Unsupported, WeftError
from weft.journal.reminder import anything_runs

from .complete import light_verb
from .help_text import FullSummaries, add_examples
from .terminal import paint, say_error
from .verbs import GROUPS, VERBS, Verb

EXIT_FAILURE = 2
EXIT_UNSUPPORTED = 3

SPELLINGS = {"shape": "shapes", "regime": "regimes", "mask": "masks", "dtype": "dtypes", "encoding": "encodings"}
"""Options that every verb accepts in both spellings; --help shows the plural where several names are allowed."""

_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 120,
    "token_normalize_func": lambda word: SPELLINGS.get(word, word),
}

WHAT = "Weft runs the real compiled attention kernel on this CPU, checks it and shows where it is wrong. No GPU needed."
NEXT = {
    "weft demo": "find, explain and fix a bug in a sample kernel",
    "weft check wmma": "check a rung of the ladder, or your kernel.cu",
    "weft diagnose kernel.cu": "find its first wrong stage, the line and the cure",
    "weft profile wmma --gpu l4": "model its cost on a GPU: counters, bounds",
    "weft doctor": "show what is installed and what is missing",
    "weft --help": "list every verb; weft VERB --help lists its options",
}
"""Command → what it does."""

NARROW = 80
"""Columns below which a command and its description are printed on two lines."""


class PlainHelp:
    """Makes the default of --help False: with None, typer would load pydantic to check the type."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.default = False
        return option


class VerbCommand(PlainHelp, TyperCommand):
    """A verb."""


class VerbGroup(PlainHelp, FullSummaries):
    """Lists the verbs in their groups; imports one only to run it, to show its help or to complete its options."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, VERBS))  # the summaries of all groups start in one column
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), verb.help) for name, verb in verbs.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in VERBS:
            if name != "journal" and not ctx.resilient_parsing:  # the journal shows machines itself
                _remind()
            light = light_verb(name, VERBS[name].target) if ctx.resilient_parsing else None
            command = light or _load(name, VERBS[name])
        return name, command, rest

    def invoke(self, ctx: Any) -> None:
        status = super().invoke(ctx)
        if isinstance(status, int):
            raise typer.Exit(status)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if knobs.completing():
        from .completion import answer_shells

        answer_shells()
    if isinstance(sys.stdout, io.TextIOWrapper):  # keep the order with standard error in a pipe, too
        sys.stdout.reconfigure(line_buffering=True)
    try:
        _application().main(args=args, prog_name="weft")
    except SystemExit as stop:  # typer ends every call this way
        return stop.code if isinstance(stop.code, int) else EXIT_FAILURE
    except WeftError as error:
        return _refuse(error)
    except Exception as error:  # an uncaught exception would exit with 1, which means "findings"
        traceback.print_exc()
        say_error("this is a bug in Weft, not in your kernel: report it with the lines above and `weft doctor --json`")
        say_error(f"internal error: {type(error).__name__}: {error}")
        return EXIT_FAILURE
    return 0


def _application() -> Any:
    # typer's options for completion would load pydantic in every call; --install-completion replaces them.
    app = typer.Typer(cls=VerbGroup, add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
    app.callback(invoke_without_command=True)(_weft)
    for name, verb in VERBS.items():
        app.command(name, help=verb.help)(_listed)
    return typer.main.get_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {weft.__version__}")
        raise typer.Exit


def _install_completion(wanted: bool) -> None:
    if wanted:
        from .completion import install_completion

        install_completion()
        raise typer.Exit


def _weft(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
    install_completion: Annotated[
        bool,
        typer.Option(
            "--install-completion",
            callback=_install_completion,
            is_eager=True,
            help="Install TAB completion for this shell.",
        ),
    ] = False,
) -> None:
    """Judge, debug, profile and search fused attention kernels: the real compiled kernel runs on this CPU."""
    if context.invoked_subcommand is None:
        _greet()


def _listed() -> None:
    """Stands for a verb until VerbGroup loads the real function."""


def _load(name: str, verb: Verb) -> Any:
    module, _, attribute = verb.target.partition(":")
    function: Callable[..., Any] | typer.Typer = getattr(import_module(module), attribute)
    if isinstance(function, typer.Typer):  # a verb with sub-commands
        app = function
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
        app.command(name, cls=VerbCommand)(function)
    return add_examples(typer.main.get_command(app), verb.examples)


def _refuse(error: WeftError) -> int:
    if isinstance(error, CompileError):
        for diagnostic in error.diagnostics:
            print(diagnostic, file=sys.stderr)
    say_error(str(error))
    return EXIT_UNSUPPORTED if isinstance(error, ParseError | Unsupported) else EXIT_FAILURE


def _greet() -> None:
    """Print what Weft is and what to do next, folded to the terminal's width."""
    columns = shutil.get_terminal_size().columns
    print(paint(f"weft {weft.__version__}", "heading"))
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


def _remind() -> None:
    """Print a GPU machine that still costs rent, on a terminal only: the output of scripts and CI must not change."""
    if not sys.stderr.isatty() or not anything_runs():
        return
    from weft.journal.view import machine_lines

    from .journal_output import open_journal

    with open_journal() as books:
        lines = machine_lines(books.ledger())
    more = f" (and {len(lines) - 1} more)" if lines[1:] else ""
    for line in lines[:1]:
        print(f"weft: {line}{more}", file=sys.stderr)
