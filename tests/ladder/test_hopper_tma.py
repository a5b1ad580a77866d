"""`hopper_tma` in addition to correct results: asynchronous as written, under every schedule, on its GPU only."""

import numpy as np
import pytest

import weft
from weft.attention.reference import Causal, attention
from weft.core.errors import UsageError
from weft.kernels import RUNGS
from weft.kernels.ladder import MASKS
from weft.probes import InitCheck, Probes, RaceCheck

PATH = RUNGS["hopper_tma"].path
SIZES = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 80, "SKV": 130, "D": 64}


def agree(defines: dict[str, str], d: int, causal: Causal, schedule: int = 0) -> None:
    """Compare with float64 under all checkers: a score of f16 products is exact to 1e-5, P and O are rounded to f16."""
    rng = np.random.default_rng(3)
    shapes = ((1, 2, 200, d), (1, 1, 330, d), (1, 1, 330, d))
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    kernel = weft.load(PATH, defines={**defines, "CAUSAL": str(MASKS.index(causal or "none"))})
    gpu = weft.VirtualGPU(kernel.gpu, schedule=schedule)
    run, arrays = kernel.run(gpu, {"q": q, "k": k, "v": v}, watch=Probes(InitCheck(), RaceCheck()))
    assert run.findings == ()
    exact = attention(q, k, v, causal=causal)
    assert np.abs(arrays["o"].astype(np.float64) - exact.o).max() < 4e-3
    assert np.abs(arrays["lse"] - exact.lse).max() < 1e-4


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_copies_may_arrive_at_any_time(schedule: int) -> None:
    """Late, at issue, shuffled: a ring of two stages and six tiles is clean under all."""
    agree({}, 64, "bottom_right", schedule)


@pytest.mark.parametrize(
    ("defines", "d"),
    [
        ({"BLOCK_M": "64"}, 8),
        ({"BLOCK_M": "192", "STAGES": "3"}, 72),
        ({"BLOCK_N": "128"}, 128),
    ],
)
def test_levers_do_not_change_the_result(defines: dict[str, str], d: int) -> None:
    agree(defines, d, "top_left")


def test_every_cta_of_a_larger_grid_is_judged() -> None:
    """32 CTAs do the same: none is left out, so there is no note either."""
    sizes = {"B": 1, "HQ": 8, "HKV": 8, "SQ": 512, "SKV": 512, "D": 64}
    kernel = weft.load(PATH)
    assert kernel.run(weft.VirtualGPU(kernel.gpu), sizes=sizes, watch=RaceCheck()).run.findings == ()


def test_every_product_is_of_a_warpgroup_and_every_tile_is_a_box() -> None:
    """One tile of 64 keys at D = 80: five steps of 16 columns for S; four steps of 16 keys and two panels for P·V.

    The producer's loops over Q and over tiles have one copy each, of Q, of two panels of K and of two of V.
    """
    ptx = weft.load(PATH).compile(sizes={**SIZES, "D": 80}).ptx
    assert ptx.count("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16") == 5 + 4 * 2
    assert "ld.global" not in ptx and "ldmatrix" not in ptx and "mma.sync" not in ptx


@pytest.mark.parametrize(("d", "block_m", "causal"), [(64, "128", "0"), (128, "128", "2"), (128, "192", "0")])
def test_nothing_spills_and_no_product_is_serialised(d: int, block_m: str, causal: str) -> None:
    binary = weft.load(PATH, defines={"BLOCK_M": block_m, "CAUSAL": causal}).compile(sizes={**SIZES, "D": d})
    (resources,) = binary.resources.values()
    assert resources.spill_store_bytes == resources.spill_load_bytes == resources.local_bytes == 0
    # The producer's 24 registers and the consumers' must fit into what the CTA starts with.
    consumers = int(block_m) // 64
    assert 24 + consumers * (160 if block_m == "192" else 240) <= (consumers + 1) * resources.registers
    assert not [note for note in binary.diagnostics if "C75" in str(note)]


def test_another_gpu_is_refused() -> None:
    for gpu in ("l4", "rtx5090", "sm_90"):
        with pytest.raises(UsageError, match=r"is for sm_90a, not for .*: choose one of h100, h200"):
            weft.load(PATH, gpu=gpu)
    assert weft.load(PATH).gpu == "h100"
    assert weft.load(PATH, gpu="h200").gpu == "h200"
