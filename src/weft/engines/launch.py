"""One kernel launch as a value: which kernel, how many threads, on which arguments."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from weft.core.errors import LaunchError, at_line
from weft.core.records import Binary, Dim3, Place


@dataclass(frozen=True, eq=False, init=False)
class Launch:
    """A kernel of a binary, its grid, its block and its arguments. Nothing runs before `Engine.run`.

    The VM has its own `LaunchSpec`: the same launch on a device, where arguments are the bytes of a parameter block.
    """

    binary: Binary
    entry: str
    """As the user writes it (`attn<64>`), or its name in the PTX."""
    grid: Dim3
    block: Dim3
    args: tuple[Any, ...]
    """One per parameter: arrays, numbers, bytes, or tuples for structs."""
    shared_bytes: int
    """Dynamic shared memory of a CTA."""
    cluster: Dim3
    """CTAs per cluster; zeros: as the kernel requires."""
    names: tuple[str, ...]
    """Names of the arguments in findings; without them they are numbered. An array has its name in its first launch."""
    arrays: Mapping[str, Any]
    """The arrays of its call by the caller's names, which may differ from the names of the arguments."""
    opt_in_shared: bool
    """Whether a CTA may have more than 48 KB, as after cudaFuncSetAttribute."""
    place: Place | None
    """The source line of the launch, for errors."""

    def __init__(
        self,
        binary: Binary,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cluster: Sequence[int] = (),
        names: Sequence[str] = (),
        arrays: Mapping[str, Any] = MappingProxyType({}),
        opt_in_shared: bool = True,
        place: Place | None = None,
    ) -> None:
        fields = {
            "binary": binary,
            "entry": entry,
            "grid": _dim3(grid),
            "block": _dim3(block),
            "args": tuple(args),
            "shared_bytes": shared_bytes,
            "cluster": _dim3(cluster) if cluster and any(cluster) else (0, 0, 0),
            "names": tuple(names),
            "arrays": arrays,
            "opt_in_shared": opt_in_shared,
            "place": place,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def symbol(self) -> str:
        """The kernel's name in the PTX."""
        return self.binary.entries.get(self.entry, self.entry)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Add the source line of the launch, if it is known, to errors raised inside."""
        if self.place is None:
            yield
        else:
            with at_line(self.place.file, self.place.line):
                yield


def _dim3(size: int | Sequence[int]) -> Dim3:
    sizes = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"a grid, block or cluster has one to three dimensions, not {len(sizes)}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
