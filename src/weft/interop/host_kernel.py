"""The CUDA file of another system's task as a kernel file: its arrays by position, its scalars fixed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.attention.dtypes import Array
from weft.core.errors import Unsupported, UsageError
from weft.engines.launch_lines import parse_lines

from .torch_extension.import_file import Imported, import_torch

Argument = Array | int | float | bool
_Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, tuple[str, ...]], ...]]
_UNREAD = re.compile(r"(?:never reads the shape of |reads a part of the shape of |^(?=\w+ is assumed to have))(\w+)")


@dataclass(frozen=True)
class BoundCall:
    """A kernel file for one set of scalars, and a call's arrays by the names of its launch lines."""

    path: Path
    arrays: Mapping[str, Array]
    outputs: tuple[str, ...]
    """Its outputs, in order."""


@dataclass
class HostKernel:
    """A CUDA file with host code. Every set of scalars makes a separate kernel file, in `folder`."""

    source: Path
    folder: Path
    function: str | None = None
    include_dirs: Sequence[str] = ()
    arch: str = "sm_89"
    returns: bool = True
    """Whether outputs are returned; else they are the last arguments."""

    def __post_init__(self) -> None:
        self._made: dict[_Key, tuple[Imported, Path]] = {}

    def bind(self, arguments: Sequence[Argument], results: int) -> BoundCall:
        """Return a call with these arguments, which must give `results` arrays."""
        found, path = self._imported(arguments)
        names = found.parameters
        # A file that contains launch lines returns its first outputs, as Weft's export writes it.
        returned = found.returned if found.function else found.returned[:results]
        outputs = returned if self.returns else names[len(names) - results :]
        taken = names if self.returns else names[: len(names) - results]
        if len(taken) != len(arguments):
            raise UsageError(
                f"{self.source}: {found.function or 'its launch lines'} take {len(taken)} arguments "
                f"({', '.join(taken)}); {len(arguments)} were given"
            )
        if len(outputs) != results or "" in outputs:
            given = ", ".join(name or "a view" for name in outputs) or "nothing"
            raise Unsupported(f"{self.source}: {results} results are required; the function returns {given}")
        arrays = {
            name: value for name, value in zip(taken, arguments, strict=True) if not isinstance(value, int | float)
        }
        self._require_sizes(found, arrays)
        return BoundCall(path, arrays, tuple(outputs))

    def _require_sizes(self, found: Imported, arrays: Mapping[str, Array]) -> None:
        """Refuse a size that no argument gives: the lines' default would be another problem than the requested one."""
        lines = parse_lines(found.text, str(self.source))
        known = {size.name for line in lines.arrays if line.name in arrays for size in line.shape}
        open_sizes = [name for name in lines.sizes if name not in known]
        if open_sizes:
            raise Unsupported(f"{self.source}: the size {open_sizes[0]} is not a dimension of any argument")

    def _imported(self, arguments: Sequence[Argument]) -> tuple[Imported, Path]:
        """Return the kernel file for these scalars. Shapes that the host code never reads are those of the call."""
        scalars = {at: value for at, value in enumerate(arguments) if isinstance(value, int | float)}
        found = self._import({}, {})
        names = dict(enumerate(found.parameters))
        values = {names[at]: _spelled(value) for at, value in scalars.items() if at in names}
        unread = {match[1] for each in (*found.problems, *found.notes) if (match := _UNREAD.search(each.text))}
        shapes = {
            names[at]: _known(found, names[at], value)
            for at, value in enumerate(arguments)
            if not isinstance(value, int | float) and names.get(at) in unread
        }
        key = (tuple(sorted(values.items())), tuple(sorted(shapes.items())))
        if key not in self._made:
            if values or shapes:
                found = self._import(values, shapes)
            if found.problems:
                problem = found.problems[0]
                raise Unsupported(
                    f"{self.source}:{problem.line}: {problem.text}; complete it: `weft import {self.source} -o k.cu`"
                )
            path = self.folder / f"{self.source.stem}_{len(self._made)}.cu"
            path.write_text(found.text)
            self._made[key] = found, path
        return self._made[key]

    def _import(self, values: Mapping[str, str], shapes: Mapping[str, Sequence[str]]) -> Imported:
        return import_torch(
            str(self.source),
            function=self.function,
            values=values,
            shapes=shapes,
            arch=self.arch,
            include_dirs=self.include_dirs,
        )


def _known(found: Imported, name: str, value: Array) -> tuple[str, ...]:
    """Return the call's shape, with the names of the axes that the host code reads."""
    listed = next((match[1] for line in found.lines if (match := re.search(rf"\b{name} : \w+\[(.*)\]", line))), "")
    read = [] if "???" in listed else [size.strip() for size in listed.split(",") if size.strip()]
    return tuple(read[at] if at < len(read) else str(size) for at, size in enumerate(value.shape))


def _spelled(value: float) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)
