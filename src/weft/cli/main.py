"""The command `weft`: its verbs, each loaded only when it is called, its exit codes, and what it says alone.

A verb is a function in its own file, annotated for typer. It returns its exit code (None is 0) or raises
a WeftError. Exit codes: 0 clean, 1 findings or wrong, 2 usage or tool failure, 3 could not be judged
(unsupported), 4 stopped at a checkpoint of a budget (journal), 5 nothing selected.
"""

import io
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import weft
from weft.core import knobs
from weft.core.errors import CompileError, ParseError, Unsupported, WeftError
from weft.journal.reminder import anything_runs

from .complete import light_verb
from .terminal import paint, say_error

EXIT_FAILURE = 2
EXIT_UNSUPPORTED = 3

SPELLINGS = {"shape": "shapes", "regime": "regimes", "mask": "masks", "dtype": "dtypes", "encoding": "encodings"}
"""Options that every verb takes in both spellings; --help shows the one that fits: several names, or one."""

_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 120,
    "token_normalize_func": lambda word: SPELLINGS.get(word, word),
}

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


@dataclass(frozen=True)
class Verb:
    """Where a verb lives, and the line `weft --help` shows without loading it."""

    target: str
    """module:function"""
    help: str


VERBS = {
    "demo": Verb("weft.cli.demo:demo", "A wrong kernel: found, explained, mended, green. Under a minute."),
    "check": Verb("weft.cli.check:check", "Judge kernels: memory, races, numbers, determinism."),
    "diagnose": Verb("weft.cli.diagnose:diagnose", "Name a kernel's first wrong stage, its line and its cure."),
    "certify": Verb("weft.cli.certify:certify", "Try to fool a task's gate with wrong implementations."),
    "list": Verb("weft.cli.list:list_all", "List kernels, shapes and regimes."),
    "show": Verb("weft.cli.show:show", "Show what a kernel compiles to: PTX, resources, instructions."),
    "run": Verb("weft.cli.run:run", "Run a kernel on the virtual GPU."),
    "triton": Verb("weft.cli.triton:app", "Run a script's Triton kernels on the virtual GPU."),
    "profile": Verb("weft.cli.profile:profile", "Model a kernel on a GPU: counters, bounds, occupancy, costly lines."),
    "bench": Verb("weft.cli.bench:bench_verb", "Time kernels on a real GPU, against PyTorch or each other."),
    "validate-gpu": Verb("weft.cli.validate_gpu:validate_gpu", "Write one bundle on a real GPU: predicted, measured."),
    "import": Verb("weft.cli.import_:import_file", "Make device code and launch lines of a torch extension."),
    "export": Verb("weft.cli.export:export", "Write a kernel in the format of another system."),
    "evolve": Verb("weft.cli.evolve:evolve", "Search for a faster kernel: propose, judge, keep three, learn."),
    "runs": Verb("weft.cli.runs:runs", "List searches; show one with lineage, levers and insights."),
    "worker": Verb("weft.cli.worker:worker", "Judge what searches queue in a store, until nothing is left."),
    "fleet": Verb("weft.cli.fleet:app", "Watch workers: queue, rates, metrics, log."),
    "report": Verb("weft.cli.report:report", "Write one page to look at: of a kernel, or of a search."),
    "journal": Verb("weft.cli.journal:journal", "Keep the books: goals, results, decisions, time and money."),
    "mcp": Verb("weft.cli.mcp:mcp", "Give a coding agent these tools (MCP over stdio)."),
    "explain": Verb("weft.cli.explain:explain", "Say what a finding's code means, with example and cure."),
    "bundle": Verb("weft.cli.bundle:bundle", "Write one file: kernel, workloads, versions, verdict."),
    "replay": Verb("weft.cli.replay:replay", "Judge a bundle again here and say what differs."),
    "doctor": Verb("weft.cli.doctor:doctor", "Say what is installed here and what is missing."),
    "completion": Verb("weft.cli.completion:completion", "Print the completion script of a shell."),
}


class PlainHelp:
    """--help is False where it is not given: None would make typer load pydantic to say that it is no bool."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.default = False
        return option


class VerbCommand(PlainHelp, TyperCommand):
    """A verb."""


class VerbGroup(PlainHelp, TyperGroup):
    """Lists verbs from the table; imports one only to run it, to show its help or to complete its options."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name in VERBS:
            if name != "journal" and not ctx.resilient_parsing:  # the journal shows machines itself; a shell completes
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
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe gets lines in order with standard error, as a terminal
        sys.stdout.reconfigure(line_buffering=True)
    try:
        _application().main(args=args, prog_name="weft")
    except SystemExit as stop:  # typer ends every call, good or bad, this way
        return stop.code if isinstance(stop.code, int) else EXIT_FAILURE
    except WeftError as error:
        return _refuse(error)
    except Exception as error:  # an uncaught exception would exit with 1, which means "findings"
        traceback.print_exc()
        say_error("this is a bug of Weft, not of your kernel: report it with the lines above and `weft doctor --json`")
        say_error(f"internal error: {type(error).__name__}: {error}")
        return EXIT_FAILURE
    return 0


def _application() -> Any:
    # typer's own options for completion would load pydantic in every call: --install-completion is ours.
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
            "--install-completion", callback=_install_completion, is_eager=True, help="Make TAB complete in this shell."
        ),
    ] = False,
) -> None:
    """The workbench for fused attention kernels: run the real compiled kernel on a CPU."""
    if context.invoked_subcommand is None:
        _greet()


def _listed() -> None:
    """A verb's row in the help; VerbGroup puts the real function in its place before anything is called."""


def _load(name: str, verb: Verb) -> Any:
    module, _, attribute = verb.target.partition(":")
    function: Callable[..., Any] | typer.Typer = getattr(import_module(module), attribute)
    if isinstance(function, typer.Typer):  # a verb with verbs of its own
        return typer.main.get_command(function)
    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)
    app.command(name, cls=VerbCommand)(function)
    return typer.main.get_command(app)


def _refuse(error: WeftError) -> int:
    if isinstance(error, CompileError):
        for diagnostic in error.diagnostics:
            print(diagnostic, file=sys.stderr)
    say_error(str(error))
    return EXIT_UNSUPPORTED if isinstance(error, ParseError | Unsupported) else EXIT_FAILURE


def _greet() -> None:
    """Say what Weft is and what to do next, folded to the terminal's width."""
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
    """Show a GPU machine that still costs rent, on a terminal only: scripts and CI read exactly what they asked for."""
    if not sys.stderr.isatty() or not anything_runs():
        return
    from weft.journal.view import machine_lines

    from .journal_output import open_journal

    with open_journal() as books:
        lines = machine_lines(books.ledger())
    more = f" (and {len(lines) - 1} more)" if lines[1:] else ""
    for line in lines[:1]:
        print(f"weft: {line}{more}", file=sys.stderr)
