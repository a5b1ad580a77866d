"""A file as nvcc's host pass sees it: functions, kernels, constants, structs and names of types."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.engines.element_types import CPP_TYPES

from .cpp_items import Item, read_items
from .cpp_tokens import CppSource, scan_tokens
from .join_headers import Joined
from .preprocess import HostText, preprocess
from .signatures import Function, KernelSignature, Parameter, host_functions, kernel_signatures, struct_fields


@dataclass(frozen=True)
class HostView:
    """The expanded source; only the macros in `integers` are left."""

    source: CppSource
    functions: Mapping[str, tuple[Function, ...]]
    kernels: Mapping[str, KernelSignature]
    constants: Mapping[str, tuple[int, int]]
    """`constexpr int BLOCK = 256;` → the tokens of its value."""
    variables: frozenset[str]
    """The other variables of the file."""
    structs: Mapping[str, tuple[Parameter, ...]]
    aliases: Mapping[str, str]
    """Aliases of types in the file."""
    constant_arrays: Mapping[str, tuple[str, str]]
    """`__constant__` variable → element type and shape."""
    integers: Mapping[str, str]
    device_words: frozenset[str]
    """Names that device code uses: a macro among them is not only a size of the host."""
    text: HostText

    @property
    def numbers(self) -> dict[str, str]:
        """Constants of the file that are integers: #define and constexpr."""
        spelled = {name: self.source.spelled(*tokens) for name, tokens in self.constants.items()}
        return {name: value for name, value in {**spelled, **self.integers}.items() if value.isdigit()}

    def element(self, text: str) -> str:
        """Return the element type of a C++ type, through the file's aliases."""
        for _ in range(4):
            found = type_element(text)
            if found:
                return found
            base = re.sub(r"\bconst\b|\bvolatile\b|__restrict__|\*|&", "", text).strip()
            if base not in self.aliases:
                return ""
            text = self.aliases[base]
        return ""


def view_host(joined: Joined, path: str) -> HostView:
    """Read the joined text of a file as the host pass does."""
    lines = [origin.main_line for origin in joined.origins]
    own = [origin.file == path for origin in joined.origins]
    text = preprocess(scan_tokens(joined.text, path), path, lines, own)
    source = text.source
    items = read_items(source)
    others = [item for item in items if item.kind == "other"]
    aliases = _aliases(source, others)
    device = [item for item in items if {"__global__", "__device__", "__constant__"} & set(item.head)]
    words = {token.text for item in device for token in source.tokens[item.start : item.end]}
    return HostView(
        source,
        host_functions(source, items),
        kernel_signatures(source, items),
        _constants(source, others),
        frozenset(name for item in others for name in _variables(source, item)),
        struct_fields(source, items),
        aliases,
        _constant_arrays(source, device, text.integers),
        text.integers,
        frozenset(words),
        text,
    )


def type_element(text: str) -> str:
    """Return the element type: `const at::Half*` → f16; empty for a type that launch lines do not support."""
    words = [
        word for word in re.split(r"[\s*&]+", text) if word not in ("const", "volatile", "", "__restrict__", "restrict")
    ]
    plain = " ".join(word.rpartition("::")[2] for word in words)
    return {
        "Half": "f16",
        "BFloat16": "bf16",
        "Float8_e4m3fn": "e4m3",
        "Float8_e5m2": "e5m2",
        "long": "i64",
        "__half": "f16",
        "nv_bfloat16": "bf16",
        "nv_half": "f16",
    }.get(plain, CPP_TYPES.get(plain, ""))


def _constants(source: CppSource, others: Sequence[Item]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for item in others:
        if {"const", "constexpr"} & set(item.head):
            for start, end in source.split(item.start, item.end - 1):
                equals = next((at for at in range(start, end) if source.tokens[at].text == "="), None)
                if equals is not None and source.tokens[equals - 1].kind == "word":
                    found[source.tokens[equals - 1].text] = (equals + 1, end)
    return found


def _variables(source: CppSource, item: Item) -> list[str]:
    """Return the names that a host declaration declares, approximately: words before `=`, `;`, `,` or `[`."""
    found = []
    for at in range(item.start + 1, item.end):
        if source.tokens[at].text in ("=", ";", ",", "[") and source.tokens[at - 1].kind == "word":
            found.append(source.tokens[at - 1].text)
    return found


def _aliases(source: CppSource, others: Sequence[Item]) -> dict[str, str]:
    """Return aliases of types: using and typedef."""
    found: dict[str, str] = {}
    for item in others:
        text = source.spelled(item.start, item.end - 1)
        if match := re.fullmatch(r"using (\w+) = (.+)", text):
            found[match[1]] = match[2]
        elif match := re.fullmatch(r"typedef (.+?) (\w+)", text):
            found[match[2]] = match[1]
    return found


def _constant_arrays(
    source: CppSource, device: Sequence[Item], integers: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """`__constant__ float table[256];`"""
    found: dict[str, tuple[str, str]] = {}
    for item in device:
        text = source.spelled(item.start, item.end)
        match = re.match(r"(?:static )?(?:__constant__|__device__) ([\w ]+?) (\w+)((?:\s*\[[^\]]*\])*)\s*;", text)
        if item.kind == "other" and match:
            sizes = [size.strip() for size in re.findall(r"\[([^\]]*)\]", match[3])]
            values = [integers.get(size, size) for size in sizes]
            found[match[2]] = (type_element(match[1]) or "f32", ", ".join(values) or "1")
    return found
