"""A solution on a workload: its inputs, the results of the definition's reference, and the kernel's call."""

import json
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from weft.attention.dtypes import DTYPES as NUMPY_DTYPES
from weft.attention.dtypes import Array
from weft.core.errors import Unsupported, UsageError
from weft.kernels.ladder import MASKS

from ..foreign_task import Case, Tolerance
from ..host_kernel import Argument, HostKernel
from ..reference_code import result_arrays, run_source, to_torch
from .read_folder import Folder
from .records import DTYPES, Definition, Solution, Workload

OP_TYPES = ("sdpa", "gqa", "mha", "gqa_ragged", "gqa_paged", "mla_ragged", "mla_paged")
"""Forms of attention that have definitions. Others may need another rule than a tolerance."""

SDPA_TAG = "weft:sdpa:"
"""A tag of Weft's own definitions, followed by the mask. Such a call is also judged by the gates of `sdpa`."""

TOLERANCE = Tolerance(atol=1e-2, rtol=1e-2, either=True)
"""flashinfer-bench's tolerance: an element is wrong if it exceeds both limits."""

OUTPUTS: Mapping[str, str] = {"output": "o", "lse": "lse"}
"""Outputs of a definition → arrays of the task `sdpa`."""

_SCALARS = {"int64": int, "int32": int}

_SAFETENSORS_DTYPES = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
}


def require_known(definition: Definition, solution: Solution) -> None:
    """Refuse what Weft cannot judge."""
    if definition.op_type not in OP_TYPES:
        raise Unsupported(f"{definition.name} is a {definition.op_type}; Weft judges {', '.join(OP_TYPES)}")
    for name, spec in definition.outputs.items():
        if spec.shape is None or spec.dtype not in ("float32", "float16", "bfloat16"):
            raise Unsupported(f"{definition.name}: output {name!r} is {spec.dtype}; outputs must be tensors of floats")
    if solution.language != "cuda" or solution.binding != "torch":
        binding = solution.binding or "tvm-ffi"
        raise Unsupported(
            f"{solution.name} is {solution.language} bound by {binding}; Weft reads cuda bound by torch. Add launch "
            "lines to its kernel and use `weft check kernel.cu`"
        )


def host_kernel(folder: Folder, solution: Solution, work: Path) -> HostKernel:
    """Write the solution's sources into `work` and return its kernel."""
    root = work / solution.name
    for path, text in solution.sources.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    entry, _, function = solution.entry_point.partition("::")
    return HostKernel(
        root / entry,
        root,
        _host_function(solution, function),
        (str(root),),
        returns=not solution.destination_passing_style,
    )


def _host_function(solution: Solution, symbol: str) -> str:
    """Return the C++ function of the bound name."""
    entry = solution.sources[solution.entry_point.split("::")[0]]
    bound = re.search(rf'\.def\(\s*"{re.escape(symbol)}"\s*,\s*&?\s*(\w+)', entry)
    return bound[1] if bound else symbol


def make_case(folder: Folder, definition: Definition, kernel: HostKernel, workload: Workload) -> tuple[Case, Path]:
    """Return the case and the kernel file of its call."""
    inputs = draw_inputs(folder.path, definition, workload)
    names = list(definition.outputs)
    run = run_source(definition.reference, f"{definition.name}.reference").get("run")
    if not callable(run):
        raise UsageError(f"{definition.name}: its reference does not define a function `run`")
    handed: list[Any] = [value if isinstance(value, int | float) else to_torch(value) for value in inputs.values()]
    try:
        result = run(*handed)
    except Exception as error:  # the definition's program may raise anything
        raise UsageError(f"{definition.name}: its reference: {type(error).__name__}: {error}") from error
    expected = result_arrays(result, names, f"{definition.name}: run")
    _require_form(definition, workload, expected)
    bound = kernel.bind(list(inputs.values()), len(names))
    mask = next((tag.removeprefix(SDPA_TAG) for tag in definition.tags if tag.startswith(SDPA_TAG)), None)
    if mask is not None and (mask not in MASKS or list(bound.arrays) != ["q", "k", "v"] or bound.outputs[0] != "o"):
        raise UsageError(f"{definition.name}: tag {SDPA_TAG}{mask} is for q, k, v and o, and one of {', '.join(MASKS)}")
    by_array = dict(zip(bound.outputs, (expected[name] for name in names), strict=True))
    return Case(workload.uuid, bound.arrays, by_array, mask), bound.path


