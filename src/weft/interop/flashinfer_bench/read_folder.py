"""Reads a folder with definitions/, workloads/, solutions/ and traces/."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from weft.core.errors import UsageError

from .records import Definition, Solution, Trace, Workload, read_definition, read_solution, read_trace


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


@dataclass(frozen=True)
class Folder:
    """A data set of flashinfer-bench."""

    path: Path
    definitions: Mapping[str, Definition]
    solutions: Mapping[str, Solution]
    workloads: Mapping[str, tuple[Workload, ...]]
    """By definition."""
    traces: tuple[Trace, ...]

    def recorded(self, solution: str, workload: str) -> str | None:
        """Return the status of the last trace of a solution on a workload."""
        found = [t for t in self.traces if t.solution == solution and t.workload.uuid == workload]
        return str(found[-1].evaluation["status"]) if found else None


def is_folder(path: Path) -> bool:
    """Whether it looks like a folder of flashinfer-bench."""
    return (path / "definitions").is_dir() and (path / "solutions").is_dir()


def read_folder(path: Path) -> Folder:
    """Read everything in the folder. Raises if any file is invalid."""
    if not is_folder(path):
        raise UsageError(f"{path} is not a flashinfer-bench folder: it has no definitions/ and solutions/")
    definitions = _named(path / "definitions", read_definition)
    workloads: dict[str, tuple[Workload, ...]] = {}
    for trace in _traces(path / "workloads"):
        if trace.solution is not None:
            raise UsageError(f"{path / 'workloads'}: workload {trace.workload.uuid} has a solution: it is a trace")
        workloads[trace.definition] = (*workloads.get(trace.definition, ()), trace.workload)
    return Folder(
        path, definitions, _named(path / "solutions", read_solution), workloads, tuple(_traces(path / "traces"))
    )


def _named(folder: Path, read: Callable[[Any, str], _T]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for file in sorted(folder.rglob("*.json")):
        item = read(_json(file.read_text(), str(file)), str(file))
        if item.name in found:
            raise UsageError(f"{file}: {item.name!r} is defined twice")
        found[item.name] = item
    return found


def _traces(folder: Path) -> Iterator[Trace]:
    for file in sorted(folder.rglob("*.jsonl")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.strip():
                where = f"{file}:{number}"
                yield read_trace(_json(line, where), where)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where} is not valid JSON: {error}") from error
