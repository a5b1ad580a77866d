"""`fp8_mma`: its codes are the quantisers' bit for bit, its result is that of the recipe, and near attention."""

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.e4m3 import E4M3PerChannel, SmoothedE4M3PerBlock
from weft.attention.error_report import compare
from weft.attention.fp8_recipe import RecipeRun
from weft.attention.gates import lse_gate, tight_gate
from weft.attention.reference import Causal, attention, visible
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import CompileError
from weft.kernels import RUNGS
from weft.kernels.ladder import ELEMENTS, MASKS
from weft.probes import InitCheck, Probes, RaceCheck
from weft.probes.wavefronts import Wavefronts
from weft.tasks.recipe_problem import recipe_of

PATH = RUNGS["fp8_mma"].path
ODD = Shape("odd", 2, 4, 2, 37, 133, 37)  # no whole vectors, steps, fragments or tiles
WIDE = Shape("wide", 1, 2, 1, 70, 200, 128)


@dataclass(frozen=True)
class Case:
    shape: Shape
    causal: Causal = None
    dtype: str = "f16"
    levers: dict[str, str] = field(default_factory=dict)

    @property
    def defines(self) -> dict[str, str]:
        mask = str(MASKS.index(self.causal or "none"))
        return {"ELEMENT": ELEMENTS[self.dtype], "CAUSAL": mask, **self.levers}

    def __str__(self) -> str:
        levers = [f"{name}={value}" for name, value in self.levers.items()]
        return "-".join([self.shape.name, self.dtype, self.causal or "full", *levers])


CASES = (
    Case(ODD, "bottom_right"),
    Case(ODD, None, "f32", {"BLOCK_N": "128", "BLOCK_M": "32"}),
    Case(WIDE, "top_left", "bf16"),
    Case(SHAPES["split_192"], None, "f16", {"FLUSH": "0"}),
    Case(SHAPES["split_192"], None, "f16", {"SMOOTH": "0", "BLOCK_M": "128"}),
)


def inputs(shape: Shape, dtype: str) -> dict[str, Array]:
    """Return normals around an offset; every head has another size, so that values of another head are noticed."""
    rng = np.random.default_rng(zlib.crc32(shape.name.encode()))
    arrays = {}
    for name, size in (("q", shape.q), ("k", shape.kv), ("v", shape.kv)):
        heads = np.linspace(0.5, 2, size[0] * size[1]).reshape(*size[:2], 1, 1)
        x = (rng.standard_normal(size) + rng.standard_normal((*size[:2], 1, size[3]))) * heads
        arrays[name] = x.astype(numpy_dtype(dtype))
    return arrays


