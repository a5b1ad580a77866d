"""A torch-extension file → a kernel file of Weft: device code as it stands, and launch lines from its host code."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.core.errors import CompileError, UsageError
from weft.core.records import Binary
from weft.engines.bind import bind_numbers
from weft.engines.launch_lines import parse_lines
from weft.toolchain.cuda import compile_cuda

from .attention_lines import Unsaid, as_task, before_launch, complete
from .cpp_items import Item
from .cpp_tokens import CppSource, refuse
from .device_part import DevicePart, separate
from .host_expressions import type_element
from .host_statements import HostRun
from .host_values import Items, Other, Pointer, Scope, Tensor, Value, named, safe_name
from .import_lines import ELEMENT, Draft, ImportSettings, Problem
from .signatures import Function, Parameter, host_functions, kernel_signatures
from .size_names import infer_ranks

_LINE = re.compile(r"^\s*//+\s*weft\s*:(?!\s*allow\b).*$", re.IGNORECASE)
_DEFINE = re.compile(r"(?P<head>//+\s*weft\s*:\s*define\s+(?P<name>\w+)\s*=\s*)(?P<value>.*)", re.IGNORECASE)
_NUMBER = re.compile(r"\b(int|int64_t|int32_t|long|unsigned|size_t|bool|float|double|uint32_t)\b")
_BINDINGS = ("PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_FRAGMENT")


@dataclass(frozen=True)
class Imported:
    """The file Weft runs, the launch lines at its head, and what is left to complete in them."""

    text: str
    lines: tuple[str, ...]
    function: str
    """The host function they come from; empty: the file had lines of its own."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    parameters: tuple[str, ...] = ()
    """What the host function takes, in order: arrays and scalars by their names in the launch lines."""
    returned: tuple[str, ...] = ()
    """The arrays it returns, in order; empty names stand for what is no array of the lines."""
    device: str = ""
    """The device code alone, its pieces at their line numbers of the file."""
    origins: tuple[int, ...] = ()
    """Of each of `lines`: the line of the file it was read from."""


def import_torch(
    path: str,
    *,
    text: str | None = None,
    function: str | None = None,
    shapes: Mapping[str, Sequence[str]] = {},
    values: Mapping[str, str] = {},
    arch: str = "sm_89",
    include_dirs: Sequence[str] = (),
    attention: bool = False,
) -> Imported:
    """Separate `path`, or its `text` where it is read already. Raises Unsupported, with the line and what to do, where
    that is not possible.

    `attention` completes what names of attention say, and gives arrays of attention the names and ranks of the tasks.
    """
    if text is None:
        text = _read(path)
    own = parse_lines(text, path)
    if own.launches:
        without = frozenset(line.name for line in own.defines)
        part = separate(text, path, without=without)
        lines = _settled([line.strip() for line in text.splitlines() if _LINE.match(line)], part.defines)
        own = parse_lines("\n".join(lines), path)
        # What it requires of its sizes is a matter of the call, not of the defaults it is compiled with here.
        defaults = bind_numbers(replace(own, requires=()), path, sizes={}, defines={})
        _compile(part, defaults.defines, [], arch, include_dirs)
        taken = tuple(line.name for line in own.arrays if line.role in ("in", "inout"))
        given = tuple(line.name for line in own.arrays if line.role == "out")
        return Imported(_file(path, lines, part.text, ""), tuple(lines), "", parameters=taken, returned=given)
    part = separate(text, path)
    kernels = kernel_signatures(part.source, part.kept)
    if not kernels:
        raise refuse(path, 1, "no __global__ function: there is nothing to run")
    functions = host_functions(part.source, part.host)
    chosen = _choose(part, functions, function)
    settings = ImportSettings(shapes, {**_bound_defaults(part.source, functions, chosen.name), **values})
    settings = replace(settings, aliases=_aliases(part), constants=_constant_shapes(part))
    draft, returned = _follow(part, functions, chosen, settings)
    unsaid = complete(draft.said(_numbers(part))) if attention else Unsaid()
    if unsaid.shapes or unsaid.values:
        settings = replace(
            settings, shapes={**unsaid.shapes, **settings.shapes}, values={**settings.values, **unsaid.values}
        )
        draft, returned = _follow(part, functions, chosen, settings)
    if draft.defines:  # a launch line's define takes their place
        part = separate(text, path, without=frozenset(draft.defines))
    entries = [entry for entry in (draft.entry(launch) for launch in draft.run.launches) if entry is not None]
    defines = {name: str(value) for name, value in draft.defines.items()}
    binary = _compile(part, defines, entries, arch, include_dirs)
    rows, renamed = draft.lines(binary), list[str]()
    if attention:
        rows, renamed = as_task(before_launch(rows, draft.requires()))
    head = [f"// weft: {row}".rstrip() for row in rows]
    problems = tuple(sorted(draft.problems, key=lambda problem: problem.line))
    granted = {note: chosen.line for note in (*unsaid.notes, *renamed)}
    notes = tuple(Problem(line, note) for note, line in {**granted, **draft.run.facts.notes}.items())
    remarks = [f"// {path}:{each.line}: {each.text}" for each in (*problems, *notes)]
    return Imported(
        _file(path, [*head, *remarks], part.text, chosen.name),
        tuple(head),
        chosen.name,
        problems,
        notes,
        tuple(safe_name(parameter.name) for parameter in chosen.parameters),
        returned,
        part.text,
        _origins(rows, chosen, draft),
    )


