"""`fp8_hopper`: the FP8 recipe on Hopper's tensor cores, asynchronous as written, on its GPU only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.diagnose.edited import text_of
from tests.in_turn import one_in
from tests.ladder.test_fp8_mma import ODD, WIDE, Case, inputs
from weft.attention.dtypes import Array
from weft.attention.e4m3 import E4M3PerBlock, E4M3PerChannel, SmoothedE4M3PerBlock
from weft.attention.error_report import compare
from weft.attention.fp8_recipe import RecipeRun
from weft.attention.gates import lse_gate, tight_gate
from weft.attention.reference import attention, visible
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import CompileError, UsageError
from weft.kernels import RUNGS
from weft.probes import InitCheck, Probes, RaceCheck
from weft.probes.wavefronts import Wavefronts
from weft.tasks.recipe_problem import recipe_of

PATH = RUNGS["fp8_hopper"].path
SIZES = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 80, "SKV": 130}
DEFAULTS = {"BLOCK_M": "128", "BLOCK_N": "128", "FUSED_PRODUCTS": "32"}
LONG = Shape("long", 1, 2, 1, 200, 330, 64)  # a ring of two stages and three tiles, two CTAs

CASES = (
    Case(ODD, "bottom_right"),
    Case(WIDE, "top_left", "bf16"),
    Case(ODD, None, "f32", {"BLOCK_M": "64", "BLOCK_N": "64", "STAGES": "3"}),
    Case(SHAPES["split_192"], None, "f16", {"BLOCK_N": "64"}),
    Case(Shape("narrow", 1, 2, 1, 19, 70, 3), "top_left", "f32"),
)


def run(arrays: dict[str, Array], defines: dict[str, str], *, schedule: int = 0) -> dict[str, Any]:
    """Return all arrays after a run without findings."""
    kernel = weft.load(PATH, defines=defines)
    gpu = weft.VirtualGPU(kernel.gpu, schedule=schedule)
    outcome, after = kernel.run(gpu, arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert outcome.clean, "\n".join(map(str, outcome.findings))
    return after


def followed(case: Case, arrays: dict[str, Array], **macros: str) -> Any:
    """Return the recipe's result in NumPy."""
    mask = visible(case.shape.sq, case.shape.skv, case.causal)
    recipe = recipe_of({**DEFAULTS, **case.levers, **macros}, case.dtype)
    return RecipeRun(recipe, **arrays, mask=mask).follow()


@pytest.mark.parametrize("case", one_in(4, CASES), ids=str)
def test_it_follows_its_recipe(case: Case) -> None:
    arrays = inputs(case.shape, case.dtype)
    after, expected = run(arrays, case.defines), followed(case, arrays)
    gate = tight_gate(after["o"], expected.o, arrays["v"], case.dtype, allowance=expected.allowance)
    assert gate.passed, gate
    lse = lse_gate(after["lse"], expected.lse)
    assert lse.passed, lse
    exact = attention(**arrays, causal=case.causal)
    unseen = np.isneginf(exact.lse)
    assert np.array_equal(np.isneginf(after["lse"]), unseen) and not after["o"][unseen].any()
    # Loose, but independent of the recipe: three fraction bits are off by 2^-4 at most, 0.036 in the RMS.
    assert compare(after["o"], exact.o).rel_l2 < 0.1
    assert np.abs(after["lse"][~unseen] - exact.lse[~unseen]).mean() < 0.1


def test_the_gate_distinguishes_the_tensor_cores_of_hopper_and_ada() -> None:
    """Sums of 16 products at once have other bits than sums of 32."""
    case = CASES[3]
    arrays = inputs(case.shape, case.dtype)
    ada = followed(case, arrays, FUSED_PRODUCTS="16")
    assert not tight_gate(
        run(arrays, case.defines)["o"], ada.o, arrays["v"], case.dtype, allowance=ada.allowance
    ).passed


def test_codes_are_the_quantisers() -> None:
    arrays, d = inputs(ODD, "f16"), ODD.d
    after = run(arrays, CASES[0].defines)
    queries, keys = E4M3PerBlock(128).encode(arrays["q"]), SmoothedE4M3PerBlock(128).encode(arrays["k"])
    channels = E4M3PerChannel().encode(arrays["v"])
    for name, expected in (("q_step", queries.scale), ("k_step", keys.scale), ("v_step", channels.scale)):
        assert np.array_equal(after[name], expected), name
    assert np.array_equal(after["k_mean"], keys.mean)
    for name, codes in (("q_code", queries.codes), ("k_code", keys.codes), ("v_code", channels.codes)):
        assert np.array_equal(after[name][..., :d], codes) and not after[name][..., d:].any(), name