def run(arrays: dict[str, Array], defines: dict[str, str], *, mode: str = "hardware") -> dict[str, Any]:
    """Return all arrays after a run without findings."""
    kernel = weft.load(PATH, defines=defines)
    outcome, after = kernel.run(weft.VirtualGPU(mode=mode), arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert outcome.clean, "\n".join(map(str, outcome.findings))
    return after


@pytest.mark.parametrize("case", one_in(4, CASES), ids=str)
def test_it_follows_its_recipe(case: Case) -> None:
    arrays, shape = inputs(case.shape, case.dtype), case.shape
    after = run(arrays, case.defines)
    mask = visible(shape.sq, shape.skv, case.causal)
    followed = RecipeRun(recipe_of(case.levers, case.dtype), **arrays, mask=mask).follow()
    gate = tight_gate(after["o"], followed.o, arrays["v"], case.dtype, allowance=followed.allowance)
    assert gate.passed, gate
    lse = lse_gate(after["lse"], followed.lse)
    assert lse.passed, lse
    exact = attention(**arrays, causal=case.causal)
    unseen = np.isneginf(exact.lse)
    assert np.array_equal(np.isneginf(after["lse"]), unseen) and not after["o"][unseen].any()
    # Loose, but independent of the recipe: three fraction bits are off by 2^-4 at most, 0.036 in the RMS.
    assert compare(after["o"], exact.o).rel_l2 < 0.1
    assert np.abs(after["lse"][~unseen] - exact.lse[~unseen]).mean() < 0.1


def test_codes_are_the_quantisers() -> None:
    arrays, (d, skv) = inputs(ODD, "f16"), (ODD.d, ODD.skv)
    after = run(arrays, CASES[0].defines)
    keys, channels = SmoothedE4M3PerBlock(64).encode(arrays["k"]), E4M3PerChannel().encode(arrays["v"])
    for name, expected in (("k_mean", keys.mean), ("k_step", keys.scale), ("v_step", channels.scale)):
        assert np.array_equal(after[name], expected), name
    # -0 and +0 are different codes of the same value: padding is +0, and so is nothing else but what rounds to it.
    assert np.array_equal(after["k_code"][:, :, :skv, :d], keys.codes)
    assert not after["k_code"][:, :, skv:].any() and not after["k_code"][..., d:].any()
    # Bytes 4t … 4t + 3 of every 16 are keys 2t, 2t + 1, 2t + 8, 2t + 9.
    order = [
        16 * group + key for group in range(12) for t in range(4) for key in (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)
    ]
    padded = np.zeros((*ODD.kv[:2], 192, 64), np.uint8)
    padded[:, :, :skv, :d] = channels.codes
    assert np.array_equal(after["v_code"], padded[:, :, order].swapaxes(2, 3))


def test_rows_without_a_key_and_heads_of_zeros() -> None:
    shape = SHAPES["few_keys"]
    arrays = inputs(shape, "f16")
    arrays["k"][:, 1] = 0
    arrays["v"][:, 1] = 0
    after = run(arrays, {"CAUSAL": "2"})
    blind = shape.sq - shape.skv
    assert blind > 64
    assert not after["o"][:, :, :blind].any() and np.isneginf(after["lse"][:, :, :blind]).all()
    assert not after["o"][:, 1].any()
    np.testing.assert_allclose(after["lse"][0, 1, blind:], np.log(np.arange(1, 21)), atol=1e-5)


def test_the_result_depends_on_the_tensor_cores_arithmetic() -> None:
    """In `ieee` mode, which no Ada GPU has, the bits differ: the judge emulates the hardware."""
    arrays = inputs(SHAPES["split_192"], "f16")
    hardware, ieee = (run(arrays, CASES[3].defines, mode=mode)["o"].astype(np.float64) for mode in ("hardware", "ieee"))
    apart = np.abs(hardware - ieee).max()
    assert 1e-3 < apart < 0.1


@pytest.mark.parametrize(
    ("defines", "sizes", "message"),
    [
        ({"BLOCK_N": "32"}, {}, "BLOCK_N is 64 or 128"),
        ({"FLUSH": "32"}, {}, "FLUSH is 64"),
        ({"CAUSAL": "3"}, {}, "CAUSAL is 0"),
        ({}, {"D": 129}, "D is 1 to 128"),
        ({"BLOCK_M": "24"}, {}, "16 queries"),
    ],
)
def test_what_is_not_supported_does_not_compile(defines: dict[str, str], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weft.load(PATH, defines=defines).compile(sizes=sizes)


def test_heads_that_cannot_share_keys_are_a_finding() -> None:
    outcome, _ = weft.load(PATH).run(weft.VirtualGPU(), sizes={"HQ": 3, "HKV": 2})
    assert any("HQ % HKV == 0" in str(finding) for finding in outcome.findings)


@pytest.mark.parametrize("d", one_in(4, [64, 32, 128, 96]))
def test_shared_memory_is_free_of_conflicts(d: int) -> None:
    sizes = {"B": 1, "HQ": 2, "HKV": 1, "SQ": 80, "SKV": 130, "D": d}
    outcome, _ = weft.load(PATH).run(weft.VirtualGPU(), sizes=sizes, watch=Wavefronts())
    assert outcome.clean
    assert outcome.counters["vm__shared_wavefronts"] == outcome.counters["vm__shared_wavefronts_ideal"] > 0
