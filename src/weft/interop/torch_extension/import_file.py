"""A CUDA file with host code → a kernel file of Weft: its device code, and launch lines from the host code."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.attention.named_shapes import Unsaid, complete
from weft.core.errors import CompileError, Unsupported, UsageError
from weft.core.records import Binary
from weft.engines.bind import bind_numbers
from weft.engines.compile_file import compiler_options
from weft.engines.launch_lines import parse_lines
from weft.engines.launch_records import LaunchLines
from weft.toolchain.cuda import compile_cuda

from .attention_lines import as_task
from .choose_function import Choice, binding_file, bound_defaults, choose_function
from .cpp_tokens import refuse
from .device_part import DevicePart, separate
from .host_branches import without_argc
from .host_expressions import ARGC
from .host_statements import HostRun
from .host_values import Items, Other, Pointer, Scope, Tensor, Value, named, safe_name
from .host_view import HostView, view_host
from .import_lines import ELEMENT, Draft, ImportSettings, Problem
from .join_headers import join_headers
from .signatures import Function, Parameter
from .size_names import infer_ranks

_LINE = re.compile(r"^\s*//+\s*weft\s*:(?!\s*allow\b).*$", re.IGNORECASE)
_DEFINE = re.compile(r"(?P<head>//+\s*weft\s*:\s*define\s+(?P<name>\w+)\s*=\s*)(?P<value>.*)", re.IGNORECASE)
_NUMBER = re.compile(r"\b(int|int64_t|int32_t|long|unsigned|size_t|bool|float|double|uint32_t)\b")
_STANDARD = frozenset(
    ["stdio.h", "stdlib.h", "string.h", "time.h", "unistd.h", "omp.h", "cublas_v2.h", "cublasLt.h", "curand.h",
     "sys/time.h", "mpi.h", "nccl.h", "cuda_profiler_api.h", "errno.h", "ctype.h", "signal.h"]
)  # fmt: skip
"""Headers of host code, which device code does not need."""


@dataclass(frozen=True)
class Imported:
    """The file that Weft runs, the launch lines at its top, and what is missing in them."""

    text: str
    lines: tuple[str, ...]
    function: str
    """The host function they come from; empty: the file contained launch lines."""
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    parameters: tuple[str, ...] = ()
    """The parameters of the host function, in order: arrays and scalars by their names in the launch lines."""
    returned: tuple[str, ...] = ()
    """The arrays it returns, in order; an empty name means a value that is not an array of the lines."""
    device: str = ""
    """Only the device code, for NVRTC."""
    origins: tuple[int, ...] = ()
    """For each of `lines`, the line of the user's file it comes from."""
    others: tuple[str, ...] = ()
    """Functions of the file that could have been chosen instead."""


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
    """Separate the file at `path`; `text` is its text if it was already read.

    Raises Unsupported, with the line and what to do, where that is not possible. `attention` completes shapes by the
    usual names of attention, and gives arrays of attention the roles of the tasks.
    """
    if text is None:
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}: {error}") from error
    own = parse_lines(text, path)
    kept = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if _LINE.match(line)]
    if own.launches:
        return _with_own_lines(text, path, [line for _, line in kept], arch, include_dirs)
    joined = join_headers(text, path, include_dirs)
    view = view_host(joined, path)
    if not view.kernels:
        raise refuse(path, 1, "the file has no __global__ function to run")
    notes = [Problem(line, note) for line, note in joined.notes]
    choice = choose_function(view, function)
    binding = binding_file(path, view, choice.function)
    if binding is not None:
        view = view_host(join_headers(f'{text}\n#include "{binding.name}"\n', path, include_dirs), path)
        choice = choose_function(view, function)
        notes.append(Problem(1, f"{choice.function.name} and how it calls this file are read from {binding}"))
    chosen, others = choice.function, choice.others
    for line, name in view.text.unset.items():
        if not name.startswith("_"):  # macros of the compiler and the system
            notes.append(Problem(line, f"{name} is assumed to be undefined: no #define of this file sets it"))
    settings = ImportSettings(shapes, {**bound_defaults(view, chosen), **values})
    kernel = None if function in view.functions else function
    unsaid = Unsaid()
    if attention:
        draft, _ = _follow(view, choice, replace(settings, guess=False), kernel)
        unsaid = complete(draft.said(view.numbers))
        settings = replace(
            settings, shapes={**unsaid.shapes, **settings.shapes}, values={**settings.values, **unsaid.values}
        )
    draft, returned = _follow(view, choice, settings, kernel)
    without = frozenset((*draft.defines, *(line.name for line in own.defines)))
    part = separate(text, path, without=without, include_dirs=include_dirs, left_out=view.text.left_out)
    defines = {name: str(value) for name, value in draft.defines.items()}
    binary = _compile(part, path, defines, list(draft.entries().values()), arch, include_dirs, own)
    made = draft.lines(binary)
    rows, renamed = as_task([row for _, row in made]) if attention else ([row for _, row in made], [])
    head = [(line, row) for line, row in kept]
    head += zip(_origins(made, rows, chosen.line), (f"// weft: {row}".rstrip() for row in rows), strict=True)
    notes += [Problem(chosen.line, note) for note in (*unsaid.notes, *renamed)]
    if others:
        notes.append(Problem(chosen.line, f"other functions that --function can import: {', '.join(others)}"))
    problems = tuple(sorted(draft.problems, key=lambda problem: problem.line))
    said = (*notes, *(Problem(line, note) for note, line in draft.run.facts.notes.items()))
    remarks = [f"// {path}:{each.line}: {each.text}" for each in (*problems, *said)]
    lines = tuple(row for _, row in head)
    return Imported(
        _file(path, [*lines, *remarks], part.text, chosen.name),
        lines,
        chosen.name,
        problems,
        said,
        tuple(safe_name(parameter.name) for parameter in chosen.parameters),
        returned,
        part.text,
        tuple(line for line, _ in head),
        others,
    )


