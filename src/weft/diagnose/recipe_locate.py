"""Run a kernel that quantises, follow what prepares the codes and one CTA of attention, and hand back its stages."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.reference import Causal, shape_of
from weft.core.records import Dim3
from weft.engines.kernel_file import KernelFile

from .compare import Mask
from .locate import collect, trace
from .nodes import Nodes
from .recipe_algebra import RecipeAlgebra, RecipeProvenance
from .record import Position, RecordingGPU
from .tags import Sizes
from .taps import Taps

MOST_PREPARING = 12
"""CTAs of a launch before attention that are followed; codes that others make are not observed."""


class PreparingGPU(RecordingGPU):
    """Records every CTA of launches that do not write O: a CTA of attention reads what many of them left."""

    def _linear(self, grid: Dim3) -> list[int]:
        if "o" in self.provenance.arrays:
            return super()._linear(grid)
        shape = self.provenance.board.sizes.shape
        wanted = self.position[1] // shape.group
        everyone = range(grid[0] * grid[1] * grid[2])
        return sorted(sorted(everyone, key=lambda cta: cta // grid[0] % grid[1] != wanted)[:MOST_PREPARING])


@dataclass(frozen=True)
class RecipeTaps:
    """What a recorded run shows."""

    taps: Taps
    unscored: Mask
    """(b, hq, sq, skv): weights that are not 0 though no K went into their scores."""
    weighs_padding: Mask
    """(b, hq, sq): rows with a weight that is neither 0 nor a key's."""


def locate_recipe(
    kernel: KernelFile, arrays: Mapping[str, Array], algorithm: Algorithm, *, causal: Causal, position: Position
) -> RecipeTaps:
    """The stages of the CTAs at `position` in the launch that writes O. `arrays` are left as they are."""
    sizes = Sizes(shape_of(*(arrays[name] for name in "qkv")))
    plain = trace(sizes, algorithm, causal)
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
    return RecipeTaps(taps, unscored.reshape(*shape.lse, shape.skv), weighs_padding.reshape(shape.lse))
