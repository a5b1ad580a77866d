"""Attention kernels give the same bits whether mma instructions that share A are executed together or one by one."""

from typing import Any

import numpy as np
import pytest

import weft
from tests.kernels.case import Arrays, Case, Triton
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import _argument, _compiled, _poisoned
from weft.ptx.parse import parse
from weft.vm.program import Program, compile_program

NAMES = ("mma_attention_B1_S200_fp16_w8_causal_sm_89", "triton_flash_S77_bf16_w4_s3_sm_89")


def results(case: Case, mode: str) -> Arrays:
    binary = _compiled(case.name)
    inputs = case.inputs(np.random.default_rng(1))
    arrays = {**inputs, **{name: _poisoned(buffer) for name, buffer in case.outputs.items()}}
    gpu = weft.VirtualGPU(case.source.arch, mode=mode)
    for launch in case.launches:
        shared_bytes = binary.dynamic_shared_bytes if isinstance(case.source, Triton) else launch.shared_bytes
        args = [_argument(argument, arrays) for argument in launch.args]
        run = gpu.launch(binary, launch.entry, launch.grid, launch.block, args, shared_bytes=shared_bytes)
        assert not run.findings
    return {name: arrays[name] for name in case.outputs}


@pytest.mark.parametrize("mode", ["hardware", "ieee"])
@pytest.mark.parametrize("name", NAMES)
def test_grouping_changes_no_bit(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    case = next(case for case in CASES if case.name == name)
    imports: list[tuple[str, ...]] = []

    def uncached(ptx: str, entry: str, **options: Any) -> Program:
        program = compile_program(parse(ptx), entry, **options)
        imports.append(program.plan.imports)
        return program

    monkeypatch.setattr("weft.engines.virtual.compile_program", uncached)
    together = results(case, mode)
    monkeypatch.setattr("weft.vm.emit.in_step.group_mma", lambda *_, **__: {})
    alone = results(case, mode)
    grouped, single = ([x for x in names if x.startswith("mma.")] for names in imports)
    assert [x.endswith(".x8") for x in grouped] == [True] and [x.endswith(".x8") for x in single] == [False]
    for output, array in together.items():
        assert array.tobytes() == alone[output].tobytes(), output