@pytest.mark.parametrize("schedule", one_in(2, [1, 2]))
def test_copies_may_arrive_at_any_time(schedule: int) -> None:
    """At issue and shuffled: no finding, and the bits of copies that come late."""
    arrays = inputs(LONG, "f16")
    expected, after = run(arrays, {}), run(arrays, {}, schedule=schedule)
    for name in ("o", "lse"):
        assert after[name].tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize(
    ("old", "new", "code"),
    one_in(3, [
        ("                show_stores_to_wgmma();\n", "", "R107"),
        ("__syncwarp();\n                if (lane == 0) vt_full", "if (lane == 0) vt_full", "R102"),
        ("vt_full[stage].wait(round % 2);", "v_full[stage].wait(round % 2);", "R102"),
    ], several=True),
    ids=["no_fence", "arrives_for_other_lanes", "waits_for_v"],
)  # fmt: skip
def test_a_transposition_that_wgmma_may_not_see_is_found(old: str, new: str, code: str, tmp_path: Path) -> None:
    file = tmp_path / "edited.cu"
    file.write_text(text_of("fp8_hopper", old, new))
    kernel = weft.load(file)
    outcome, _ = kernel.run(weft.VirtualGPU(kernel.gpu), inputs(LONG, "f16"), watch=Probes(InitCheck(), RaceCheck()))
    assert code in {finding.code for finding in outcome.findings}, outcome.findings


def test_every_product_is_of_a_warpgroup_and_every_tile_is_a_box() -> None:
    """One tile of 128 keys at D = 80: three steps of 32 columns for each half of S; four steps of 32 keys for each of
    two panels of U."""
    ptx = weft.load(PATH).compile(sizes={**SIZES, "D": 80}).ptx
    assert ptx.count("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3") == 3 * 2 + 4 * 2
    attention_ptx = ptx[ptx.index("fp8_hopper_attention") :]
    assert "cp.async.bulk.tensor" in attention_ptx and "ldmatrix" not in ptx and "mma.sync" not in ptx


@pytest.mark.parametrize("d", one_in(2, [64, 128]))
def test_no_bank_conflict(d: int) -> None:
    kernel = weft.load(PATH)
    outcome, _ = kernel.run(weft.VirtualGPU(kernel.gpu), sizes={**SIZES, "D": d}, watch=Wavefronts())
    assert outcome.clean
    assert outcome.counters["vm__shared_wavefronts"] == outcome.counters["vm__shared_wavefronts_ideal"] > 0


@pytest.mark.parametrize(("d", "levers"), [(64, {}), (128, {"CAUSAL": "2"}), (128, {"BLOCK_M": "64", "BLOCK_N": "64"})])
def test_nothing_spills_and_no_product_is_serialised(d: int, levers: dict[str, str]) -> None:
    binary = weft.load(PATH, defines=levers).compile(sizes={**SIZES, "D": d})
    for each in binary.resources.values():
        assert each.spill_store_bytes == each.spill_load_bytes == each.local_bytes == 0
    # The 40 registers of producer and transposers and the consumers' 232 must fit into what the CTA starts with.
    (registers,) = (each.registers for name, each in binary.resources.items() if "hopper" in name)
    consumers = int(levers.get("BLOCK_M", "128")) // 64
    assert 40 + consumers * 232 <= (consumers + 1) * registers
    assert not [note for note in binary.diagnostics if "C75" in str(note)]


@pytest.mark.parametrize(
    ("defines", "sizes", "message"),
    [
        ({"BLOCK_N": "32"}, {}, "at most 128 keys"),
        ({"BLOCK_M": "192"}, {}, "one or two consumer warpgroups"),
        ({"FUSED_PRODUCTS": "16"}, {}, "32 products at once"),
        ({}, {"D": 129}, "D is 1 to 128"),
    ],
)
def test_what_is_not_supported_does_not_compile(defines: dict[str, str], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.load(PATH, defines=defines).compile(sizes=sizes)


def test_another_gpu_is_refused() -> None:
    for gpu in ("l4", "rtx5090", "sm_90"):
        with pytest.raises(UsageError, match=r"is for sm_90a, not for .*: choose one of h100, h200"):
            weft.load(PATH, gpu=gpu)
    assert weft.load(PATH).gpu == "h100"
