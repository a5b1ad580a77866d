"""A verb's options, read from its source: a shell asks for them at every TAB, and most verbs load a compiler."""

import ast
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Parameter:
    """One option or argument of a verb."""

    name: str
    """As the function has it."""
    options: tuple[str, ...]
    """`--shapes`, `-I` …; none of an argument."""
    takes_value: bool


def read_parameters(target: str) -> tuple[Parameter, ...] | None:
    """Of `module:function`. None where the source does not say it plainly: the verb must be loaded then."""
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
            if not spelled:  # typer's own rule
                plain = name.replace("_", "-")
                spelled = [f"--{plain}", f"--no-{plain}"] if flag else [f"--{plain}"]
            return Parameter(name, tuple(part for text in spelled for part in text.split("/")), not flag)
    return None
