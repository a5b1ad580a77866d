"""Runs a kernel that quantises, follows the preparing launches and one CTA of attention, and returns its stages.

Where a kernel quantises, kinds combine by further rules: an element times its step is still that element, and is
followed. Means, largest magnitudes and steps are computed from many elements of an input: they are statistics, of kind
MIX. An element minus a statistic or times one is the element; scores, U and O times a statistic keep their kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.reference import Causal, shape_of, visible
from weft.core.records import Dim3
from weft.engines.kernel_file import KernelFile
from weft.ptx import isa

from .algebra import Algebra
from .compare import Mask
from .locate import collect, trace
from .nodes import Nodes, Numbers, Where
from .provenance import Provenance
from .recipe_statistics import Statistics
from .record import Position, RecordingGPU
from .tags import INPUTS, MIXED, Kind, Sizes, Tags, among
from .taps import Taps

SCALED = (*INPUTS.values(), Kind.S, Kind.U, Kind.O, Kind.INVERSE_L)
"""Kinds that may be multiplied by a step."""


MOST_PREPARING = 12
"""The number of CTAs followed in a launch before attention; codes of other CTAs are not observed."""


class RecipeAlgebra(Algebra):
    """The rules of attention, and those of quantising."""

    def product(self, a: Tags, b: Tags) -> Tags:
        out = super().product(a, b)
        for one, other in ((a, b), (b, a)):
            kept = among(one["kind"], *SCALED) & (other["kind"] == Kind.MIX)
            out[kept] = one[kept]
        return out

    def total(self, a: Tags, b: Tags, *, minus: bool = False) -> Tags:
        out = super().total(a, b, minus=minus)
        several = (a["kind"] == b["kind"]) & among(a["kind"], *INPUTS.values())
        several &= (a["row"] != b["row"]) | (a["col"] != b["col"])
        _make_statistic(out, several)
        if minus:  # a mean
            less = among(a["kind"], *INPUTS.values()) & (b["kind"] == Kind.MIX)
            out[less] = a[less]
        for one, other in ((a, b), (b, a)):  # q · mean, which smoothing subtracted from every score
            shifted = (one["kind"] == Kind.LSE) & among(other["kind"], Kind.MIX, Kind.Q)
            out[shifted] = one[shifted]
        return out


class RecipeProvenance(Provenance):
    """Follows elements through their quantisation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unscored: set[tuple[int, int]] = set()
        """(query, key) whose weight is not 0 though its score contains no K; counted over all heads as in tags."""
        self.statistics = Statistics(self.nodes.sizes)
        self.weighs_padding: set[int] = set()
        """Queries with a weight that is not 0, no K in its score and no V as its factor: a key after the last one."""

    def _see_weights(self, p: Tags, values: Numbers, keys: Array, where: Where) -> None:
        super()._see_weights(p, values, keys, where)
        constant = (p["kind"] == Kind.R) & (values != 0) & (p["row"] >= 0) & (keys >= 0)
        self.unscored.update(zip(p["row"][constant].tolist(), keys[constant].tolist(), strict=True))

    def multiply(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers, where: Where) -> Tags:
        """Return the product's tags; an untracked value times a step is padding."""
        out = super().multiply(a, a_values, b, b_values, where)
        for stage, kind in INPUTS.items():
            for one, other, values in ((a, b, b_values), (b, a, a_values)):
                if (scaled := _with_statistic(one, other, kind)).any():
                    self.statistics.multiplied(stage, one[scaled], other[scaled], values[scaled], where.only(scaled))
        for one, values, other in ((a, a_values, b), (b, b_values, a)):
            padding = (one["kind"] == Kind.CONST) & (values == 0) & (other["kind"] == Kind.MIX)
            out[padding] = one[padding]
        if _multiplies(self.nodes.events[where.event].opcode):
            self._see_operands(a, a_values, b, where)
            self._see_operands(b, b_values, a, where)
        return out

    def subtract(self, a: Tags, b: Tags, b_values: Numbers, where: Where) -> Tags:
        """Return the difference's tags; what is subtracted from elements is a mean."""
        for stage, kind in INPUTS.items():
            # With a single key the mean is this element.
            if (less := _with_statistic(a, b, kind) | _with_itself(a, b, kind)).any():
                self.statistics.subtracted(stage, a[less], b[less], b_values[less], where.only(less))
        return super().subtract(a, b, b_values, where)

    def _see_operands(self, a: Tags, values: Numbers, other: Tags, where: Where) -> None:
        """Record a tensor core's operands as observed even if the other operand is wrong."""
        for kind, stage, partner in ((Kind.Q, "q", Kind.K), (Kind.K, "k", Kind.Q), (Kind.V, "v", Kind.P)):
            alone = (a["kind"] == kind) & (other["kind"] != partner)
            if alone.any():
                self._see(stage, a, values, alone, where)
        behind = (a["kind"] == Kind.R) & (values != 0) & (other["kind"] == Kind.CONST) & (a["row"] >= 0)
        self.weighs_padding.update(a["row"][behind].tolist())

    def largest(self, a: Tags, a_values: Numbers, b: Tags, b_values: Numbers) -> Tags:
        """Return the tags of the larger: of magnitudes a statistic; with a negative constant, the value itself."""
        out = super().largest(a, a_values, b, b_values)
        for one, other, values in ((a, b, b_values), (b, a, a_values)):
            element = among(one["kind"], *INPUTS.values()) & (other["kind"] == Kind.CONST)
            _make_statistic(out, element & ~(values < 0))
        return out


