"""`fp8_sdpa`: attention on 8-bit codes of Q, K and V with a scale per head, linear (sim-FP8) or E4M3."""

from dataclasses import replace
from functools import partial

from weft.attention.contract import CODED
from weft.attention.shapes import SHAPES
from weft.kernels.ladder import ENCODINGS

from .family import attention_task
from .mutants.quantised import QUANTISED_MUTANTS
from .sdpa import CERTIFIED_ON, QUICK_REGIMES, QUICK_SHAPES, SDPA
from .task import Axes, Workload

FP8_SDPA = attention_task(
    CODED,
    name="fp8_sdpa",
    what="attention on 8-bit codes with a scale per head, linear (sim_fp8) or e4m3; O in f16, bf16 or f32, and LSE",
    workloads=Axes(tuple(SHAPES), encodings=ENCODINGS),
    quick=Axes(QUICK_SHAPES, (*QUICK_REGIMES, "uneven_channels"), encodings=ENCODINGS),
    mutants=(*SDPA.mutants, *QUANTISED_MUTANTS),
    certified_on=tuple(map(partial(replace, encoding="sim_fp8"), CERTIFIED_ON))
    + tuple(map(partial(replace, encoding="e4m3"), CERTIFIED_ON[:3]))
    + (
        Workload(SHAPES["ragged"], "f16", "none", "uneven_channels", 0, "e4m3"),
        Workload(SHAPES["split_512"], "f16", "none", "offsets", 0, "sim_fp8"),
    ),
    any_size=SDPA.any_size,
)
