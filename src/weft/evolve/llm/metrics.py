"""The counters that a proposal may predict, in words. They are the names of `weft.evolve.levers.effects.observed`."""

from collections.abc import Mapping
from types import MappingProxyType

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "issued": "warp instructions issued",
        "mma": "tensor core instructions",
        "fp32": "warp instructions on the fp32 pipe",
        "alu": "warp instructions on the integer and compare pipe",
        "mufu": "exponentials and other special functions, warp instructions",
        "lsu": "warp instructions on the load/store unit",
        "ldg": "loads from global memory, warp instructions",
        "ldgsts": "cp.async copies, warp instructions",
        "sts": "stores to shared memory, warp instructions",
        "shuffles": "warp shuffles",
        "barriers": "warps that arrive at a barrier of their CTA",
        "shared_wavefronts": "cycles that shared memory is busy",
        "excess_wavefronts": "those of them that bank conflicts cost",
        "global_sectors": "sectors of 32 bytes moved between L1 and L2",
        "registers": "per thread",
        "spill_bytes": "of registers that went to local memory, per thread",
        "shared_bytes": "shared memory of a CTA",
        "blocks_per_sm": "CTAs that fit on an SM at once",
        "ctas": "CTAs of all launches",
        "wave_factor": "how much longer it takes than with all SMs evenly busy; 1 is best",
    }
)
