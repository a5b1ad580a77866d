"""The ladder: fused attention from one dot product to FP8 on tensor cores, each rung one CUDA file with launch lines.

from weft.kernels import RUNGS
weft.load(RUNGS["wmma"].path).run(weft.VirtualGPU(), sizes={"SQ": 77})
"""

from .ladder import RUNGS, Rung, table

__all__ = ["RUNGS", "Rung", "table"]
