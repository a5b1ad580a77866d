"""A torch-extension file → its device code, separated from its host code.

Kept: kernels, device functions, `__constant__` and `__device__` variables, types, constants, macros, and includes
that NVRTC can read. Dropped: host functions, bindings, includes of PyTorch. Names of PyTorch in the kept code are
replaced where CUDA has an equivalent type, else refused with their line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import Unsupported
from weft.toolchain.cuda_headers import include_dirs as toolkit_dirs

from .cpp_items import Item, read_items
from .cpp_tokens import CppSource, Token, read_tokens, refuse
from .join_headers import HOST_FOLDERS, Joined, join_headers

DEVICE_MARKS = frozenset(
    ["__global__", "__device__", "__constant__", "__shared__", "__managed__", "C10_DEVICE", "C10_HOST_DEVICE"]
)
HOST_SPACES = frozenset(["torch", "at", "c10", "pybind11", "py", "aten", "caffe2"])
_HOST_WORDS = frozenset(["cudaStream_t", "TORCH_CHECK", "AT_ASSERTM", "TORCH_LIBRARY", "PYBIND11_MODULE"])
_HOST_STD = frozenset(["vector", "string", "optional", "unordered_map", "map", "function", "shared_ptr", "cout"])
TYPES: Mapping[str, str] = {
    "Half": "__half",
    "BFloat16": "__nv_bfloat16",
    "Float8_e4m3fn": "__nv_fp8_e4m3",
    "Float8_e5m2": "__nv_fp8_e5m2",
}
"""Scalar types of at:: and c10:: that have the same bits as a CUDA type."""

_MACROS: Mapping[str, str] = {
    "C10_HOST_DEVICE": "#define C10_HOST_DEVICE __host__ __device__",
    "C10_DEVICE": "#define C10_DEVICE __device__",
    "C10_LAUNCH_BOUNDS_1": "#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)",
    "CUDA_KERNEL_LOOP": (
        "#define CUDA_KERNEL_LOOP(i, n) "
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)"
    ),
}
"""Macros of PyTorch's CUDA headers, defined where device code uses them."""

_HEADERS: Mapping[str, tuple[str, ...]] = {
    "cuda_fp16.h": ("half", "__half", "half2", "__half2"),
    "cuda_bf16.h": ("__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162"),
    "cuda_fp8.h": ("__nv_fp8_e4m3", "__nv_fp8_e5m2"),
}
_ACCESSOR = re.compile(r"(Generic)?PackedTensorAccessor(32|64)?|TensorAccessor")


@dataclass(frozen=True)
class DevicePart:
    """The source for NVRTC."""

    text: str
    missing: tuple[str, ...]
    """Headers that were not found: code that needs them does not compile."""


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def separate(
    text: str,
    path: str,
    *,
    without: frozenset[str] = frozenset(),
    include_dirs: Sequence[str] = (),
    left_out: Sequence[Token] = (),
) -> DevicePart:
    """Separate the text of a file, with the headers next to it inserted.

    Macros named in `without` come from launch lines instead, and their #define is left out.

    `left_out` are the tokens that no pass sees, for a file whose brackets only pair without them.
    """
    joined = join_headers(text, path, include_dirs)
    source = _paired(joined.text, path, left_out)
    bodies = _macro_bodies(source)
    items = read_items(source, {name for name, (parameters, _) in bodies.items() if parameters})
    marks = DEVICE_MARKS | {name for name in bodies if DEVICE_MARKS & _closure(name, bodies)}
    kernels = {item.head[-1] for item in items if item.kind == "function" and item.body and "__global__" in item.head}
    kept, edits, missing = [], list[_Edit](), dict[str, None]()
    for item in items:
        header = _header(source, item)
        if header and not _found(header, include_dirs):
            if not header.startswith(HOST_FOLDERS) and ("/" in header or header.endswith((".h", ".hpp", ".cuh"))):
                missing[header] = None
        elif header or _stays(source, item, marks, without, kernels):
            kept.append(item)
            edits += _translate(source, item, marks)
    kept = _without_empty_namespaces(kept)
    body = "".join(_segments(source, joined, items, kept, edits))
    return DevicePart("\n".join([*_prelude(body), body]), tuple(missing))


def _paired(text: str, path: str, left_out: Sequence[Token]) -> CppSource:
    try:
        return read_tokens(text, path)
    except Unsupported:
        if not left_out:
            raise
    for token in left_out:  # of the same length, so that line numbers do not change
        text = text[: token.start] + re.sub(r"[^\n]", " ", token.text) + text[token.end :]
    return read_tokens(text, path)


def _macro_bodies(source: CppSource) -> dict[str, tuple[bool, set[str]]]:
    """Return macro → whether it has parameters, and the words of its body."""
    found: dict[str, tuple[bool, set[str]]] = {}
    for token in source.tokens:
        match = re.match(r"#\s*define\s+(\w+)(\()?(.*)", token.text, re.DOTALL) if token.kind == "directive" else None
        if match:
            found[match[1]] = (match[2] is not None, set(re.findall(r"\w+", match[3])))
    return found


def _closure(name: str, bodies: Mapping[str, tuple[bool, set[str]]]) -> set[str]:
    """Return the words that a macro expands to, through other macros."""
    words, waiting = set[str](), [name]
    while waiting:
        for word in bodies[waiting.pop()][1] - words:
            words.add(word)
            if word in bodies:
                waiting.append(word)
    return words


def _header(source: CppSource, item: Item) -> str:
    match = re.match(r"#\s*include\s*[<\"]([^>\"]+)", source.tokens[item.start].text)
    return match[1] if item.kind == "directive" and match else ""


