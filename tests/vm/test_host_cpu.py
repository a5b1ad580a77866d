"""The same kernels compiled for AVX-512 and for AVX2 give the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
CHILD = """
import hashlib, sys, zlib
import numpy as np
import weft
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import _argument, _compiled, _poisoned
from tests.kernels.case import Triton
for name in sys.argv[1:]:
    case = next(case for case in CASES if case.name == name)
    binary = _compiled(name)
    arrays = case.inputs(np.random.default_rng(zlib.crc32(name.encode())))
    arrays |= {key: _poisoned(buffer) for key, buffer in case.outputs.items()}
    gpu = weft.VirtualGPU(case.source.arch)
    for launch in case.launches:
        shared = binary.dynamic_shared_bytes if isinstance(case.source, Triton) else launch.shared_bytes
        args = [_argument(argument, arrays) for argument in launch.args]
        assert gpu.launch(binary, launch.entry, launch.grid, launch.block, args, shared_bytes=shared).clean
    print(name, hashlib.sha256(b"".join(arrays[key].tobytes() for key in case.outputs)).hexdigest())
"""
KERNELS = [
    "wmma_attention_B2_S77_32x32_w4_sm_89",
    "mma_attention_B1_S65_bf16_w8_causal_sm_89",
    "fp8_gemm_70x75x208_normal",
    "softmax_block_per_row_3x1000",
    "triton_flash_S77_bf16_w4_s3_sm_89",
]


def _digests(cpu: str) -> str:
    environment = {**os.environ, "WEFT_CPU": cpu, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", CHILD, *KERNELS]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_cpu_gives_the_same_bits() -> None:
    pytest.importorskip("triton")
    here, avx2 = _digests(""), _digests("x86-64-v3")
    assert [line.split()[0] for line in here.splitlines()] == KERNELS
    assert here == avx2
