"""`pipelined` in addition to correct results: no bank conflict, no spill, and splits only for a small grid."""

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from weft.attention.reference import attention
from weft.kernels import RUNGS
from weft.probes.wavefronts import Wavefronts

PATH = RUNGS["pipelined"].path
SIZES = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 80, "SKV": 130, "D": 64}


@pytest.mark.parametrize("d", one_in(6, [64, 16, 32, 128, 48, 80]))
def test_shared_memory_is_free_of_conflicts(d: int) -> None:
    run, _ = weft.load(PATH).run(weft.VirtualGPU(), sizes={**SIZES, "D": d}, watch=Wavefronts())
    assert run.clean
    assert run.counters["vm__shared_wavefronts"] == run.counters["vm__shared_wavefronts_ideal"] > 0


@pytest.mark.parametrize(
    ("d", "element", "causal"), [(64, "half", "0"), (128, "half", "2"), (128, "__nv_bfloat16", "0")]
)
def test_nothing_spills(d: int, element: str, causal: str) -> None:
    kernel = weft.load(PATH, defines={"ELEMENT": element, "CAUSAL": causal})
    resources = kernel.compile(sizes={**SIZES, "D": d}).resources
    assert len(resources) == 2  # the sizes require one split, so both kernels are there
    for each in resources.values():
        assert each.spill_store_bytes == each.spill_load_bytes == each.local_bytes == 0
        assert each.registers <= 255


def test_every_matrix_product_is_on_tensor_cores() -> None:
    """One tile of 64 keys and 64 queries, D = 64: S takes 4 × 8 and P·V 4 × 8 products per warp, and there are 4."""
    kernel = weft.load(PATH, defines={"SMS": "1"})
    ptx = kernel.compile(sizes={**SIZES, "SQ": 64, "SKV": 64}).ptx
    assert ptx.count("mma.sync.aligned.m16n8k16") == 4 * 8 + 4 * 8


@pytest.mark.parametrize(
    ("sizes", "launches"),
    [
        ({"B": 1, "HQ": 8, "HKV": 8, "SQ": 512, "SKV": 512, "D": 64}, 1),  # 64 CTAs fill 58 multiprocessors
        ({"B": 1, "HQ": 8, "HKV": 1, "SQ": 1, "SKV": 4096, "D": 64}, 2),
        ({"B": 1, "HQ": 1, "HKV": 1, "SQ": 32, "SKV": 32, "D": 64}, 1),  # two tiles per part are the least
    ],
)
def test_keys_are_split_where_the_grid_is_small(sizes: dict[str, int], launches: int) -> None:
    assert len(weft.load(PATH).sequence(sizes=sizes)) == launches


@pytest.mark.parametrize(
    ("block_m", "block_n", "sms"), [("32", "32", "58"), ("48", "48", "1"), ("128", "64", "1"), ("64", "32", "108")]
)
def test_levers_do_not_change_the_result(block_m: str, block_n: str, sms: str) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (
        rng.standard_normal((1, heads, rows, 40)).astype(np.float16) for heads, rows in ((2, 70), (1, 99), (1, 99))
    )
    levers = {"BLOCK_M": block_m, "BLOCK_N": block_n, "SMS": sms, "CAUSAL": "2"}
    run, arrays = weft.load(PATH, defines=levers).run(weft.VirtualGPU(), {"q": q, "k": k, "v": v})
    assert run.clean
    exact = attention(q, k, v, causal="bottom_right")
    assert np.abs(arrays["o"].astype(np.float64) - exact.o).max() < 4e-3
    assert np.abs(arrays["lse"] - exact.lse).max() < 1e-4
