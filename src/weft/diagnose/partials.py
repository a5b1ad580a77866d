"""The workspaces between launches of a split kernel, recognised by their names and declared shapes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.merge import Partial, merge
from weft.engines.kernel_file import KernelFile
from weft.engines.launch_records import ArrayLine

CANONICAL = "nbhsd"
"""Splits, batch, head, query, column."""
_ROLES = {
    "m": ("m", "max", "maximum", "rowmax"),
    "l": ("l", "sum", "rowsum", "denominator"),
    "lse": ("lse", "logsumexp"),
}


@dataclass(frozen=True)
class Workspace:
    """One workspace: u, m, l, or o and lse where the splits are already normalised."""

    name: str
    role: str
    axes: str
    """Letters of CANONICAL in the order of its memory, `d` only for u and o."""
    shape: tuple[int, ...]

    def store(self, canonical: Array, dtype: np.dtype[np.generic]) -> Array:
        """Convert (n, b, h, s[, d]) to the kernel's declared shape."""
        order = [CANONICAL.index(letter) for letter in self.axes]
        return np.ascontiguousarray(canonical.transpose(order)).reshape(self.shape).astype(dtype)

    def load(self, stored: Array, sizes: Mapping[str, int]) -> Array:
        """Convert the kernel's declared shape to (n, b, h, s[, d])."""
        whole = stored.reshape([sizes[letter] for letter in self.axes])
        return whole.transpose([self.axes.index(letter) for letter in CANONICAL if letter in self.axes])


def workspaces(kernel: KernelFile, arrays: Mapping[str, Array]) -> tuple[Workspace, ...]:
    """Return the workspaces that are recognised; `arrays` has their actual shapes."""
    found = [_understood(kernel, line, arrays) for line in kernel.workspaces if line.name in arrays]
    known = [space for space in found if space is not None]
    normalised = any(space.role == "lse" for space in known)
    return tuple(
        Workspace(space.name, "o", space.axes, space.shape) if normalised and space.role == "u" else space
        for space in known
    )


def split_count(space: Workspace, sizes: Mapping[str, int]) -> int:
    """Return the number of splits it has."""
    others = [sizes[letter] for letter in space.axes if letter != "n"]
    return int(np.prod(space.shape)) // int(np.prod(others))


def contents(space: Workspace, partials: Sequence[Partial], *, base: float) -> Array:
    """Return (n, b, h, s[, d]) of the reference; its maxima are exponents of `base`."""
    if space.role in ("o", "lse"):
        return np.stack([getattr(merge([partial], base=base), space.role) for partial in partials])
    return np.stack([getattr(partial, "o" if space.role == "u" else space.role) for partial in partials])


def _understood(kernel: KernelFile, line: ArrayLine, arrays: Mapping[str, Array]) -> Workspace | None:
    queries = next((each for each in kernel.arrays if each.name in ("q", "q_code")), None)
    if queries is None or len(queries.shape) != 4:
        return None
    letters = {_plain(size.text): letter for size, letter in zip(queries.shape, "bhsd", strict=True)}
    factors = [factor for size in line.shape for factor in _plain(size.text).split("*")]
    axes = "".join(letters.get(factor, "n") for factor in factors)
    if sorted(axes) == sorted("nbhsd"):
        return Workspace(line.name, "u", axes, arrays[line.name].shape)
    words = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", line.name).lower())
    role = next((role for role, names in _ROLES.items() if any(word in names for word in words)), None)
    if role is None or sorted(axes) != sorted("nbhs"):
        return None
    return Workspace(line.name, role, axes, arrays[line.name].shape)


def _plain(text: str) -> str:
    return re.sub(r"[\s()]", "", text)
