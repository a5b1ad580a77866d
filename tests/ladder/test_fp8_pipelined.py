"""`fp8_pipelined`: bit-identical to `fp8_mma`, and in addition no bank conflict and no spill."""

import pytest

import weft
from tests.in_turn import one_in
from tests.ladder.test_fp8_mma import CASES, Case, inputs, run
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import CompileError
from weft.kernels import RUNGS
from weft.probes import InitCheck, Probes, RaceCheck
from weft.probes.wavefronts import Wavefronts

PATH = RUNGS["fp8_pipelined"].path
SIZES = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 80, "SKV": 130}


ROWS_OF_SIX_CHUNKS = Case(SHAPES["d96"], "top_left", "bf16", {"BLOCK_M": "48"})
PAIRS_ONLY = Case(Shape("pairs", 1, 2, 1, 19, 70, 34), None, "f16", {"BLOCK_M": "16"})  # D even, no multiple of 4


@pytest.mark.parametrize("case", one_in(4, [*CASES[:3], ROWS_OF_SIX_CHUNKS, PAIRS_ONLY]), ids=str)
def test_the_same_bits_as_fp8_mma(case: Case) -> None:
    """Ragged, masked and grouped cases, small and large tiles; `fp8_mma` itself is compared with its recipe."""
    arrays = inputs(case.shape, case.dtype)
    kernel = weft.load(PATH, defines=case.defines)
    outcome, after = kernel.run(weft.VirtualGPU(), arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert outcome.clean, "\n".join(map(str, outcome.findings))
    expected = run(arrays, case.defines)
    for name in ("o", "lse"):
        assert after[name].tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("d", [64, 128])
def test_no_bank_conflict_and_no_spill(d: int) -> None:
    kernel = weft.load(PATH)
    outcome, _ = kernel.run(weft.VirtualGPU(), sizes={**SIZES, "D": d}, watch=Wavefronts())
    assert outcome.clean
    assert outcome.counters["vm__shared_wavefronts"] == outcome.counters["vm__shared_wavefronts_ideal"] > 0
    for each in kernel.compile(sizes={**SIZES, "D": d}).resources.values():
        assert each.spill_store_bytes == each.spill_load_bytes == each.local_bytes == 0


def test_tiles_that_do_not_fit_do_not_compile() -> None:
    with pytest.raises(CompileError, match="exceed 48 KB"):
        weft.load(PATH, defines={"BLOCK_N": "128"}).compile(sizes={"D": 128})
