"""What a kernel is held against: its arithmetic, as declared and as its run shows, and what each stage should hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.reference import Causal, default_scale
from weft.attention.stages import PER_TILE
from weft.engines.kernel_file import KernelFile
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.declared import algorithms_of
from weft.tasks.task import Declared

from .partials import split_count, workspaces
from .taps import Key, Taps


def declared_algorithms(
    declared: Declared, problem: AttentionProblem, kernel: KernelFile, arrays: Mapping[str, Array]
) -> tuple[Algorithm, ...]:
    """Those the judge allows, with the parts that the kernel's workspaces have.

    A kernel without a lever BLOCK_N is taken to work key by key; its maxima will show if it does not.
    """
    workload = problem.workload
    shown = algorithms_of(declared, workload.encoding, workload.dtype)
    sizes = dict(zip("bhsd", workload.shape.q, strict=True))
    parts = max((split_count(space, sizes) for space in workspaces(kernel, arrays)), default=1)
    if "BLOCK_N" not in declared.macros:
        shown = tuple(replace(algorithm, block_n=1) for algorithm in shown)
    return tuple(replace(algorithm, splits=max(parts, algorithm.splits)) for algorithm in shown)


def shown_algorithm(taps: Taps, problem: AttentionProblem, allowed: Sequence[Algorithm]) -> Algorithm:
    """Of those allowed, the one whose operands were seen; P rounded as it was seen, or as declared."""
    nearest = min(allowed, key=lambda algorithm: _operand_error(taps, problem, algorithm.operand_dtype))
    chosen = replace(
        taps.algorithm, operand_dtype=nearest.operand_dtype, p_dtype=nearest.p_dtype, p_open=nearest.p_open
    )
    seen = [tap.values[tap.observed] for (stage, _), tap in taps.taps.items() if stage == "p"]
    if not chosen.p_open or not seen:
        return chosen
    p = np.concatenate(seen).astype(np.float32)
    is_short = np.array_equal(p, rounded(p, chosen.p_dtype), equal_nan=True)
    return replace(chosen, p_dtype=chosen.p_dtype if is_short else "f32", p_open=False)


def _operand_error(taps: Taps, problem: AttentionProblem, dtype: str) -> float:
    """Over all of Q that was seen."""
    tap = taps.at("q")
    if tap is None:
        return 0.0
    wanted = rounded(problem.q.astype(np.float32), dtype).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.nansum(np.abs(tap.values - wanted)[tap.observed]))


def expected(
    algorithm: Algorithm, q: Array, k: Array, v: Array, *, scale: float | None = None, causal: Causal = None
) -> Mapping[Key, Array]:
    """Every stage of the emulated algorithm on (dequantised) inputs."""
    return stages_of(emulate(algorithm, q, k, v, scale=scale, causal=causal, keep_stages=True), algorithm, scale=scale)


def stages_of(emulated: Emulated, algorithm: Algorithm, *, scale: float | None = None) -> Mapping[Key, Array]:
    """The stages of an emulation that kept them; `products` are scores before the scale."""
    stages: dict[Key, Array] = {("q", None): emulated.q}
    factor = default_scale(emulated.q.shape[-1]) if scale is None else scale
    factor *= 1.0 if algorithm.exp_base == math.e else math.log2(math.e)
    for tile in emulated.tiles:
        for name in PER_TILE:
            stages[name, tile.index] = tile.stage(name)
        in_q = algorithm.scale_in == "q"
        stages["products", tile.index] = tile.scores if in_q else tile.scores / np.float32(factor)
    stages["o", None], stages["lse", None] = emulated.o, emulated.lse
    return stages
