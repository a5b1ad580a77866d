"""A kernel to export to another system: a rung of the ladder, a file of the user, or a candidate of a search."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import LaunchError, UsageError
from weft.engines.kernel_file import KernelFile, load
from weft.kernels.ladder import RUNGS

INPUTS: Mapping[str, tuple[str, ...]] = {
    "sdpa": ("q", "k", "v"),
    "fp8_sdpa": ("q_code", "k_code", "v_code", "q_scale", "k_scale", "v_scale"),
}
"""Task → its inputs, in the order in which a host function takes them."""


@dataclass(frozen=True)
class ExportedKernel:
    """A kernel file and its description in the format it is exported to."""

    name: str
    """As the user named it: `fp8_wmma`, `mine.cu`, `3:41`."""
    about: str
    """One sentence."""
    task: str
    """The task it computes, found by the names of its inputs; empty if they match no task."""
    kernel: KernelFile
    largest_d: int | None = None
    levers: tuple[str, ...] = ()
    """Defines that may be set; empty: those of the launch lines."""

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return Path(self.kernel.path).name

    def sizes_at(self, shape: Shape) -> dict[str, int]:
        """Return the kernel's sizes for a named shape; raises where it does not take the shape."""
        if self.task not in INPUTS:
            names = ", ".join(line.name for line in self.kernel.lines.arrays if line.role == "in")
            raise UsageError(f"{self.name} takes {names}; named shapes are only for kernels of {' or '.join(INPUTS)}")
        if self.largest_d is not None and shape.d > self.largest_d:
            raise UsageError(f"{self.name} takes D up to {self.largest_d}; leave out shape {shape.name}")
        query, key = (shape.b, shape.hq, shape.sq, shape.d), (shape.b, shape.hkv, shape.skv, shape.d)
        q, k, v, *scales = INPUTS[self.task]
        given = {q: query, k: key, v: key, **dict(zip(scales, (query[:2], key[:2], key[:2]), strict=False))}
        try:
            return dict(self.kernel.sizes_of(given))
        except (UsageError, LaunchError) as error:
            raise UsageError(f"{self.name} does not take the shape {shape.name}: {error}") from error

    def takes(self, shape: Shape) -> bool:
        """Whether its launch lines allow this shape."""
        try:
            return bool(self.sizes_at(shape))
        except (UsageError, LaunchError):
            return False


def exported_rung(name: str, defines: Mapping[str, str]) -> ExportedKernel:
    """Return a rung with these levers."""
    rung = RUNGS[name]
    kernel = load(rung.path, defines=defines)
    return ExportedKernel(name, rung.idea, rung.task, kernel, rung.largest_d, ("ELEMENT", *rung.levers))


def exported_file(path: Path, defines: Mapping[str, str], *, name: str = "", about: str = "") -> ExportedKernel:
    """Return a CUDA file with launch lines. Its task follows from the names of its inputs."""
    if path.suffix == ".py" or path.suffix == ".ptx":
        raise UsageError(f"{path} is not a CUDA C++ file: PyTorch calls Triton kernels directly, and cannot use PTX")
    kernel = load(path, defines=defines)
    inputs = tuple(line.name for line in kernel.lines.arrays if line.role == "in")
    task = next((task for task, names in INPUTS.items() if names == inputs), "")
    return ExportedKernel(name or str(path), about or f"the kernel of {path.name}", task, kernel)


def named_shapes(names: tuple[str, ...]) -> list[Shape]:
    """Return shapes by their names."""
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        raise UsageError(f"unknown shape {unknown[0]!r}; `weft list` has the names")
    return [SHAPES[name] for name in names]
