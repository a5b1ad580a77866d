"""Which workloads a kernel is judged on: shapes × types × masks × regimes × seeds, as far as it declares support."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.attention.regimes import REGIMES
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import UsageError
from weft.engines.kernel_file import load
from weft.kernels.ladder import ANY_FLOAT, ELEMENTS, MASKS, RUNGS

from .check import Candidate
from .problem import TASKS
from .verdict import Workload

QUICK_SHAPES = ("small", "ragged", "d32", "gqa_4", "gqa_4_ragged", "few_keys")
QUICK_REGIMES = ("unit_normal", "logits_32", "v_offset", "sorted_keys", "large_magnitude")
"""Enough of both that every wrong implementation of `weft certify` shows (tests/judge/test_certify.py)."""


@dataclass(frozen=True)
class Supports:
    """What a kernel takes."""

    task: str
    dtypes: tuple[str, ...]
    masks: tuple[str, ...]
    largest_d: int | None = None
    gqa: bool = True

    def takes(self, shape: Shape) -> bool:
        fits = self.largest_d is None or shape.d <= self.largest_d
        return fits and (self.gqa or shape.group == 1)


@dataclass(frozen=True)
class Choice:
    """What the caller asks for; empty tuples mean the kernel's own."""

    shapes: tuple[str, ...] = QUICK_SHAPES
    regimes: tuple[str, ...] = QUICK_REGIMES
    masks: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seeds: int = 3

    def __post_init__(self) -> None:
        for given, known, what in (
            (self.shapes, SHAPES, "shape"),
            (self.regimes, REGIMES, "regime"),
            (self.masks, MASKS, "mask"),
            (self.dtypes, ELEMENTS, "type"),
        ):
            for name in given:
                if name not in known:
                    raise UsageError(f"unknown {what} {name!r}; use one of {', '.join(known)}")


def find_candidate(target: str, *, task: str | None, arch: str = "sm_89") -> tuple[Candidate, Supports]:
    """A rung of the ladder by name, or a CUDA file with launch lines."""
    if target in RUNGS:
        rung = RUNGS[target]
        if rung.task not in TASKS:
            raise UsageError(f"{target} computes {rung.task}, which `weft check` does not judge yet")
        dtypes = rung.dtypes if rung.task == "sdpa" else rung.outputs
        supports = Supports(rung.task, tuple(dtypes), tuple(rung.masks), rung.largest_d, rung.gqa)
        return Candidate(rung.path, target, arch=arch), supports
    path = Path(target)
    if not path.is_file():
        raise UsageError(f"{target} is neither a file nor a rung of the ladder ({', '.join(RUNGS)})")
    return Candidate(path, arch=arch), _declared(path, task or "sdpa")


def _declared(path: Path, task: str) -> Supports:
    """What a file's launch lines leave open: its element type and mask by macro, or what its arrays say."""
    if task not in TASKS:
        raise UsageError(f"task {task!r}: use one of {', '.join(TASKS)}")
    kernel = load(path)
    macros = {line.name for line in kernel.lines.defines}
    outputs = {line.name: line.element for line in kernel.outputs}
    if "o" not in outputs:
        raise UsageError(f"{path} declares no output `o`; a kernel for {task} names its arrays as the task does")
    fixed = outputs["o"]
    if "ELEMENT" not in macros and fixed not in ELEMENTS:
        raise UsageError(f"{path}: o is {fixed}; {task} knows {', '.join(ELEMENTS)}")
    dtypes = ANY_FLOAT if "ELEMENT" in macros else (fixed,)
    return Supports(task, dtypes, MASKS if "CAUSAL" in macros else ("none",))


def workloads(supports: Supports, choice: Choice) -> Iterator[Workload]:
    """In a fixed order: shape by shape."""
    masks: Sequence[str] = [mask for mask in choice.masks or supports.masks if mask in supports.masks]
    dtypes: Sequence[str] = [dtype for dtype in choice.dtypes or supports.dtypes[:1] if dtype in supports.dtypes]
    for name in choice.shapes:
        if not supports.takes(SHAPES[name]):
            continue
        for dtype in dtypes:
            for mask in masks:
                for regime in choice.regimes:
                    for seed in range(choice.seeds):
                        yield Workload(SHAPES[name], dtype, mask, regime, seed)
