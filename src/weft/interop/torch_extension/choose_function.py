"""Chooses the host function of a file to import: the bound one, `main`, or the one that no other calls."""

import re
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError

from .cpp_tokens import refuse
from .host_values import safe_name
from .host_view import HostView
from .signatures import Function

_BINDINGS = ("PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_FRAGMENT")
_LAUNCHES = frozenset(["<<<", "cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelEx"])


@dataclass(frozen=True)
class Choice:
    """A host function, with the template arguments that a binding gives it."""

    function: Function
    targets: tuple[tuple[int, int], ...] = ()
    others: tuple[str, ...] = ()
    """Functions that could be imported instead."""


def choose_function(view: HostView, wanted: str | None) -> Choice:
    """Return the function to follow. A kernel as `wanted` means the function that launches it."""
    if wanted is not None and wanted not in view.functions and wanted not in view.kernels:
        known = ", ".join(view.functions) or "none"
        raise UsageError(f"no host function {wanted!r} in {view.source.path}; it has {known}")
    launching = [name for name in view.functions if _launches(view, name, set())]
    bound = [each for each in _bound(view) if _reaches(view, each, launching)]
    if wanted is not None and wanted in view.functions:
        named = [each for each in bound if each.function.name == wanted or wanted in _target_words(view, each)]
        return named[0] if named else Choice(view.functions[wanted][-1])
    if not launching:
        cure = "write the launch lines by hand; weft run drafts them"
        raise refuse(view.source.path, 1, f"no host function launches a kernel: {cure}")
    called = {word for name in launching for word in _words(view, name) & set(launching) - {name}}
    uncalled = [name for name in launching if name not in called]
    names = (["main"] if "main" in launching else []) or uncalled or launching
    candidates = bound or [Choice(view.functions[name][-1]) for name in names]
    if wanted is not None:
        candidates = [each for each in candidates if _launches(view, each.function.name, set(), wanted)] or candidates
    chosen = next((each for each in candidates if each.function.name == "forward"), candidates[0])
    others = (_label(view, each) for each in candidates if each is not chosen)
    return Choice(chosen.function, chosen.targets, tuple(dict.fromkeys(others)))


def _label(view: HostView, choice: Choice) -> str:
    """Return the name that --function takes for it: where a binding passes a function, that function's name."""
    functions = [word for word in _target_words(view, choice) if word in view.functions]
    return functions[0] if functions else choice.function.name


def _target_words(view: HostView, choice: Choice) -> list[str]:
    return [view.source.spelled(*each) for each in choice.targets]


def _reaches(view: HostView, choice: Choice, launching: list[str]) -> bool:
    return choice.function.name in launching or any(word in launching for word in _target_words(view, choice))


def binding_file(path: str, view: HostView, chosen: Function) -> Path | None:
    """Return the .cpp file next to the source that binds the function, where the source does not state its arrays."""
    if _bound(view) or chosen.name == "main" or not any("*" in each.type for each in chosen.parameters):
        return None
    for file in sorted(Path(path).resolve().parent.glob("*.c*")):
        if file.suffix not in (".cpp", ".cc", ".cxx") or file == Path(path).resolve():
            continue
        text = file.read_text(errors="replace")
        if re.search(rf"\b{chosen.name}\b", text) and any(binding in text for binding in _BINDINGS):
            return file
    return None


def bound_defaults(view: HostView, function: Function) -> dict[str, str]:
    """Return the defaults of the binding, `py::arg("eps") = 1e-5`, and those of the function itself."""
    found: dict[str, str] = {}
    for parameter in function.parameters:
        if parameter.default is not None:
            found[parameter.name] = view.source.spelled(*parameter.default)
    for binding in _BINDINGS:
        for each in view.functions.get(binding, ()):
            for start, end in view.source.split(each.start, each.end, ";"):
                text = view.source.spelled(start, end)
                if re.search(rf"\b{function.name}\b", text):
                    found |= dict(re.findall(r'arg\(\s*"(\w+)"\s*\)\s*=\s*([^,)]+)', text))
    return {safe_name(key): value.strip() for key, value in found.items()}


def _words(view: HostView, name: str) -> set[str]:
    return {token.text for each in view.functions[name] for token in view.source.tokens[each.start : each.end]}


def _launches(view: HostView, name: str, seen: set[str], kernel: str = "") -> bool:
    if name in seen or name in _BINDINGS:
        return False
    words = _words(view, name)
    if words & _LAUNCHES and (not kernel or kernel in words):
        return True
    seen.add(name)
    return any(_launches(view, other, seen, kernel) for other in words & set(view.functions) - seen)


def _bound(view: HostView) -> list[Choice]:
    """Return the functions that the bindings name, in order: `&f`, `&f<g>`."""
    source = view.source
    found: dict[str, Choice] = {}
    for binding in _BINDINGS:
        for each in view.functions.get(binding, ()):
            at = each.start
            while at < each.end:
                name, close = source.tokens[at].text, source.angles.get(at + 1)
                if source.tokens[at].kind == "word" and name in view.functions:
                    targets = tuple(source.split(at + 2, close)) if close is not None else ()
                    found.setdefault(source.spelled(at, (close or at) + 1), Choice(view.functions[name][-1], targets))
                at = close if close is not None else at + 1
    return list(found.values())
