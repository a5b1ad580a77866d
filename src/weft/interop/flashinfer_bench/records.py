"""Definition, Workload, Solution, Trace: the fields that Weft uses, read strictly, written in full."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.core.errors import UsageError

DTYPES: Mapping[str, str] = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "int64": "i64",
    "int32": "i32",
}
"""Types of tensors that Weft takes → their names in launch lines."""

STATUSES = (
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT",
)  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """A tensor by its axes; without a shape it is a number."""

    shape: tuple[str, ...] | None
    dtype: str


@dataclass(frozen=True)
class Definition:
    """What must be computed."""

    name: str
    op_type: str
    axes: Mapping[str, int | None]
    """None: variable."""
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    reference: str
    tags: tuple[str, ...] = ()
    description: str = ""
    constraints: tuple[str, ...] = ()

    def sizes(self, workload: "Workload") -> dict[str, int]:
        """Return the size of every axis of a workload."""
        variable = {name for name, value in self.axes.items() if value is None}
        if set(workload.axes) != variable:
            raise UsageError(
                f"workload {workload.uuid} of {self.name} gives {', '.join(sorted(workload.axes)) or 'no axes'}; its "
                f"variable axes are {', '.join(sorted(variable))}"
            )
        return {name: workload.axes[name] if value is None else value for name, value in self.axes.items()}

    def record(self) -> dict[str, Any]:
        """Return it as flashinfer-bench writes it."""
        return {
            "name": self.name,
            "op_type": self.op_type,
            "description": self.description,
            "tags": list(self.tags),
            "axes": {
                name: {"type": "var"} if value is None else {"type": "const", "value": value}
                for name, value in self.axes.items()
            },
            "constraints": list(self.constraints),
            "inputs": {name: _tensor_record(spec) for name, spec in self.inputs.items()},
            "outputs": {name: _tensor_record(spec) for name, spec in self.outputs.items()},
            "reference": self.reference,
        }


@dataclass(frozen=True)
class Workload:
    """Values of the variable axes, and where each input comes from."""

    uuid: str
    axes: Mapping[str, int]
    inputs: Mapping[str, Mapping[str, Any]]

    def record(self) -> dict[str, Any]:
        return {"axes": dict(self.axes), "inputs": {k: dict(v) for k, v in self.inputs.items()}, "uuid": self.uuid}


@dataclass(frozen=True)
class Solution:
    """A kernel for a definition."""

    name: str
    definition: str
    author: str
    language: str
    entry_point: str
    sources: Mapping[str, str]
    """Path → text."""
    target_hardware: tuple[str, ...] = ("cuda",)
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    binding: str | None = None
    description: str = ""

    def record(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "language": self.language,
            "target_hardware": list(self.target_hardware),
            "entry_point": self.entry_point,
            "dependencies": list(self.dependencies),
            "destination_passing_style": self.destination_passing_style,
        }
        if self.binding is not None:
            spec["binding"] = self.binding
        return {
            "name": self.name,
            "definition": self.definition,
            "author": self.author,
            "spec": spec,
            "sources": [{"path": path, "content": text} for path, text in self.sources.items()],
            "description": self.description,
        }


@dataclass(frozen=True)
class Trace:
    """A solution's evaluation on a workload; without a solution, only the workload."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        evaluation = dict(self.evaluation) if self.solution is not None else None
        return {
            "definition": self.definition,
            "workload": self.workload.record(),
            "solution": self.solution,
            "evaluation": evaluation,
        }


def read_definition(given: Any, where: str) -> Definition:
    """Read a Definition from its JSON."""
    name = _text(given, "name", where)
    axes = {axis: _axis(value, f"{where}: axis {axis!r}") for axis, value in _mapping(given, "axes", where).items()}
    tensors = {}
    for key in ("inputs", "outputs"):
        tensors[key] = {
            tensor: _tensor(value, axes, f"{where}: {key[:-1]} {tensor!r}")
            for tensor, value in _mapping(given, key, where).items()
        }
    both = set(tensors["inputs"]) & set(tensors["outputs"])
    if both:
        raise UsageError(f"{where}: {sorted(both)[0]!r} is an input and an output")
    return Definition(
        name,
        _text(given, "op_type", where),
        axes,
        tensors["inputs"],
        tensors["outputs"],
        _text(given, "reference", where),
        _texts(given, "tags", where),
        given.get("description") or "",
        _texts(given, "constraints", where),
    )