def _origins(rows: Sequence[str], chosen: Function, draft: Draft) -> tuple[int, ...]:
    """Lines of a launch belong to its `<<<`, the others to the host function."""
    found, launches = [], iter(draft.run.launches)
    line = chosen.line
    for row in rows:
        if row.startswith("launch "):
            line = next(launches).line
        found.append(line)
    return tuple(found)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _settled(lines: Sequence[str], macros: Mapping[str, str]) -> list[str]:
    """Lines of a file that also defines their macros: what the file was compiled with, not the lines' defaults."""
    found = []
    for line in lines:
        match = _DEFINE.match(line)
        value = macros.get(match["name"]) if match else None
        if match and value is not None:
            line = match["head"] + (f'"{value}"' if match["value"].startswith('"') else value)
        found.append(line)
    return found


def _file(path: str, head: Sequence[str], body: str, function: str) -> str:
    origin = f"the launch lines from its function {function}" if function else "with its own launch lines"
    return "\n".join([f"// The device code of {path}, {origin}, by weft import.", *head, "", body.rstrip(), ""])


# Which host function.
def _choose(part: DevicePart, functions: Mapping[str, Function], wanted: str | None) -> Function:
    source = part.source
    if wanted is not None:
        if wanted not in functions:
            raise UsageError(f"no host function {wanted!r} in {source.path}; it has {', '.join(functions) or 'none'}")
        return functions[wanted]
    launching = {name for name in functions if _launches(source, functions, name, set())}
    if not launching:
        cure = "write the launch lines by hand; weft run drafts them"
        raise refuse(source.path, 1, f"no host function launches a kernel: {cure}")
    bound = [name for name in _bound(source, functions) if name in launching]
    called = {word for name in launching for word in _words(source, functions[name]) & launching - {name}}
    candidates = bound or [name for name in launching if name not in called] or list(launching)
    return functions["forward" if "forward" in candidates else candidates[0]]


def _words(source: CppSource, function: Function) -> set[str]:
    return {token.text for token in source.tokens[function.start : function.end]}


def _launches(source: CppSource, functions: Mapping[str, Function], name: str, seen: set[str]) -> bool:
    if name in seen or name in _BINDINGS:
        return False
    words = _words(source, functions[name])
    if "<<<" in words or words & {"cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelEx"}:
        return True
    return any(_launches(source, functions, other, seen | {name}) for other in words & set(functions))