def _origins(made: Sequence[tuple[int, str]], rows: Sequence[str], host: int) -> Iterator[int]:
    """Yield the source line of each row; added or changed rows get the host function's. Equal rows keep their order."""
    waiting = list(made)
    for row in rows:
        at = next((number for number, (_, text) in enumerate(waiting) if text == row), None)
        yield host if at is None else waiting.pop(at)[0]


def _with_own_lines(text: str, path: str, kept: Sequence[str], arch: str, include_dirs: Sequence[str]) -> Imported:
    """Import a file that contains launch lines."""
    own = parse_lines("\n".join(kept), path)
    without = frozenset(line.name for line in own.defines)
    part = separate(text, path, without=without, include_dirs=include_dirs)
    macros = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*?)[ \t]*$", text, re.MULTILINE))
    lines = _settled(kept, macros)
    own = parse_lines("\n".join(lines), path)
    # Its `require` lines are checked for each call, not for the default sizes it is compiled with here.
    defaults = bind_numbers(replace(own, requires=()), path, sizes={}, defines={})
    _compile(part, path, defaults.defines, [], arch, include_dirs, own)
    taken = tuple(line.name for line in own.arrays if line.role in ("in", "inout"))
    given = tuple(line.name for line in own.arrays if line.role == "out")
    return Imported(_file(path, lines, part.text, ""), tuple(lines), "", parameters=taken, returned=given)


def _settled(lines: Sequence[str], macros: Mapping[str, str]) -> list[str]:
    """Return the lines with the values that the file's #defines give their macros, instead of the lines' defaults."""
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


# Following it.
def _follow(
    view: HostView, choice: Choice, settings: ImportSettings, kernel: str | None
) -> tuple[Draft, tuple[str, ...]]:
    """Return the launches that the function makes, and the arrays it returns."""
    chosen = choice.function
    words = [token.text for token in view.source.tokens]
    concrete = ELEMENT in words or any(
        words[at : at + 3] == ["sizeof", "(", "scalar_t"] for at in range(len(words) - 2)
    )
    ranks: dict[str, int] = {}
    symbols: set[str] | None = None
    returned: tuple[str, ...] = ()
    for _ in range(4):
        run = HostRun(view, element="float" if concrete else ELEMENT, ranks=ranks, symbols=symbols)
        run.program, run.only_first = chosen.name == "main", kernel is None
        scope, scalars = _parameters(run, chosen)
        run.bind_targets(chosen, choice.targets, scope)
        run.scopes.append(scope)
        outcome = run.execute(chosen.start, chosen.end, scope)
        if outcome is not None and outcome.value is not None:
            _mark_returned(outcome.value)
            returned = _returned(outcome.value)
        run.facts.required = without_argc(run.facts.required)
        found = infer_ranks(run.facts, settings.shapes)
        kept = _shape_names(run)
        if found == ranks and (kept == symbols or not run.program):
            break
        ranks, symbols = found, kept if symbols is None else symbols & kept
    if not run.launches:
        raise refuse(view.source.path, chosen.line, f"{chosen.name} reaches no launch: write the launch lines by hand")
    run.facts.line = chosen.line
    _require_all_reached(view, run, chosen)
    _note_ranks(run, settings)
    return Draft(run, scalars, settings, kernel), returned


