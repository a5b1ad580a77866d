"""Judging on any engine: the gates of the task, and engines with errors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.attention.shapes import SHAPES
from weft.core.errors import ResourceError, Unsupported
from weft.core.records import Run
from weft.core.status import Status
from weft.engines.launch import Launch
from weft.engines.protocol import DEFAULTS, RunOptions
from weft.judge.candidate import Candidate
from weft.judge.judge import judge
from weft.judge.local_runs import EngineRuns
from weft.judge.select import find_candidate
from weft.tasks.sdpa import SDPA
from weft.tasks.task import Workload

WORKLOAD = Workload(SHAPES["split_4"], "f32", "none", "unit_normal", 0)


class Odd(weft.VirtualGPU):
    """A GPU whose second launch changes the last bit."""

    launches = 0

    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        done = super().run(launches, options)
        type(self).launches += 1
        if type(self).launches % 2 == 0:
            out = launches[-1].args[3]
            out.reshape(-1).view(np.uint8)[0] ^= 1
        return done


class Small(weft.VirtualGPU):
    """A GPU that is too small for every launch."""

    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        raise ResourceError("too large for this GPU")


def test_a_rung_passes_and_its_outputs_are_there() -> None:
    candidate, supports = find_candidate("scalar", task=None)
    found = judge(EngineRuns(candidate, weft.VirtualGPU()), supports.task, WORKLOAD)
    assert found.verdict.passed and found.verdict.gates and found.verdict.seconds > 0
    assert found.outputs is not None and found.outputs["o"].shape == SHAPES["split_4"].q


@pytest.mark.parametrize(("engine", "status"), [(Odd, Status.NONDETERMINISTIC), (Small, Status.RESOURCE_ERROR)])
def test_what_an_engine_may_do(engine: type[weft.VirtualGPU], status: Status) -> None:
    candidate, supports = find_candidate("scalar", task=None)
    found = judge(EngineRuns(candidate, engine()), supports.task, WORKLOAD)
    assert found.verdict.status is status


LINES = """// weft: sizes B=1 HQ=1 HKV=1 SQ=4 SKV=4 D=4
// weft: in q : f32[B, HQ, SQ, D] = normal
// weft: in k, v : f32[B, HKV, SKV, D] = normal
// weft: out o : f32[B, HQ, SQ, D]
// weft: launch wrong(v, o) grid(1) block(B * HQ * SQ * D)
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [("o[threadIdx.x] = v[threadIdx.x];", Status.INCORRECT_NUMERICAL), ("o[threadIdx.x + 4096] = 1;", Status.UNSAFE),
     ("o[threadIdx.x] = w;", Status.COMPILE_ERROR)],
)  # fmt: skip
def test_wrong_kernels(tmp_path: Path, body: str, status: Status) -> None:
    path = tmp_path / "wrong.cu"
    path.write_text(f'{LINES}extern "C" __global__ void wrong(const float* v, float* o) {{ {body} }}\n')
    assert judge(EngineRuns(Candidate(path), weft.VirtualGPU()), SDPA, WORKLOAD).verdict.status is status


class Limited(weft.VirtualGPU):
    """A GPU that does not support an instruction."""

    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        raise Unsupported("wgmma")


def test_an_unsupported_kernel_is_neither_right_nor_wrong() -> None:
    candidate, supports = find_candidate("scalar", task=None)
    found = judge(EngineRuns(candidate, Limited()), supports.task, WORKLOAD)
    assert found.verdict.status is Status.UNSUPPORTED and "wgmma" in found.verdict.message
    assert found.outputs is None