def _with_statistic(elements: Tags, others: Tags, kind: Kind) -> npt.NDArray[np.bool_]:
    """Return where an element of an input meets a statistic."""
    known = (elements["row"] >= 0) & (elements["col"] >= 0)
    return np.asarray((elements["kind"] == kind) & (others["kind"] == Kind.MIX) & known)


def _with_itself(elements: Tags, others: Tags, kind: Kind) -> npt.NDArray[np.bool_]:
    same = (elements["row"] == others["row"]) & (elements["col"] == others["col"]) & (elements["row"] >= 0)
    return np.asarray((elements["kind"] == kind) & (others["kind"] == kind) & same)


def _make_statistic(out: Tags, lanes: npt.NDArray[np.bool_]) -> None:
    out["kind"][lanes], out["flags"][lanes], out["terms"][lanes] = Kind.MIX, 0, 0
    out["row"][lanes], out["col"][lanes] = MIXED, MIXED


class PreparingGPU(RecordingGPU):
    """Records every CTA of launches that do not write O: a CTA of attention reads what many of them wrote."""

    def _linear(self, grid: Dim3) -> list[int]:
        if "o" in self.provenance.arrays:
            return super()._linear(grid)
        shape = self.provenance.board.sizes.shape
        wanted = self.position[1] // shape.group
        everyone = range(grid[0] * grid[1] * grid[2])
        return sorted(sorted(everyone, key=lambda cta: cta // grid[0] % grid[1] != wanted)[:MOST_PREPARING])


@dataclass(frozen=True)
class RecipeTaps:
    """The result of a recorded run."""

    taps: Taps
    unscored: Mask
    """(b, hq, sq, skv): weights that are not 0 though their scores contain no K."""
    weighs_padding: Mask
    """(b, hq, sq): rows with a weight that is not 0 and belongs to no key."""
    statistics: Statistics
    nodes: Nodes


def locate_recipe(
    kernel: KernelFile, arrays: Mapping[str, Array], algorithm: Algorithm, *, causal: Causal, position: Position
) -> RecipeTaps:
    """Return the stages of the CTAs at `position` in the launch that writes O. `arrays` are not changed."""
    sizes = Sizes(shape_of(*(arrays[name] for name in "qkv")))
    plain = trace(sizes, algorithm, visible(sizes.shape.sq, sizes.shape.skv, causal))
    provenance = RecipeProvenance(Nodes(sizes), RecipeAlgebra(sizes), plain.board, plain.handlers)
    provenance.seed({name: (name, arrays[name]) for name in "qkv"})
    gpu = PreparingGPU(kernel.gpu, provenance, position)
    outcome, left = kernel.run(gpu, {name: array.copy() for name, array in arrays.items()})
    shape = sizes.shape
    unscored = np.zeros((sizes.q_rows, shape.skv), bool)
    for row, key in provenance.unscored:
        unscored[row, key % shape.skv] = True
    taps = collect(provenance, algorithm, gpu, run=outcome, arrays=left)
    weighs_padding = np.zeros(sizes.q_rows, bool)
    weighs_padding[list(provenance.weighs_padding)] = True
    return RecipeTaps(
        taps,
        unscored.reshape(*shape.lse, shape.skv),
        weighs_padding.reshape(shape.lse),
        provenance.statistics,
        provenance.nodes,
    )


def _multiplies(opcode: str) -> bool:
    """Return whether it is an `mma`: its operands are fragments in registers."""
    found = isa.lookup(opcode)
    return found is not None and found[0].facts.multiplies == "mma"