def _bound(source: CppSource, functions: Mapping[str, Function]) -> list[str]:
    """Functions that the bindings name, in their order."""
    found: dict[str, None] = {}
    for binding in _BINDINGS:
        if binding in functions:
            body = source.tokens[functions[binding].start : functions[binding].end]
            found |= dict.fromkeys(token.text for token in body if token.text in functions)
    return list(found)


def _bound_defaults(source: CppSource, functions: Mapping[str, Function], name: str) -> dict[str, str]:
    """`py::arg("eps") = 1e-5` of the binding, and defaults of the function itself."""
    found: dict[str, str] = {}
    for parameter in functions[name].parameters:
        if parameter.default is not None:
            found[parameter.name] = source.spelled(*parameter.default)
    for binding in _BINDINGS:
        if binding not in functions:
            continue
        for start, end in source.split(functions[binding].start, functions[binding].end, ";"):
            text = source.spelled(start, end)
            if re.search(rf"\b{name}\b", text):
                found |= dict(re.findall(r'arg\(\s*"(\w+)"\s*\)\s*=\s*([^,)]+)', text))
    return {safe_name(key): value.strip() for key, value in found.items()}


# Following it.
def _follow(
    part: DevicePart, functions: Mapping[str, Function], chosen: Function, settings: ImportSettings
) -> tuple[Draft, tuple[str, ...]]:
    """The launches that the function makes, and the arrays it returns."""
    words = [token.text for token in part.source.tokens]
    concrete = ELEMENT in words or any(
        words[at : at + 3] == ["sizeof", "(", "scalar_t"] for at in range(len(words) - 2)
    )
    ranks: dict[str, int] = {}
    returned: tuple[str, ...] = ()
    kernels = kernel_signatures(part.source, part.kept)
    for _ in range(3):
        run = HostRun(
            part.source,
            functions,
            kernels,
            (part.defines, part.function_macros),
            _constants(part),
            element="float" if concrete else ELEMENT,
            ranks=ranks,
        )
        scope, scalars = _parameters(run, chosen)
        run.program_sizes = {} if chosen.name == "main" else None
        outcome = run.execute(chosen.start, chosen.end, scope)
        if outcome is not None and outcome.value is not None:
            _mark_returned(outcome.value)
            returned = _returned(outcome.value)
        found = infer_ranks(run.facts, settings.shapes)
        if found == ranks:
            break
        ranks = found
    if not run.launches:
        raise refuse(part.source.path, chosen.line, f"{chosen.name} reaches no launch: write the lines by hand")
    run.facts.line = chosen.line
    for name in {chosen.name, *run.called}:
        for at in range(functions[name].start, functions[name].end):
            if part.source.tokens[at].text == "<<<" and at not in run.reached:
                line = part.source.tokens[at].line
                raise refuse(part.source.path, line, "this launch is not reached: write the launch lines by hand")
    _note_ranks(run, settings)
    given = run.program_sizes or {}
    scalars |= {name: Parameter(name, "int") for name in given}
    settings = replace(settings, values={**{name: str(value) for name, value in given.items()}, **settings.values})
    return Draft(run, scalars, settings), returned


def _note_ranks(run: HostRun, settings: ImportSettings) -> None:
    """Say where the number of dimensions is only what the host happens to read."""
    sure = run.facts.checked | run.facts.counted | set(settings.shapes)
    sure |= {tensor.name for pair in run.facts.alike for tensor in pair}
    for name in run.facts.axes:
        if name not in sure:
            rank = run.facts.ranks.get(name, 0)
            dimensions = f"{rank} dimension{'s'[: rank > 1]}"
            line = run.tensors[name].line if name in run.tensors else run.facts.line
            run.facts.notes[f"{name} is taken to have {dimensions}: the host reads no more of its shape"] = line


