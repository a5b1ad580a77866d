"""Calls of the CUDA runtime in host code: their effect on arrays and launches."""

import re

from .cpp_tokens import refuse
from .host import Host
from .host_expressions import Reader
from .host_values import (
    Hole,
    HostLaunch,
    Kernel,
    Number,
    Other,
    Pointer,
    Record,
    Tensor,
    Value,
    elements_of,
    safe_name,
)
from .torch_calls import element_bytes

_MARKS = re.compile(r"^(?:d|dev|device|gpu|h|host)_(?=\w)|_(?:d|dev|device|gpu)$|^d(?=[A-Z])")
_PACKED = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cudaLaunchKernelExC")


def follow_cuda_call(run: Host, reader: Reader, name: str, ranges: list[tuple[int, int]], line: int) -> Value:
    """Apply a call's effect, as far as launch lines can express it."""
    source = reader.source
    if name in _PACKED:
        raise refuse(source.path, line, f"{name} with packed arguments: launch with <<<…>>>, or write the line by hand")
    values = reader.arguments(ranges)
    if name == "cudaFuncSetAttribute" and values and isinstance(values[0], Kernel):
        if "MaxDynamicSharedMemorySize" in source.spelled(*ranges[1]):
            run.facts.opted_in.add(values[0].name)
    elif name.startswith("cudaMemset") and values and isinstance(values[0], Pointer):
        values[0].tensor.memory.origin = "zeros"
        if not (isinstance(values[1], Number) and values[1].constant == 0):
            run.facts.notes[f"{values[0].tensor.name} is filled by {name} with other bytes than 0: here zeros"] = line
    elif name.startswith("cudaMemcpyToSymbol"):
        run.facts.copied[source.spelled(*ranges[0])] = line
    elif name in ("cudaMalloc", "cudaMallocAsync", "cudaMallocManaged") and len(values) >= 2:
        _allocate(run, reader, ranges[0], values[1], line)
    elif name in ("cudaMemcpy", "cudaMemcpyAsync") and len(values) >= 4:
        _copy(run, name, values, source.spelled(*ranges[3]), line)
    elif name.startswith(("cudaMemcpy2D", "cudaMemcpyPeer", "cudaMemcpy3D")):
        run.facts.notes[f"{name} is not part of the launch lines"] = line
    elif name == "cudaLaunchKernelEx" and len(values) >= 2:
        _launch(run, values, line)
    return Other()


def _allocate(run: Host, reader: Reader, place: tuple[int, int], size: Value, line: int) -> None:
    """`cudaMalloc(&p, n * sizeof(float))`: an array of the pointer's type."""
    target = re.sub(r"^.*[&)]", "", reader.source.spelled(*place)).strip()
    words = re.findall(r"\w+", target)
    if not words:
        return
    kind = reader.scope.kind(words[0]) if len(words) == 1 else _member_kind(run, reader, words)
    tensor = Tensor(array_name(run, words[-1]), "empty", line, run.view.element(kind))
    if isinstance(size, Number):
        tensor.bytes = size
        settle_shape(tensor, tensor.element)
    run.tensors[tensor.name] = tensor
    pointer = Pointer(tensor, kind.replace("**", "*").replace("* *", "*"))
    if len(words) == 1:
        reader.scope.assign(words[0], pointer)
        return
    record = reader.scope.find(words[0])
    base = record if isinstance(record, Record) else Record("")
    if len(words) == 2:
        reader.scope.assign(words[0], base.put(words[1], pointer))


def _member_kind(run: Host, reader: Reader, words: list[str]) -> str:
    fields = run.view.structs.get(reader.scope.kind(words[0]).replace("*", "").strip(), ())
    return next((field.type for field in fields if field.name == words[-1]), "")


def settle_shape(tensor: Tensor, element: str) -> None:
    """Convert a size in bytes to elements, once the type is known."""
    width = element_bytes(element) if element else None
    if tensor.bytes is not None and tensor.shape is None and width:
        tensor.shape, tensor.element = elements_of(tensor.bytes, width), element


def array_name(run: Host, variable: str) -> str:
    """`d_q` is q in launch lines, where that name is free."""
    plain = _MARKS.sub("", variable)
    name = safe_name(plain if plain and not plain[0].isdigit() and plain not in run.tensors else variable)
    taken = {*run.tensors, *run.sizes}
    while name in taken:
        name = safe_name(variable) if name != safe_name(variable) and safe_name(variable) not in taken else f"{name}_"
    return name


def _copy(run: Host, name: str, values: list[Value], direction: str, line: int) -> None:
    to, source = values[0], values[1]
    if isinstance(to, Pointer) and ("HostToDevice" in direction or not isinstance(source, Pointer)):
        if run.launched_with(to.tensor):
            run.facts.notes[f"{to.tensor.name} is filled again after a launch: here only once, at the start"] = line
        to.tensor.memory.origin = "argument"
    elif isinstance(source, Pointer) and not isinstance(to, Pointer):
        source.tensor.memory.returned = True
        if run.launched:
            run.round, run.launched = run.round + 1, False
    elif isinstance(source, Pointer) and isinstance(to, Pointer):
        if run.launched:
            run.caveats.append(Hole(f"{name} copies {source.tensor.name} to {to.tensor.name} between launches", line))
        run.facts.notes[f"{name} from {source.tensor.name} to {to.tensor.name} is not part of the launch lines"] = line
        to.tensor.memory.origin = "argument"
    elif "HostToHost" not in direction:
        run.facts.notes[f"this {name} cannot be followed: the arrays that it copies are not known"] = line


def _launch(run: Host, values: list[Value], line: int) -> None:
    """`cudaLaunchKernelEx(&config, kernel, arguments…)`"""
    config, kernel = values[0], values[1]
    if not isinstance(config, Record) or not isinstance(kernel, Kernel):
        raise refuse(
            run.source.path, line, "cudaLaunchKernelEx: its configuration cannot be followed; launch with <<<…>>>"
        )
    hole = Hole("the configuration of cudaLaunchKernelEx", line)
    grid, block = config.get("gridDim") or hole, config.get("blockDim") or hole
    shared = config.get("dynamicSmemBytes")
    if isinstance(shared, Number) and shared.constant == 0:
        shared = None
    if config.get("numAttrs") is not None:
        run.facts.notes["the launch attributes (clusters, programmatic launch) are not part of the launch line"] = line
    run.add_launch(HostLaunch(kernel.name, kernel.arguments, tuple(values[2:]), grid, block, shared, line))
