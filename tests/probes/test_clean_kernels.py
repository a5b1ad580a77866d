"""Correct kernels that share memory between threads or CTAs have no findings and the same results as a plain run."""

import zlib

import numpy as np
import pytest

import weft
from tests.kernels.case import Arrays, Case, Triton
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import _argument, _compiled, _poisoned
from weft.core.records import Binary
from weft.probes import InitCheck, Probes, RaceCheck, Wavefronts
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

NAMES = (
    "wmma_attention_B2_S77_32x32_w4_sm_89",
    "mma_attention_B2_S200_fp16_w4_causal_sm_89",
    "triton_flash_S128_fp16_w4_s3_causal_sm_89",
    "triton_flash_S200_fp16_w8_s3_sm_89",
    "tiled_gemm_45x70x70_beta-0.5",
    "softmax_block_per_row",
    "statistics_777",
    "counter_barrier_50",
    "stream_k_20_30",
    "rotary_fp32",
    "rotary_fp32_far",
    "rotary_fp16",
    "rotary_bf16",
)


def _results(case: Case, binary: Binary, watch: Instrumentation) -> Arrays:
    arrays = case.inputs(np.random.default_rng(zlib.crc32(case.name.encode())))
    arrays |= {name: _poisoned(buffer) for name, buffer in case.outputs.items()}
    gpu = weft.VirtualGPU(case.source.arch)
    for launch in case.launches:
        shared_bytes = binary.dynamic_shared_bytes if isinstance(case.source, Triton) else launch.shared_bytes
        args = [_argument(item, arrays) for item in launch.args]
        run = gpu.launch(binary, launch.entry, launch.grid, launch.block, args, shared_bytes=shared_bytes, watch=watch)
        assert not run.findings, "\n".join(map(str, run.findings))
    return arrays


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(name: str) -> None:
    case = next(case for case in CASES if case.name.startswith(name))
    binary = _compiled(case.name)
    plain = _results(case, binary, PLAIN)
    watched = _results(case, binary, Probes(InitCheck(), RaceCheck(), Wavefronts()))
    for array, values in plain.items():
        assert watched[array].tobytes() == values.tobytes(), array
