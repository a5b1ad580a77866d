"""Other kernels than the ladder's: fragments in registers, swizzled shared memory, ldmatrix, cp.async; CUDA, Triton."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.reference import Causal
from weft.attention.regimes import make
from weft.attention.shapes import Shape
from weft.core.records import Binary, Run
from weft.diagnose.diagnose import expected
from weft.diagnose.locate import Runner, locate_run
from weft.diagnose.taps import TAPPED, Taps
from weft.engines.virtual import VirtualGPU

KERNELS = Path(__file__).parents[1] / "kernels" / "cuda"
TOLERANCE = {"p": 2.0**-11, "u": 70 * 2.0**-12, "o": 2.0**-10}
"""P in f16 has steps of 2^-11 below 1, and U sums 70 of them."""


def _launch(binary: Binary, entry: str, shape: Shape, rows: int, block: int, extra: tuple[object, ...] = ()) -> Runner:
    """Launch with q, k, v, o, lse, S and scale, one CTA per `rows` queries and head."""

    def run(gpu: VirtualGPU, arrays: Mapping[str, Array]) -> tuple[Run, Mapping[str, Array]]:
        o, lse = np.full(shape.q, np.nan, np.float16), np.full(shape.lse, np.nan, np.float32)
        args = [
            *(arrays[name] for name in "qkv"),
            o,
            lse,
            np.int32(shape.sq),
            np.float32(1 / math.sqrt(shape.d)),
            *extra,
        ]
        names = ["q", "k", "v", "o", "lse", *map(str, range(5, len(args)))]
        dynamic = binary.dynamic_shared_bytes or (rows + 4 * 64) * 128
        grid = (-(-shape.sq // rows), shape.hq, 1)
        return gpu.launch(binary, entry, grid, block, args, shared_bytes=dynamic, names=names), {"o": o, "lse": lse}

    return run


def _check(run: Runner, shape: Shape, block_n: int, causal: Causal) -> Taps:
    q, k, v = make("unit_normal", shape, "f16", 0)
    declared = Algorithm(block_m=16, block_n=block_n, operand_dtype="f16", p_dtype="f16", out_dtype="f16", exp_base=2)
    taps = locate_run(run, {"q": q, "k": k, "v": v}, declared, causal=causal, position=(1, 0), whole=False)
    assert taps.facts == () and taps.disagreements == () and taps.run.findings == ()
    assert taps.observed == TAPPED
    assert taps.algorithm.exp_base == 2
    wanted = expected(taps.algorithm, q, k, v, causal=causal)
    for (stage, tile), tap in taps.taps.items():
        got, should = tap.values[tap.observed], wanted[stage, tile].astype(np.float64)[tap.observed]
        with np.errstate(invalid="ignore"):
            error = np.where(got == should, 0.0, np.abs(got - should))
        assert (error <= TOLERANCE.get(stage, 0.0) + 3e-5).all(), (stage, tile)
    return taps


@pytest.mark.parametrize("causal", [None, "top_left"])
def test_mma_kernel_that_scales_after_subtracting(causal: Causal) -> None:
    shape = Shape("mma", 1, 1, 1, 70 if causal is None else 24, 70 if causal is None else 24, 64)
    entry = f"mma_attention<half,1,{'false' if causal is None else 'true'}>"
    binary = weft.compile_cuda(KERNELS / "mma_attention.cu", entries=[entry])
    taps = _check(_launch(binary, entry, shape, 16, 32), shape, 64, causal)
    assert taps.unit == pytest.approx(1 / math.sqrt(shape.d), rel=1e-3)
    tap = taps.at("scores", 0)
    assert tap is not None and tap.factor == pytest.approx(math.log2(math.e) / 8, rel=1e-3)
    assert taps.at("l", 0) is None or causal is not None  # each lane keeps a part of l until the last tile


@pytest.mark.parametrize("causal", [None, "top_left"])
def test_triton_flash_attention(causal: Causal) -> None:
    pytest.importorskip("triton")
    from tests.kernels import triton_kernels

    shape = Shape("triton", 1, 1, 1, 40, 40, 32)
    tensors = {f"{name}_ptr": "*fp16" for name in ("q", "k", "v", "o")}
    binary = weft.compile_triton(
        triton_kernels.flash_attention,
        signature={**tensors, "lse_ptr": "*fp32", "S": "i32", "scale": "fp32"},
        constexprs={"D": shape.d, "BLOCK_M": 16, "BLOCK_N": 32, "CAUSAL": causal is not None},
        num_warps=1,
        num_stages=2,
        attrs=dict.fromkeys(tensors, 16),
    )
    scratch = (np.uint64(0), np.uint64(0))
    run = _launch(binary, "flash_attention", shape, 16, 32, scratch)
    taps = _check(run, shape, 32, causal)
    assert taps.unit == pytest.approx(math.log(2), rel=1e-3)


def _check_per_row(binary: Binary, entry: str, *extra: object) -> None:
    """Check a kernel with one thread per query, of 5 queries and keys, without an LSE."""
    shape = Shape("naive", 1, 1, 1, 5, 5, 8)

    def run(gpu: VirtualGPU, arrays: Mapping[str, Array]) -> tuple[Run, Mapping[str, Array]]:
        o = np.full(shape.q, np.nan, np.float32)
        args = [*(arrays[name] for name in "qkv"), o, np.int32(5), np.float32(1 / math.sqrt(8)), *extra]
        names = ["q", "k", "v", "o", *map(str, range(4, len(args)))]
        return gpu.launch(binary, entry, 1, 32, args, names=names), {"o": o}

    q, k, v = make("unit_normal", shape, "f32", 0)
    taps = locate_run(run, {"q": q, "k": k, "v": v}, Algorithm(block_m=32, block_n=1), whole=False)
    assert taps.facts == () and taps.observed == TAPPED[:-1]  # it has no LSE
    wanted = expected(taps.algorithm, q, k, v)
    for key, tap in taps.taps.items():
        assert tap.observed.all()
        assert np.allclose(tap.values, wanted[key], rtol=1e-5, atol=1e-6), key


def test_debug_build_with_calls_and_local_memory() -> None:
    binary = weft.compile_cuda(KERNELS / "naive_attention.cu", entries=["attention_per_row<8>"], debug=True)
    _check_per_row(binary, "attention_per_row<8>", np.bool_(False))


@pytest.mark.parametrize("entry", ["by_pipeline", "by_barrier"])
def test_copies_that_complete_at_mbarriers_are_followed(entry: str) -> None:
    binary = weft.compile_cuda(KERNELS / "staged_attention.cu", entries=["by_pipeline", "by_barrier"])
    assert "cp.async.mbarrier.arrive" in binary.ptx
    _check_per_row(binary, entry)