def _found(header: str, include_dirs: Sequence[str]) -> bool:
    folders = (*toolkit_dirs(), *map(Path, include_dirs))
    return not header.startswith(HOST_FOLDERS) and any((folder / header).is_file() for folder in folders)


def _stays(
    source: CppSource, item: Item, marks: frozenset[str] | set[str], without: frozenset[str], kernels: set[str]
) -> bool:
    if item.kind == "directive":
        return _directive_stays(source, item, without)
    if item.kind in ("open", "close"):
        return True
    if item.kind == "macro":
        return item.head[0] in marks
    if marks & set(item.head):
        # It would keep NVRTC from making the instance that the launch names.
        return not (item.head[:2] == ("extern", "template") and kernels & set(item.head))
    if item.kind == "function" and item.head[:1] not in (("static_assert",), ("typedef",)):
        return "constexpr" in item.head and bool(item.body) and not _of_host(source, item)
    first = source.tokens[item.start].text
    if first == ";":
        return False
    constant = {
        "const",
        "constexpr",
        "using",
        "typedef",
        "struct",
        "class",
        "union",
        "enum",
        "static_assert",
        "namespace",
    }
    return bool(constant & set(item.head)) and not _of_host(source, item)


def _directive_stays(source: CppSource, item: Item, without: frozenset[str]) -> bool:
    define = re.match(r"#\s*(?:define|undef)\s+(\w+)", source.tokens[item.start].text)
    return not (define and (define[1] in without or define[1].startswith("__CUDA_NO_")))


def _of_host(source: CppSource, item: Item) -> bool:
    """Whether it names the host's libraries, apart from types that have an equivalent in CUDA."""
    for at in range(item.start, item.end):
        text = source.tokens[at].text
        if text in _HOST_WORDS:
            return True
        qualified = at + 2 < item.end and source.tokens[at + 1].text == "::"
        twin = qualified and source.tokens[at + 2].text in TYPES
        if text in HOST_SPACES and not twin and (qualified or source.tokens[at - 1].text == "namespace"):
            return True
        if text == "std" and qualified and source.tokens[at + 2].text in _HOST_STD:
            return True
    return False


def _translate(source: CppSource, item: Item, marks: frozenset[str] | set[str]) -> Iterator[_Edit]:
    """Yield edits that replace PyTorch's types by CUDA's; other names of PyTorch are refused."""
    tokens = source.tokens
    if item.kind == "function" and item.body and not marks & set(item.head):
        first = tokens[item.start]
        if first.text == "template":  # the qualifiers are after its parameters
            first = tokens[source.after(item.start + 1)]
        yield _Edit(first.start, first.start, "__host__ __device__ ")
    for at in range(item.start, item.end):
        token = tokens[at]
        if token.kind != "word":
            continue
        if _ACCESSOR.fullmatch(token.text):
            cure = "give the kernel a pointer and the sizes it needs"
            raise refuse(source.path, token.line, f"{token.text} is a class of PyTorch in device code: {cure}")
        if token.text not in HOST_SPACES or at + 2 >= item.end or tokens[at + 1].text != "::":
            continue
        if at > item.start and tokens[at - 1].text in ("::", ".", "->"):
            continue
        name = tokens[at + 2]
        if name.text in TYPES and token.text in ("at", "c10", "torch"):
            yield _Edit(token.start, name.end, TYPES[name.text])
        elif _ACCESSOR.fullmatch(name.text) is None:
            cure = "write it with CUDA's own types and functions"
            raise refuse(source.path, token.line, f"{token.text}::{name.text} of PyTorch in device code: {cure}")


def _without_empty_namespaces(kept: list[Item]) -> list[Item]:
    done: list[Item] = []
    for item in kept:
        if item.kind == "close" and done and done[-1].kind == "open":
            done.pop()
        else:
            done.append(item)
    return done


def _segments(
    source: CppSource, joined: Joined, items: list[Item], kept: list[Item], edits: list[_Edit]
) -> Iterator[str]:
    """Yield the kept text, each piece with its line number."""
    chosen = {item.start for item in kept}
    spans: list[list[int]] = []
    before = 0
    files = [origin.file for origin in joined.origins]
    for item in items:
        end = source.tokens[item.end - 1].end
        if item.start in chosen:
            here, last = source.tokens[item.start].line - 1, source.tokens[item.start - 1].line - 1
            if spans and spans[-1][1] == before and files[here] == files[last]:
                spans[-1][1] = end
            else:
                spans.append([before, end])
        before = end
    for start, end in spans:
        while source.text[start:end][:1].isspace():
            start += 1
        text = source.text[start:end]
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            if start <= edit.start and edit.end <= end:
                text = text[: edit.start - start] + edit.text + text[edit.end - start :]
        origin = joined.origins[source.text.count("\n", 0, start)]
        yield f'#line {origin.line} "{origin.file}"\n{_without_lines(text)}\n'


def _without_lines(text: str) -> str:
    """Remove launch lines, which are written once at the top of the file; allow lines stay where they are."""
    return re.sub(r"^[ \t]*//+[ \t]*weft[ \t]*:(?![ \t]*allow\b).*$", "", text, flags=re.MULTILINE | re.IGNORECASE)


def _prelude(body: str) -> Iterator[str]:
    """Yield the includes and macros that PyTorch's headers would have provided."""
    words = set(re.findall(r"\w+", body))
    yield "#include <cmath>"
    yield "#include <cstdint>"
    if "numeric_limits" in words:
        yield "#include <limits>"
    if any(word.startswith(("FLT_", "DBL_")) for word in words):
        yield "#include <cfloat>"
    for header, names in _HEADERS.items():
        if words & set(names) and f"<{header}>" not in body:
            yield f"#include <{header}>"
    for macro, definition in _MACROS.items():
        if macro in words and f"#define {macro}" not in body:
            yield definition
