"""A task: what must be computed, on which workloads, and what counts as right.

A task is data and three functions: `draw` makes the inputs of a workload, `reference` computes the expected outputs,
`judge` checks a kernel's outputs with its gates. `docs/howto/add_task.md` builds one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.error_report import ErrorReport, compare
from weft.attention.gates import GateResult
from weft.attention.regimes import REGIMES
from weft.attention.shapes import SHAPES, Shape, is_shape
from weft.attention.words import MASK_WORDS
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.kernels.ladder import ELEMENTS, ENCODINGS, MASKS

Outputs = Mapping[str, Array]
"""Arrays by their names in a kernel's launch lines."""

PLAIN = "plain"
"""The encoding of inputs that are numbers, not codes."""


@dataclass(frozen=True)
class Workload:
    """One problem: a shape, the types and mask, how the inputs are drawn, and the seed."""

    shape: Shape
    dtype: str
    mask: str
    regime: str
    seed: int
    encoding: str = PLAIN
    """How 8-bit inputs are encoded; `plain` where inputs are numbers."""

    def __str__(self) -> str:
        coded = "" if self.encoding == PLAIN else f"{self.encoding} → "
        return f"{self.shape.name} {coded}{self.dtype} {self.mask} {self.regime} seed {self.seed}"


@dataclass(frozen=True)
class Problem:
    """A workload with its inputs. Tasks subclass it where references need more than the arrays."""

    workload: Workload
    arrays: Mapping[str, Array]
    """The kernel's inputs."""

    def defines(self) -> dict[str, str]:
        """Macros that select this workload's type and mask, as far as the kernel has them."""
        return {"ELEMENT": ELEMENTS[self.workload.dtype], "CAUSAL": str(MASKS.index(self.workload.mask))}


@dataclass(frozen=True)
class Output:
    """An array that the kernel writes."""

    name: str
    shape: Callable[[Shape], tuple[int, ...]]
    dtype: str | None = None
    """None: the workload's type."""
    optional: bool = False
    """Whether a kernel may lack it; then it is not judged, and the verdict reports that."""
    any_order: bool = False
    """Whether a kernel may declare that its last bits depend on the order of CTAs and warps (`nondeterministic` lines):
    then the gates decide in every order, and equal bits are not required.
    """

    def numpy_dtype(self, workload: Workload) -> np.dtype[np.generic]:
        """Return its type in a workload."""
        return numpy_dtype(self.dtype or workload.dtype)


@dataclass(frozen=True)
class Declared:
    """What a kernel declares about its arithmetic: its rung, if it is one, its macros, and its order."""

    rung: str | None = None
    macros: Mapping[str, str] = field(default_factory=dict)
    nondeterministic: tuple[str, ...] = ()
    """Outputs whose last bits depend on the order of CTAs and warps."""


@dataclass(frozen=True)
class Judgement:
    """The result of checking outputs against their problem."""

    gates: tuple[GateResult, ...]
    error: ErrorReport
    """Error of the first output relative to the reference."""
    expected: Array
    """The reference of the first output, in the kernel's layout."""
    parts: Mapping[str, ErrorReport] = field(default_factory=dict)
    """The parts of the error, for tasks that split it."""

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)


@dataclass(frozen=True)
class Axes:
    """Workloads as a product of their properties."""

    shapes: tuple[str, ...]
    regimes: tuple[str, ...] = tuple(REGIMES)
    dtypes: tuple[str, ...] = tuple(ELEMENTS)
    masks: tuple[str, ...] = MASKS
    encodings: tuple[str, ...] = (PLAIN,)

    def __post_init__(self) -> None:
        known: Mapping[str, Sequence[str]] = {
            "shapes": tuple(SHAPES),
            "regimes": tuple(REGIMES),
            "dtypes": tuple(ELEMENTS),
            "masks": MASKS,
            "encodings": (PLAIN, *ENCODINGS),
        }
        for axis, names in known.items():
            for name in getattr(self, axis):
                if name not in names and not (axis == "shapes" and is_shape(name)):
                    words = MASK_WORDS if axis == "masks" else ()
                    hint = did_you_mean(name, (*names, *words))
                    raise UsageError(f"unknown {axis[:-1]} {name!r}{hint}; use one of {', '.join(names)}")

    def within(self, other: "Axes") -> "Axes":
        """Return what both have, in this order. A shape that is named by its sizes belongs to neither and stays."""
        both = {
            axis.name: tuple(
                name
                for name in getattr(self, axis.name)
                if name in getattr(other, axis.name) or (axis.name == "shapes" and name not in SHAPES)
            )
            for axis in fields(self)
        }
        return replace(self, **both)


@dataclass(frozen=True)
class Mutant:
    """A wrong implementation. A mutant that breaks a required output is judged as a kernel without the optional
    outputs, so that their gates cannot reject it instead."""

    name: str
    what: str
    run: Callable[..., Outputs]
    breaks: str = ""
    """The output it breaks; empty: the first."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Type of the output → why no gate can distinguish it from a right kernel there."""
    stage: str = ""
    """The stage it breaks, where a diagnosis names it by comparing outputs."""


@dataclass(frozen=True)
class Task:
    """What must be computed, in one place."""

    name: str
    what: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    """The error of the first output is shown."""
    stages: tuple[str, ...]
    """The stages of a kernel, in order."""
    draw: Callable[[Workload], Problem]
    reference: Callable[..., Outputs]
    """Problem → expected outputs, in float64."""
    judge: Callable[..., Judgement]
    """Problem, outputs, what the kernel declares → results of the gates."""
    workloads: Axes
    """All workloads."""
    quick: Axes
    """Workloads of a plain `weft check`, enough to reject every mutant. The first shapes run with every mask."""
    mutants: tuple[Mutant, ...]
    """Wrong implementations that the gates must reject."""
    right: Mapping[str, Callable[..., Outputs]]
    """Right implementations that the gates must not reject."""
    certified_on: tuple[Workload, ...]
    """Workloads that separate wrong from right ones; their type is replaced by the certified one."""
    any_size: tuple[str, ...] = ()
    """Sizes that may have any value (names as in `judge/follow.py`): a check adds values where the kernel branches."""
    macros: Mapping[str, str] = field(default_factory=dict)
    """Macros of the task itself, for kernels that have them; `Problem.defines` adds those of a workload."""
    typical: str = "mission"
    """The shape of a profile and of a search's score if the caller names none."""

    def output(self, name: str) -> Output:
        """Return an output by its name."""
        return next(output for output in self.outputs if output.name == name)


def judgement(gates: Sequence[GateResult], out: Array, expected: Array) -> Judgement:
    """Return a judgement without parts."""
    return Judgement(tuple(gates), compare(out, expected), expected)
