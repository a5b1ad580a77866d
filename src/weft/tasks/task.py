"""A task: what must be computed, on which workloads, and what counts as right.

A task is data and three functions: `draw` makes the inputs of a workload, `reference` says what must come out of them,
`judge` holds a kernel's outputs against its gates. `docs/howto/add_task.md` builds one.
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
"""Arrays by the name that a kernel's launch lines give them."""

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
    """How 8-bit inputs are coded; `plain` where they are not."""

    def __str__(self) -> str:
        coded = "" if self.encoding == PLAIN else f"{self.encoding} → "
        return f"{self.shape.name} {coded}{self.dtype} {self.mask} {self.regime} seed {self.seed}"


@dataclass(frozen=True)
class Problem:
    """A workload with its inputs. Tasks subclass it where references need more than the arrays."""

    workload: Workload
    arrays: Mapping[str, Array]
    """What the kernel is given."""

    def defines(self) -> dict[str, str]:
        """Macros that select this workload's type and mask, as far as the kernel has them."""
        return {"ELEMENT": ELEMENTS[self.workload.dtype], "CAUSAL": str(MASKS.index(self.workload.mask))}


@dataclass(frozen=True)
class Output:
    """An array that the kernel leaves."""

    name: str
    shape: Callable[[Shape], tuple[int, ...]]
    dtype: str | None = None
    """None: the workload's."""
    optional: bool = False
    """A kernel may lack it; then it is not judged, and the verdict says so."""

    def numpy_dtype(self, workload: Workload) -> np.dtype[np.generic]:
        """Its type in a workload."""
        return numpy_dtype(self.dtype or workload.dtype)


@dataclass(frozen=True)
class Declared:
    """What a kernel says about its own arithmetic: the rung it is, if it is one, and its macros."""

    rung: str | None = None
    macros: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """The result of checking outputs against their problem."""

    gates: tuple[GateResult, ...]
    error: ErrorReport
    """The first output against the reference."""
    expected: Array
    """The reference of the first output."""
    parts: Mapping[str, ErrorReport] = field(default_factory=dict)
    """Where the error comes from, for tasks that split it."""

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
    """One way of being wrong. A mutant that breaks a required output is judged as a kernel without the optional ones,
    so that their gates cannot kill it in its stead."""

    name: str
    what: str
    run: Callable[..., Outputs]
    breaks: str = ""
    """The output it breaks; empty: the first."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Type of the output → why no gate can tell it from a right kernel there."""


@dataclass(frozen=True)
class Task:
    """What must be computed, in one place."""

    name: str
    what: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    """The first is the one whose error is shown."""
    stages: tuple[str, ...]
    """What a kernel passes through, in order."""
    draw: Callable[[Workload], Problem]
    reference: Callable[..., Outputs]
    """Problem → what must come out, in float64."""
    judge: Callable[..., Judgement]
    """Problem, outputs, what the kernel declares → the gates."""
    workloads: Axes
    """All of them."""
    quick: Axes
    """Those of a plain `weft check`: enough that every mutant shows. The first shapes meet every mask."""
    mutants: tuple[Mutant, ...]
    """Wrong implementations that the gates must reject."""
    right: Mapping[str, Callable[..., Outputs]]
    """Right implementations that they must not."""
    certified_on: tuple[Workload, ...]
    """Workloads that tell them apart; their type is replaced by the one that is certified."""
    any_size: tuple[str, ...] = ()
    """Sizes that may have any value (`judge/follow.py` names them): a check takes those where the kernel branches."""

    def output(self, name: str) -> Output:
        """An output by its name."""
        return next(output for output in self.outputs if output.name == name)


def judgement(gates: Sequence[GateResult], out: Array, expected: Array) -> Judgement:
    """A judgement without parts."""
    return Judgement(tuple(gates), compare(out, expected), expected)