def _shape_names(run: HostRun) -> set[str]:
    """Return the integers of a program that are dimensions of arrays: its sizes. The others are its constants."""
    shapes = [run.facts.shape(run.tensors[name]) or () for name in run.passed if name in run.tensors]
    words = {word for shape in shapes for size in shape for word in re.findall(r"[A-Za-z_]\w*", size.text)}
    return words & set(run.sizes)


def _require_all_reached(view: HostView, run: HostRun, chosen: Function) -> None:
    for name in {chosen.name, *run.called} if run.stopped is None else ():
        for function in view.functions[name]:
            for at in range(function.start, function.end):
                if view.source.tokens[at].text == "<<<" and at not in run.reached and len(view.functions[name]) == 1:
                    line = view.source.tokens[at].line
                    raise refuse(view.source.path, line, "this launch is not reached: write the launch lines by hand")


def _note_ranks(run: HostRun, settings: ImportSettings) -> None:
    """Add a note where the number of dimensions is only the number that the host reads."""
    sure = run.facts.checked | run.facts.counted | set(settings.shapes)
    sure |= {tensor.name for pair in run.facts.alike for tensor in pair}
    for name in run.facts.axes:
        if name not in sure:
            rank = run.facts.ranks.get(name, 0)
            dimensions = f"{rank} dimension{'s'[: rank > 1]}"
            line = run.tensors[name].line if name in run.tensors else run.facts.line
            run.facts.notes[f"{name} is assumed to have {dimensions}: the host reads no more of its shape"] = line


def _parameters(run: HostRun, chosen: Function) -> tuple[Scope, dict[str, Parameter]]:
    scope, scalars = Scope(), dict[str, Parameter]()
    for parameter in chosen.parameters:
        value: Value = Other()
        name = safe_name(parameter.name)
        if "vector" in parameter.type or "TensorList" in parameter.type:
            value = Other()
        elif "Tensor" in parameter.type:
            value = run.tensors[name] = Tensor(name, "argument", chosen.line)
        elif chosen.name == "main":
            value = named(ARGC) if "*" not in parameter.type else Other()
        elif "*" not in parameter.type and _NUMBER.search(parameter.type):
            number = named(name)
            value = replace(number, floating=bool(re.search(r"\b(float|double)\b", parameter.type)))
            scalars[name] = parameter
        elif "*" in parameter.type:
            tensor = Tensor(name, "argument", chosen.line, run.view.element(parameter.type))
            run.tensors[name] = tensor
            value = Pointer(tensor, parameter.type)
        scope.names[parameter.name] = value
        scope.kinds[parameter.name] = parameter.type
    return scope, scalars


def _mark_returned(value: Value) -> None:
    if isinstance(value, Tensor):
        value.memory.returned = True
    elif isinstance(value, Items):
        for each in value.values:
            _mark_returned(each)


def _returned(value: Value) -> tuple[str, ...]:
    """Return the names in order; a view counts as its underlying array, and its own shape is not known here."""
    if isinstance(value, Tensor):
        return (value.name,) if value.base is None else ("",)
    if isinstance(value, Items):
        return tuple(name for each in value.values for name in _returned(each))
    return ("",)


def _compile(
    part: DevicePart,
    path: str,
    defines: Mapping[str, str],
    entries: Sequence[str],
    arch: str,
    include_dirs: Sequence[str],
    own: LaunchLines,
) -> Binary:
    """Compile the separated device code: anything it still needs from the host is an error here, at its line."""
    try:
        return compile_cuda(
            part.text,
            name=path,
            arch=arch,
            defines=defines,
            include_dirs=include_dirs,
            entries=list(dict.fromkeys(entries)),
            options=compiler_options(own),
        )
    except CompileError as error:
        raise _explained(part, path, error) from error


def _explained(part: DevicePart, path: str, error: CompileError) -> Unsupported:
    first = next((each for each in error.diagnostics if each.severity == "error"), None)
    place = first.place if first is not None else None
    message = first.message if first is not None else str(error)
    missing = [header for header in part.missing if header not in _STANDARD]
    if missing:
        message += f"; header not found: {', '.join(missing)} (give its folder with -I)"
    file, line = (place.file, place.line) if place is not None else (path, 1)
    return refuse(file, line, f"the device code does not compile by itself: {message}")