def read_workload(given: Any, where: str) -> Workload:
    """Read a Workload from its JSON."""
    axes = _mapping(given, "axes", where)
    for axis, value in axes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UsageError(f"{where}: axis {axis!r} is {value!r}, not a number of elements")
    inputs = _mapping(given, "inputs", where)
    for name, spec in inputs.items():
        kind = spec.get("type") if isinstance(spec, dict) else None
        if kind not in ("random", "scalar", "safetensors"):
            raise UsageError(f"{where}: input {name!r} is {kind!r}; there are random, scalar and safetensors")
    return Workload(_text(given, "uuid", where), axes, inputs)


def read_solution(given: Any, where: str) -> Solution:
    """Read a Solution from its JSON."""
    spec = _mapping(given, "spec", where)
    entry = _text(spec, "entry_point", where)
    if entry.count("::") != 1:
        raise UsageError(f"{where}: entry point {entry!r} is not FILE::FUNCTION")
    sources: dict[str, str] = {}
    for source in given.get("sources") or ():
        path = _text(source, "path", where)
        if path in sources or path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"{where}: source path {path!r} is given twice, or is outside the solution")
        sources[path] = _text(source, "content", where)
    if entry.split("::")[0] not in sources:
        raise UsageError(f"{where}: the entry file {entry.split('::')[0]!r} is not among its sources")
    return Solution(
        _text(given, "name", where),
        _text(given, "definition", where),
        _text(given, "author", where),
        _text(spec, "language", where),
        entry,
        sources,
        _texts(spec, "target_hardware", where),
        _texts(spec, "dependencies", where),
        bool(spec.get("destination_passing_style", True)),
        spec.get("binding"),
        given.get("description") or "",
    )


def read_trace(given: Any, where: str) -> Trace:
    """Read a Trace from its JSON."""
    workload = read_workload(_mapping(given, "workload", where), where)
    solution, evaluation = given.get("solution"), given.get("evaluation")
    if (solution is None) != (evaluation is None):
        raise UsageError(f"{where}: a trace must have a solution and an evaluation, or neither")
    if evaluation is not None and evaluation.get("status") not in STATUSES:
        raise UsageError(f"{where}: unknown status {evaluation.get('status')!r}; there are {', '.join(STATUSES)}")
    return Trace(_text(given, "definition", where), workload, solution, evaluation or {})


def _axis(given: Any, where: str) -> int | None:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "var":
        return None
    value = given.get("value") if kind == "const" else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{where} is neither {{type: var}} nor {{type: const, value: N}}")
    return value


def _tensor(given: Any, axes: Mapping[str, int | None], where: str) -> TensorSpec:
    dtype = _text(given, "dtype", where)
    if dtype not in DTYPES:
        raise UsageError(f"{where} is {dtype}; Weft takes {', '.join(DTYPES)}")
    shape = given.get("shape")
    if shape is None:
        return TensorSpec(None, dtype)
    unknown = [axis for axis in shape if axis not in axes]
    if unknown:
        raise UsageError(f"{where} has the axis {unknown[0]!r}, which is not defined; there are {', '.join(axes)}")
    return TensorSpec(tuple(shape), dtype)


def _tensor_record(spec: TensorSpec) -> dict[str, Any]:
    return {"shape": None if spec.shape is None else list(spec.shape), "dtype": spec.dtype}


def _mapping(given: Any, key: str, where: str) -> dict[str, Any]:
    value = given.get(key) if isinstance(given, dict) else None
    if not isinstance(value, dict):
        raise UsageError(f"{where} has no {key!r}")
    return value


def _text(given: Any, key: str, where: str) -> str:
    value = given.get(key) if isinstance(given, dict) else None
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where} has no {key!r}")
    return value


def _texts(given: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = given.get(key) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{where}: {key!r} is not a list of strings")
    return tuple(value)


def plain_number(value: float) -> float | str:
    """Return the number; infinity and NaN, which JSON lacks, as strings, as in flashinfer-bench."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
