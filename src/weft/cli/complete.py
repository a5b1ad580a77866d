"""Completions of a verb: its options, and the names that are valid as their values. No heavy module is loaded.

A shell calls this at every TAB, and most verbs load a compiler: options are therefore read from the verb's source.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

Names = Callable[[], Iterable[str]]

SOURCES = (".cu", ".ptx", ".py")
SPELLED_OUT = {
    "tasks": (
        "qk_dot", "sdpa", "fp8_sdpa", "quantised_sdpa", "sdpa_decode", "sdpa_backward", "sliding_window",
        "softcap_sinks", "sdpa_varlen", "paged_decode", "paged_decode_fp8",
    ),
    "regimes": (
        "unit_normal", "logits_8", "logits_16", "logits_32", "one_hot", "v_offset", "offsets", "zeros", "all_equal",
        "outlier_channels", "uneven_channels", "large_magnitude", "denormals", "sorted_keys", "reversed_keys",
        "zero_rows", "small_values", "long_tail",
    ),
    "masks": ("none", "top_left", "bottom_right"),
    "dtypes": ("f16", "bf16", "f32"),
    "encodings": ("sim_fp8", "e4m3"),
    "tools": ("initcheck", "racecheck", "all"),
}  # fmt: skip
"""Copies of names whose modules load NumPy or read files; tests/cli checks that they agree."""


@dataclass(frozen=True)
class Parameter:
    """One option or argument of a verb."""

    name: str
    """The name of the function's parameter."""
    options: tuple[str, ...]
    """Spellings such as `--shapes` or `-I`; empty for an argument."""
    takes_value: bool


def read_parameters(target: str) -> tuple[Parameter, ...] | None:
    """Return the parameters of `module:function`, or None if the verb must be loaded to find them."""
    module, _, function = target.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    tree = ast.parse(Path(spec.origin).read_text())
    aliases = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            found = [_parameter(row, aliases) for row in (*node.args.args, *node.args.kwonlyargs)]
            return None if None in found else tuple(row for row in found if row is not None)
    return None


def _parameter(row: ast.arg, aliases: dict[str, ast.expr]) -> Parameter | None:
    annotation = row.annotation
    if isinstance(annotation, ast.Name):
        annotation = aliases.get(annotation.id)
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, ast.Call() as call])):
            return _typed(row.arg, kind, call)
    return None


def _typed(name: str, kind: ast.expr, call: ast.Call) -> Parameter | None:
    match call.func:
        case ast.Attribute(value=ast.Name(id="typer"), attr="Argument"):
            return Parameter(name, (), True)
        case ast.Attribute(value=ast.Name(id="typer"), attr="Option"):
            flag = isinstance(kind, ast.Name) and kind.id == "bool"
            spelled = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            if not spelled:  # typer's rule
                plain = name.replace("_", "-")
                spelled = [f"--{plain}", f"--no-{plain}"] if flag else [f"--{plain}"]
            return Parameter(name, tuple(part for text in spelled for part in text.split("/")), not flag)
    return None


def _rungs() -> Iterable[str]:
    from weft.kernels.ladder import RUNGS

    return RUNGS


def _shapes() -> Iterable[str]:
    from weft.attention.shapes import SHAPES

    return SHAPES


def _codes() -> Iterable[str]:
    from weft.core.finding_codes import FINDING_CODES

    return FINDING_CODES


def _gpus() -> Iterable[str]:
    from weft.core.chips import chips

    return chips()


def _architectures() -> Iterable[str]:
    from weft.core.chips import smallest_chips

    return smallest_chips()


def _kind(name: str) -> Names:
    return lambda: SPELLED_OUT[name]


def _these(*names: str) -> Names:
    return lambda: names


VALUES: dict[str, Names] = {
    "targets": _rungs, "target": _rungs, "kernel": _rungs, "--rungs": _rungs, "--start": _rungs,
    "--source-mutants": _rungs, "code": _codes, "--shapes": _shapes, "--shape": _shapes, "--bench-shapes": _shapes,
    "task": _kind("tasks"), "--task": _kind("tasks"), "--regimes": _kind("regimes"), "--regime": _kind("regimes"),
    "--masks": _kind("masks"), "--mask": _kind("masks"), "--dtypes": _kind("dtypes"), "--dtype": _kind("dtypes"),
    "--encodings": _kind("encodings"), "--encoding": _kind("encodings"), "--gpu": _gpus,
    "--arch": _architectures, "--tool": _kind("tools"), "--compiler": _these("nvrtc", "nvcc"),
    "--format": _these("text", "json", "github", "sarif"), "--mode": _these("hardware", "ieee"),
    "--policy": _these("tight", "loose"), "--l2": _these("cold", "warm", "both"),
    "shell": _these("bash", "zsh", "fish"), "--as": _these("ptx", "sass", "llvm", "resources", "shared"),
}  # fmt: skip
"""An option or an argument's name → its possible values."""

FILES = ("targets", "target", "kernel", "source", "--source-mutants")
"""Arguments that may also be a kernel file."""


@dataclass(frozen=True)
class Offer:
    """One completion, with the attributes of click's CompletionItem that typer's shell scripts print."""

    value: str
    type: str = "plain"
    help: str | None = None


class LightVerb(TyperCommand):
    """Replaces a verb while a shell completes it; accepts any words."""

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        settings: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, callback=None, context_settings=settings, add_help_option=False)
        self.parameters = parameters

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return [Offer(word) for word in self.offers(ctx.args, incomplete)]

    def offers(self, words: Sequence[str], incomplete: str) -> list[str]:
        """Return the completions after these words of the verb."""
        if incomplete.startswith("-"):
            names = [name for row in self.parameters for name in row.options]
            return [name for name in (*names, "--help") if name.startswith(incomplete)]
        before = [word for word in words if word != "="]  # a shell may split --shapes=small in three words
        for row in self.parameters:
            if row.takes_value and before and before[-1] in row.options:
                return _values(before[-1], incomplete)
        arguments = [row.name for row in self.parameters if not row.options]
        return _values(arguments[0], incomplete) if arguments else []


def light_verb(name: str, target: str) -> LightVerb | None:
    """Return the verb's light replacement, or None if the verb must be loaded for completion."""
    parameters = read_parameters(target)
    return LightVerb(name, parameters) if parameters is not None else None


def _values(where: str, incomplete: str) -> list[str]:
    """Return the completions of a value; of a list with commas, of its last name."""
    names = VALUES.get(where, tuple)()
    first, comma, last = incomplete.rpartition(",")
    found = [first + comma + name for name in names if name.startswith(last)]
    return found + (_files(incomplete) if where in FILES else [])


def _files(incomplete: str) -> list[str]:
    folder, slash, start = incomplete.rpartition("/")
    try:
        inside = sorted(Path(folder + slash or ".").iterdir())
    except OSError:
        return []
    shown = [path for path in inside if path.name.startswith(start) and not path.name.startswith(".")]
    return [
        folder + slash + path.name + ("/" if path.is_dir() else "")
        for path in shown
        if path.is_dir() or path.suffix in SOURCES
    ]
