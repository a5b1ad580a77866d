"""Which CTAs write a row of the output."""

import numpy as np

from weft.attention.dtypes import Array
from weft.core.errors import LaunchError
from weft.engines.kernel_file import KernelFile
from weft.engines.sample import CtaSample
from weft.engines.virtual import VirtualGPU
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Problem

from .record import Position

MOST_RUNS = 64


def owner(kernel: KernelFile, problem: Problem, wrong: Array) -> Position:
    """Return (blockIdx.x, blockIdx.y) of the CTAs that write the first wrong element of O; (0, 0) if none is found.

    Each position runs alone, and the elements it overwrites belong to it.
    """
    number = int(wrong.argmax())
    first = np.unravel_index(number, wrong.shape)
    at = number
    if isinstance(problem, AttentionProblem) and not problem.is_dense:
        at = int(np.argmax(problem.element_numbers["o"].reshape(-1) == number))
    width, height, _ = kernel.grids(problem.arrays)[-1]
    positions = [(x, y) for y in range(height) for x in range(width)]
    if len(positions) == 1:
        return 0, 0
    # A grid of (blocks of queries, heads) is the most likely: run those of this head first, from its first rows on.
    head = int(first[1])
    positions.sort(key=lambda at: (at[1] != head, at))
    for position in positions[:MOST_RUNS]:
        try:
            _, arrays = kernel.run(
                VirtualGPU(kernel.gpu),
                {name: array.copy() for name, array in problem.arrays.items()},
                ctas=CtaSample(positions=(position,)),
            )
        except LaunchError:
            return 0, 0
        if (arrays["o"].reshape(-1)[at : at + 1].view(np.uint8) != 0xFF).any():
            return position
    return 0, 0