def draw_inputs(root: Path, definition: Definition, workload: Workload) -> dict[str, Argument]:
    """Return inputs in order. Random ones are N(0, 1) as in flashinfer-bench, from a separate stream per workload."""
    sizes = definition.sizes(workload)
    found: dict[str, Argument] = {}
    for name, spec in definition.inputs.items():
        given = workload.inputs.get(name)
        where = f"workload {workload.uuid}: input {name!r}"
        if given is None:
            raise UsageError(f"{where} is missing")
        if spec.shape is None:
            if given["type"] != "scalar" or not isinstance(given.get("value"), int | float):
                raise UsageError(f"{where} is a number: give it as {{type: scalar, value: …}}")
            found[name] = _SCALARS.get(spec.dtype, float)(given["value"])
            continue
        shape = tuple(sizes[axis] for axis in spec.shape)
        if given["type"] == "safetensors":
            found[name] = _stored(root, given, shape, spec.dtype, where)
        elif given["type"] == "random" and spec.dtype.startswith(("float", "bfloat")):
            rng = np.random.default_rng(zlib.crc32(f"{workload.uuid} {name}".encode()))
            found[name] = rng.standard_normal(shape).astype(NUMPY_DTYPES[DTYPES[spec.dtype]])
        else:
            raise Unsupported(f"{where}: a random {spec.dtype} is not a valid index; give it as safetensors")
    return found


def _stored(root: Path, given: Mapping[str, Any], shape: tuple[int, ...], dtype: str, where: str) -> Array:
    path = (root / str(given.get("path"))).resolve()
    if not path.is_relative_to(root.resolve()):
        raise UsageError(f"{where}: {given.get('path')} is outside {root}")
    array = _read_tensor(path, str(given.get("tensor_key")))
    wanted = {"i64": np.dtype(np.int64), "i32": np.dtype(np.int32)}.get(DTYPES[dtype]) or NUMPY_DTYPES[DTYPES[dtype]]
    if array.shape != shape or array.dtype != wanted:
        raise UsageError(f"{where} is {array.dtype}{list(array.shape)} in the file, not {dtype}{list(shape)}")
    return array


def _require_form(definition: Definition, workload: Workload, expected: Mapping[str, Array]) -> None:
    """Refuse a reference whose results do not have the definition's types and shapes."""
    sizes = definition.sizes(workload)
    for name, spec in definition.outputs.items():
        shape = tuple(sizes[axis] for axis in spec.shape or ())
        wanted = NUMPY_DTYPES[DTYPES[spec.dtype]]
        if expected[name].shape != shape or expected[name].dtype != wanted:
            raise UsageError(
                f"{definition.name}: its reference gives {name} as {expected[name].dtype}{list(expected[name].shape)}, "
                f"the definition requires {spec.dtype}{list(shape)}"
            )


def _read_tensor(path: Path, key: str) -> Array:
    """Read one tensor of a safetensors file: a length, a JSON header, and the bytes of each tensor in sequence."""
    try:
        raw = path.read_bytes()
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
        entry = header[key]
        dtype, shape, (start, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        data = raw[8 + length + start : 8 + length + end]
    except KeyError as error:
        raise UsageError(f"{path} has no tensor {key!r}") from error
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise UsageError(f"{path} cannot be read as safetensors: {error}") from error
    if dtype not in _SAFETENSORS_DTYPES:
        raise UsageError(f"{path}: {key} is {dtype}; Weft takes {', '.join(_SAFETENSORS_DTYPES)}")
    if len(data) != int(np.prod(shape, dtype=np.int64)) * _SAFETENSORS_DTYPES[dtype].itemsize:
        raise UsageError(f"{path}: {key} is truncated")
    return np.frombuffer(data, _SAFETENSORS_DTYPES[dtype]).reshape(shape).copy()