def _parameters(run: HostRun, chosen: Function) -> tuple[Scope, dict[str, Parameter]]:
    scope, scalars = Scope(), dict[str, Parameter]()
    for parameter in chosen.parameters:
        value: Value = Other()
        name = safe_name(parameter.name)
        if "vector" in parameter.type or "TensorList" in parameter.type:
            value = Other()
        elif "Tensor" in parameter.type:
            value = run.tensors[name] = Tensor(name, "argument", chosen.line)
        elif "*" not in parameter.type and _NUMBER.search(parameter.type):
            number = named(name)
            value = replace(number, floating=bool(re.search(r"\b(float|double)\b", parameter.type)))
            scalars[name] = parameter
        elif "*" in parameter.type:
            tensor = Tensor(name, "argument", chosen.line, type_element(parameter.type))
            run.tensors[name] = tensor
            value = Pointer(tensor, parameter.type)
        scope.names[parameter.name] = value
    return scope, scalars


def _mark_returned(value: Value) -> None:
    if isinstance(value, Tensor):
        value.memory.returned = True
    elif isinstance(value, Items):
        for each in value.values:
            _mark_returned(each)


def _returned(value: Value) -> tuple[str, ...]:
    """Names in order; a view is the memory it shows, and its own shape is not known here."""
    if isinstance(value, Tensor):
        return (value.name,) if value.base is None else ("",)
    if isinstance(value, Items):
        return tuple(name for each in value.values for name in _returned(each))
    return ("",)


def _compile(
    part: DevicePart, defines: Mapping[str, str], entries: Sequence[str], arch: str, include_dirs: Sequence[str]
) -> Binary:
    """The device code alone must compile: whatever it still needs of the host shows here, at its line."""
    try:
        return compile_cuda(
            part.text,
            name=part.source.path,
            arch=arch,
            defines=defines,
            include_dirs=include_dirs,
            entries=list(dict.fromkeys(entries)),
        )
    except CompileError as error:
        first = next((each for each in error.diagnostics if each.severity == "error"), None)
        line = first.place.line if first is not None and first.place is not None else 1
        message = first.message if first is not None else str(error)
        raise refuse(part.source.path, line, f"the device code does not compile by itself: {message}") from error


# What the file's declarations say.
def _others(part: DevicePart) -> list[Item]:
    return [item for item in (*part.kept, *part.host) if item.kind == "other"]


def _constants(part: DevicePart) -> dict[str, tuple[int, int]]:
    """`constexpr int BLOCK = 256;` → the tokens of its value."""
    found: dict[str, tuple[int, int]] = {}
    for item in _others(part):
        if {"const", "constexpr"} & set(item.head):
            for start, end in part.source.split(item.start, item.end - 1):
                equals = next((at for at in range(start, end) if part.source.tokens[at].text == "="), None)
                if equals is not None and part.source.tokens[equals - 1].kind == "word":
                    found[part.source.tokens[equals - 1].text] = (equals + 1, end)
    return found


def _numbers(part: DevicePart) -> dict[str, str]:
    """Constants of the file that are whole numbers: #define and constexpr."""
    spelled = {name: part.source.spelled(*tokens) for name, tokens in _constants(part).items()}
    return {name: value for name, value in {**spelled, **part.defines}.items() if value.isdigit()}


def _aliases(part: DevicePart) -> dict[str, str]:
    """Other names of types: using, typedef and #define."""
    found = dict(part.defines)
    for item in _others(part):
        text = part.source.spelled(item.start, item.end - 1)
        if match := re.fullmatch(r"using (\w+) = (.+)", text):
            found[match[1]] = match[2]
        elif match := re.fullmatch(r"typedef (.+?) (\w+)", text):
            found[match[2]] = match[1]
    return found


def _constant_shapes(part: DevicePart) -> dict[str, tuple[str, str]]:
    """`__constant__ float table[256];`"""
    found: dict[str, tuple[str, str]] = {}
    for item in part.kept:
        text = part.source.spelled(item.start, item.end)
        match = re.match(r"(?:static )?(?:__constant__|__device__) ([\w ]+?) (\w+)((?:\s*\[[^\]]*\])*)\s*;", text)
        if item.kind == "other" and match:
            sizes = [size.strip() for size in re.findall(r"\[([^\]]*)\]", match[3])]
            values = [part.defines.get(size, size) for size in sizes]
            found[match[2]] = (type_element(match[1]) or "f32", ", ".join(values) or "1")
    return found
