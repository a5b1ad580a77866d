"""SASS opcodes by unit. Multiply-adds are m · n · k of the instruction's shape."""

import pytest

from weft.core.chips import TensorKind
from weft.core.errors import Unsupported, UsageError
from weft.model.opcodes import tensor_instruction
from weft.model.work import Instructions, Memory, instructions_of


@pytest.mark.parametrize(
    ("opcode", "kind", "macs"),
    [
        ("HMMA.16816.F32", TensorKind.F16_F32, 2048),
        ("HMMA.16816.F16", TensorKind.F16_F16, 2048),
        ("HMMA.1688.F32", TensorKind.F16_F32, 1024),
        ("HMMA.16816.F32.BF16", TensorKind.BF16_F32, 2048),
        ("HMMA.1688.F32.TF32", TensorKind.TF32_F32, 1024),
        ("HMMA.1684.F32.TF32", TensorKind.TF32_F32, 512),
        ("HMMA.SP.16832.F32", TensorKind.F16_F32, 2048),
        ("IMMA.16832.S8.S8", TensorKind.INT8, 4096),
        ("IMMA.8816.U8.S8.SAT", TensorKind.INT8, 1024),
        ("IMMA.16864.S4.S4", TensorKind.INT4, 8192),
        ("QMMA.16832.F32.E4M3.E4M3", TensorKind.FP8_F32, 4096),
        ("QMMA.16832.F16.E5M2.E4M3", TensorKind.FP8_F16, 4096),
        ("HGMMA.64x128x16.F32", TensorKind.F16_F32, 32768),
        ("QGMMA.64x64x32.F32.E4M3.E4M3", TensorKind.FP8_F32, 32768),
    ],
)
def test_tensor_instructions(opcode: str, kind: TensorKind, macs: int) -> None:
    found = tensor_instruction(opcode)
    assert (found.kind, found.macs) == (kind, macs)
    assert found.of_group == ("x" in opcode)


@pytest.mark.parametrize(
    "opcode",
    ["HMMA.884.F32", "HMMA.16816", "QMMA.16832.F32.E2M1.E2M1", "IMMA.16832", "HGMMA.F32", "DMMA.8x8x4", "FFMA"],
)
def test_a_tensor_instruction_that_is_not_known_is_refused(opcode: str) -> None:
    with pytest.raises(Unsupported):
        tensor_instruction(opcode)


def test_units() -> None:
    found = instructions_of(
        {
            "FFMA.FTZ": 3,
            "FADD": 2,
            "IMAD.MOV.U32": 5,
            "IADD3.X": 7,
            "FMNMX": 1,
            "MUFU.EX2": 11,
            "LDS.U.128": 13,
            "LDSM.16.M88.4": 17,
            "LDSM.16.MT88.2": 19,
            "LDGSTS.E.BYPASS.128": 23,
            "SHFL.BFLY": 29,
            "HMMA.16816.F32": 31,
            "BAR.SYNC.DEFER_BLOCKING": 37,
            "HFMA2.MMA": 41,
        }
    )
    assert found == Instructions(
        executed=239,
        fp32=5,
        imad=5,
        alu=8,
        mufu=11,
        lsu=53,
        shuffles=29,
        tensor=31,
        tensor_macs={TensorKind.F16_F32: 31 * 2048},
    )


def test_accesses_that_a_predicate_switched_off_take_no_load_store_unit() -> None:
    sass = {"LDG.E": 10, "STG.E": 10, "FFMA": 1}
    assert instructions_of(sass, accesses=12).lsu == 12
    assert instructions_of(sass, accesses=30).lsu == 20
    assert instructions_of(sass, accesses=12).executed == 21


def test_wgmma_is_recognised() -> None:
    assert instructions_of({"HGMMA.64x64x16.F32": 4}).warp_group
    assert not instructions_of({"HGMMA.64x64x16.F32": 4, "HMMA.16816.F32": 1}).warp_group
    assert not instructions_of({"FFMA": 1}).warp_group


def test_opcodes_without_a_rate_are_refused() -> None:
    with pytest.raises(Unsupported, match="DMMA"):
        instructions_of({"DMMA.884": 4})


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="more than the 3 executed"):
        Instructions(3, fp32=2, alu=2)
    with pytest.raises(UsageError, match="mufu"):
        Instructions(3, mufu=-1)
    with pytest.raises(UsageError, match="tags"):
        Memory(tags=-1)
