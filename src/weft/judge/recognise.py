"""Notes on kernels that may recognise their test: K503 for comparisons in compiled code that attention never needs.

A note does not change the verdict: hidden seeds and second calls decide. It shows a reader which line to inspect.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from weft.attention.dtypes import Array
from weft.core.finding_json import finding_of, finding_record
from weft.core.records import Binary, Finding
from weft.engines.bound_kernel import in_users_words
from weft.engines.kernel_file import KernelFile
from weft.engines.launch_records import LaunchLine, MapArgument, Struct
from weft.engines.spell_findings import folded, user_place
from weft.engines.suppress import sift
from weft.engines.virtual import VirtualGPU
from weft.ptx.passes import find_recognition as passed
from weft.ptx.passes.find_recognition import ARRAY, DATA, SIZE, find_recognition
from weft.toolchain.cache import Cache, cache_key

FLOATS = ("f16", "bf16", "f32", "f64", "e4m3", "e5m2")
"""Types of inputs whose single values have no meaning; integers may be codes, lengths or page numbers."""

Arguments = tuple[tuple[str, str], ...]
"""Per parameter of a kernel: its role for `find_recognition`, and its name in the launch line."""


def recognition_notes(gpu: VirtualGPU, kernel: KernelFile, inputs: Mapping[str, Array]) -> tuple[Finding, ...]:
    """Return the notes on the kernels of a call, without those that the source allows. Each kernel is analysed once."""
    lines = {line.name: line for line in kernel.sequence(inputs)}
    found: list[Finding] = []
    for entry, binary in kernel.binaries(inputs).items():
        arguments = _arguments(kernel, lines[entry.partition("<")[0].strip()])
        found += (in_users_words(each, kernel.source) for each in _stored(gpu, binary, entry, arguments))
    once = (replace(finding, count=1) for finding in folded(found))  # copies of an unrolled line
    return sift(once, kernel.allows).kept


def _arguments(kernel: KernelFile, line: LaunchLine) -> Arguments:
    arrays = {array.name: array for array in kernel.lines.arrays}
    found = []
    for argument in line.arguments:
        if isinstance(argument, Struct | MapArgument):
            found.append(("", ""))
        elif (array := arrays.get(argument.name)) is not None:
            found.append((DATA if array.role == "in" and array.element in FLOATS else ARRAY, array.name))
        else:
            found.append((SIZE, argument.text))
    return tuple(found)


def _stored(gpu: VirtualGPU, binary: Binary, entry: str, arguments: Arguments) -> tuple[Finding, ...]:
    """Return the notes from the cache, so that a warm start parses nothing."""
    by = Path(passed.__file__).read_bytes() + Path(__file__).read_bytes()
    key = cache_key(["recognition", by, binary.ptx_digest, binary.entries[entry], repr(arguments)])
    stored = Cache("notes").get(key)
    if stored is not None:
        return tuple(finding_of(record) for record in json.loads(stored))
    found = _look_through(gpu, binary, entry, arguments)
    Cache("notes").put(key, json.dumps([finding_record(finding) for finding in found]).encode())
    return found


def _look_through(gpu: VirtualGPU, binary: Binary, entry: str, arguments: Arguments) -> tuple[Finding, ...]:
    function = gpu.program(binary, entry).source.passes.folded
    roles = {param.name: role for param, role in zip(function.params, arguments, strict=False)}
    found = []
    for each in find_recognition(function, roles):
        place = each.instruction.place
        if place is not None and not place.line:
            place = None  # merged from several lines
        if each.machine and user_place(place) != place:
            continue  # the timeout of a wait in a CUDA header
        found.append(Finding("K503", f"the kernel compares {each.what}", each.instruction.line, place))
    return tuple(found)
