"""The rungs without tensor cores, on the virtual GPU, against attention in float64.

Their arithmetic is fp32 and O is rounded once, so the gate is far below the usual 1e-3: half an ulp of the output's
type and 1e-5, on inputs of unit variance. Every comparison is `<=`, which is false for NaN.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from weft.attention.dtypes import Array, ulp
from weft.attention.quantise import SimFp8
from weft.attention.reference import Causal, attention
from weft.attention.shapes import SHAPES, Shape
from weft.cli.main import main
from weft.probes import InitCheck, Probes, RaceCheck

FOLDER = Path(weft.__file__).parent / "kernels"
DTYPES: Mapping[str, tuple[str, Any]] = {
    "f32": ("float", np.float32),
    "f16": ("half", np.float16),
    "bf16": ("__nv_bfloat16", ml_dtypes.bfloat16),
}
CAUSAL: Mapping[Causal, str] = {None: "0", "top_left": "1", "bottom_right": "2"}
ABSOLUTE = 1e-5
"""The error of fp32 sums over a hundred keys of unit-normal V, with a margin."""

Case = tuple[Shape, str, Causal]
# What is compiled depends on D, the type and the mask alone: the cases share as many of these as they can.
CASES: tuple[Case, ...] = (
    (SHAPES["split_4"], "f16", None),
    (SHAPES["split_4"], "f32", "top_left"),
    (SHAPES["split_65"], "f16", "bottom_right"),
    (SHAPES["split_65"], "f32", None),
    (SHAPES["one_token"], "f16", "bottom_right"),
    (Shape("d80", 1, 1, 1, 40, 40, 80), "f16", "top_left"),
    (Shape("gqa_8_batch", 2, 8, 1, 9, 21, 32), "bf16", None),
    (Shape("gqa_2_few_queries", 1, 4, 2, 7, 40, 16), "f32", "top_left"),
    (Shape("gqa_2_few_queries", 1, 4, 2, 7, 40, 16), "f32", "bottom_right"),
    (Shape("few_keys", 1, 2, 2, 70, 20, 16), "f32", "top_left"),
    (Shape("few_keys", 1, 2, 2, 70, 20, 16), "f32", "bottom_right"),  # queries 0 … 49 see no key
    (Shape("one_column", 1, 1, 1, 3, 34, 1), "f32", None),
    (Shape("odd_columns", 1, 1, 1, 5, 6, 37), "bf16", "bottom_right"),
)


def named(value: object) -> str | None:
    if isinstance(value, tuple) and isinstance(value[0], Shape):
        shape, dtype, causal = value
        return f"{shape.name}-{dtype}-{causal or 'full'}"
    return None


@pytest.fixture
def gpu() -> weft.VirtualGPU:
    return weft.VirtualGPU(threads=2)


def inputs(shape: Shape, dtype: str) -> dict[str, Array]:
    rng = np.random.default_rng(shape.sq * 1000 + shape.skv)
    sizes = {"q": shape.q, "k": shape.kv, "v": shape.kv}
    return {name: rng.standard_normal(size).astype(DTYPES[dtype][1]) for name, size in sizes.items()}


def outputs(gpu: weft.VirtualGPU, rung: str, arrays: Mapping[str, Array], **defines: str) -> dict[str, Array]:
    """Return every array after a run that two probes watched and that had no finding."""
    kernel = weft.load(FOLDER / f"{rung}.cu", defines=defines)
    run, after = kernel.run(gpu, arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert not run.findings, "\n".join(map(str, run.findings))
    return after


def attended(gpu: weft.VirtualGPU, rung: str, case: Case, **levers: str) -> dict[str, Array]:
    shape, dtype, causal = case
    return outputs(gpu, rung, inputs(shape, dtype), ELEMENT=DTYPES[dtype][0], CAUSAL=CAUSAL[causal], **levers)


def assert_attention(after: Mapping[str, Array], q: Array, k: Array, v: Array, dtype: str, causal: Causal) -> None:
    expected = attention(q, k, v, causal=causal)
    error = np.abs(after["o"].astype(np.float64) - expected.o)
    assert (error <= ABSOLUTE + ulp(expected.o, dtype) / 2).all(), f"O is off by up to {error.max()}"
    blind = np.isneginf(expected.lse)
    assert np.array_equal(np.isneginf(after["lse"]), blind) and not after["o"][blind].astype(np.float32).any()
    lse_error = np.abs(after["lse"][~blind] - expected.lse[~blind])
    assert (lse_error <= ABSOLUTE).all(), f"LSE is off by up to {lse_error.max()}"


# -- scalar and fa1 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", one_in(6, CASES), ids=named)
@pytest.mark.parametrize("rung", ["scalar", "fa1"])
def test_fused_attention(gpu: weft.VirtualGPU, rung: str, case: Case) -> None:
    after = attended(gpu, rung, case)
    assert_attention(after, after["q"], after["k"], after["v"], case[1], case[2])


def test_queries_without_a_key_are_in_the_cases() -> None:
    shape, _, causal = next(case for case in CASES if case[0].name == "few_keys" and case[2] == "bottom_right")
    q, k = np.zeros(shape.q), np.zeros(shape.kv)
    assert np.isneginf(attention(q, k, k, causal=causal).lse).sum() == 2 * 50


@pytest.mark.parametrize(
    "levers",
    [
        {"BLOCK_M": "8", "BLOCK_N": "64", "WARPS": "2"},
        {"BLOCK_M": "3", "BLOCK_N": "32", "WARPS": "3"},
    ],
)
def test_the_tiles_of_fa1(gpu: weft.VirtualGPU, levers: dict[str, str]) -> None:
    case: Case = (Shape("ragged", 1, 1, 1, 37, 70, 16), "f32", "bottom_right")
    after = attended(gpu, "fa1", case, **levers)
    assert_attention(after, after["q"], after["k"], after["v"], "f32", "bottom_right")


@pytest.mark.parametrize("rung", ["scalar", "fa1"])
def test_a_wide_head(gpu: weft.VirtualGPU, rung: str) -> None:
    after = attended(gpu, rung, (Shape("wide", 1, 1, 1, 2, 5, 512), "f32", None))
    assert_attention(after, after["q"], after["k"], after["v"], "f32", None)


def test_large_scores_do_not_overflow(gpu: weft.VirtualGPU) -> None:
    """Scores of some thousands: exp of them is infinite, exp of their distance from the maximum is not."""
    arrays = inputs(Shape("loud", 1, 1, 1, 6, 40, 16), "f32")
    arrays["q"] *= 1000
    expected = attention(arrays["q"], arrays["k"], arrays["v"], causal="bottom_right")
    for rung in ("scalar", "fa1", "split_k"):
        after = outputs(gpu, rung, arrays, ELEMENT="float", CAUSAL="2")
        # A score near 3000 is rounded by 2^-12 or less, and the weights by as much in proportion.
        assert (np.abs(after["o"] - expected.o) <= 4 * 2.0**-12 * np.abs(arrays["v"]).max()).all(), rung


# -- split_k -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "splits"),
    [
        ((SHAPES["split_4"], "f16", None), 3),  # parts of 2, 2 and 0 keys
        ((SHAPES["split_4"], "f32", "top_left"), 9),  # more parts than keys
        ((SHAPES["split_65"], "f16", "bottom_right"), 4),
        ((SHAPES["split_65"], "f32", None), 5),
        ((SHAPES["decode"], "f16", "bottom_right"), 4),
        ((Shape("gqa_8_batch", 2, 8, 1, 3, 50, 32), "bf16", None), 4),
        ((Shape("few_keys", 1, 2, 2, 70, 20, 16), "f32", "bottom_right"), 4),
        ((Shape("few_queries", 1, 2, 1, 7, 40, 16), "f32", "top_left"), 4),  # parts 1 … 3 see no key at all
    ],
    ids=named,
)
def test_split_k(gpu: weft.VirtualGPU, case: Case, splits: int) -> None:
    _, dtype, causal = case
    after = attended(gpu, "split_k", case, SPLITS=str(splits))
    assert_attention(after, after["q"], after["k"], after["v"], dtype, causal)
    whole = attended(gpu, "fa1", case)
    # Two ulp of the output's type, and two of fp32 at V's size: sums of V in another order differ by that much.
    sums = 2 * ulp(np.abs(after["v"].astype(np.float32)).max(), "f32")
    difference = np.abs(after["o"].astype(np.float64) - whole["o"].astype(np.float64))
    assert (difference <= 2 * ulp(whole["o"], dtype) + sums).all(), difference.max()


def test_one_part_is_bit_identical_to_the_scalar_rung(gpu: weft.VirtualGPU) -> None:
    case: Case = (Shape("few_keys", 1, 2, 1, 30, 20, 37), "f32", "bottom_right")
    one, scalar = attended(gpu, "split_k", case, SPLITS="1"), attended(gpu, "scalar", case)
    assert one["o"].tobytes() == scalar["o"].tobytes() and one["lse"].tobytes() == scalar["lse"].tobytes()


def test_the_parts_are_unnormalised_and_empty_ones_have_no_weight(gpu: weft.VirtualGPU) -> None:
    """Queries of zeros make every score 0: m = 0, l counts the keys, U is the plain sum of V."""
    shape = Shape("equal", 1, 1, 1, 2, 5, 8)
    arrays = inputs(shape, "f32") | {"q": np.zeros(shape.q, np.float32)}
    after = outputs(gpu, "split_k", arrays, ELEMENT="float", SPLITS="4")  # parts of 2, 2, 1 and 0 keys
    assert after["part_l"][0, 0, :, 0].tolist() == [2, 2, 1, 0]
    assert after["part_m"][0, 0, :, 0].tolist() == [0, 0, 0, -np.inf]
    v = arrays["v"][0, 0]
    sums = np.stack([v[0] + v[1], v[2] + v[3], v[4], np.zeros_like(v[0])])
    assert np.array_equal(after["part_u"][0, 0, :, 0], sums)
    np.testing.assert_allclose(after["o"][0, 0, 0], v.mean(axis=0), rtol=0, atol=1e-6)


# -- 8-bit codes -------------------------------------------------------------------------------------------------


def codes(shape: Shape) -> dict[str, Array]:
    """Return encoded normals. Every head has another magnitude, so that a scale from the wrong head is noticed."""
    rng = np.random.default_rng(7)
    arrays: dict[str, Array] = {}
    for name, size in (("q", shape.q), ("k", shape.kv), ("v", shape.kv)):
        magnitude = np.linspace(0.5, 1.5, size[0] * size[1]).reshape(*size[:2], 1, 1)
        arrays[f"{name}_code"], arrays[f"{name}_scale"] = SimFp8().encode(rng.standard_normal(size) * magnitude)
    return arrays


def decoded(arrays: Mapping[str, Array], name: str) -> Array:
    """Return them in float64, without the rounding of a decoded value."""
    lsb = SimFp8().lsb(arrays[f"{name}_scale"])[..., None, None]
    return np.asarray((arrays[f"{name}_code"].astype(np.float64) - 128) * lsb)


@pytest.mark.parametrize(
    "case",
    [
        (SHAPES["split_4"], "f16", None),
        (SHAPES["split_65"], "f16", "top_left"),
        (Shape("gqa_4_batch", 2, 8, 2, 5, 33, 80), "f32", "bottom_right"),
        (Shape("few_keys", 1, 2, 1, 30, 20, 16), "bf16", "bottom_right"),
        (Shape("one_column", 1, 1, 1, 1, 1, 1), "f32", "top_left"),
    ],
    ids=named,
)
def test_fp8_scalar(gpu: weft.VirtualGPU, case: Case) -> None:
    shape, dtype, causal = case
    arrays = codes(shape)
    after = outputs(gpu, "fp8_scalar", arrays, ELEMENT=DTYPES[dtype][0], CAUSAL=CAUSAL[causal])
    q, k, v = (decoded(arrays, name) for name in "qkv")
    assert_attention(after, q, k, v, dtype, causal)


def test_a_head_of_zeros_gives_zeros(gpu: weft.VirtualGPU) -> None:
    shape = Shape("silent", 1, 2, 2, 3, 9, 16)
    arrays = codes(shape)
    arrays["v_code"][0, 1], arrays["v_scale"][0, 1] = 128, 1.0
    o = outputs(gpu, "fp8_scalar", arrays)["o"]
    assert o[0, 0].all() and not o[0, 1].any()


@pytest.mark.parametrize("scaled", [1, 0])
@pytest.mark.parametrize(
    "shape",
    [Shape("4x8", 1, 1, 1, 4, 8, 64), Shape("gqa", 2, 4, 2, 3, 5, 37), Shape("one", 1, 1, 1, 1, 1, 1)],
    ids=lambda shape: shape.name,
)
def test_qk_dot(gpu: weft.VirtualGPU, shape: Shape, scaled: int) -> None:
    arrays = {name: array for name, array in codes(shape).items() if not name.startswith("v")}
    s = outputs(gpu, "qk_dot", arrays, SCALED=str(scaled))["s"]
    q, k = decoded(arrays, "q"), decoded(arrays, "k").repeat(shape.group, axis=1)
    expected = q @ k.swapaxes(-1, -2) / (np.sqrt(shape.d) if scaled else 1)
    # The sum of the codes is exact; after it come at most eight roundings to fp32 and no cancellation.
    assert (np.abs(s - expected) <= 8 * 2.0**-24 * np.abs(expected)).all()


# -- as files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["scalar", "fa1", "split_k"])
def test_a_file_runs_as_it_is(gpu: weft.VirtualGPU, rung: str) -> None:
    run, after = weft.load(FOLDER / f"{rung}.cu").run(gpu, sizes={"SQ": 6, "SKV": 33, "D": 4})
    assert run.clean
    assert_attention(after, after["q"], after["k"], after["v"], "f16", None)


@pytest.mark.parametrize("rung", ["qk_dot", "fp8_scalar"])
def test_a_quantised_file_runs_as_it_is(gpu: weft.VirtualGPU, rung: str) -> None:
    run, after = weft.load(FOLDER / f"{rung}.cu").run(gpu, sizes={"SQ": 3, "SKV": 5, "D": 4})
    assert run.clean and np.isfinite(after["s" if rung == "qk_dot" else "o"].astype(np.float32)).all()


def test_the_command_line_runs_a_rung(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [part for size in ("SQ=5", "SKV=9", "D=16") for part in ("--size", size)]
    assert main(["run", str(FOLDER / "scalar.cu"), *sizes, "-D", "ELEMENT=float", "-D", "CAUSAL=2"]) == 0
    printed = capsys.readouterr().out
    assert "o\tf32\t1×4×5×16" in printed and "no errors; uninitialised reads and races not checked" in printed


@pytest.mark.parametrize("rung", ["scalar", "fa1", "split_k", "qk_dot", "fp8_scalar"])
def test_query_heads_without_a_key_head_are_found(gpu: weft.VirtualGPU, rung: str) -> None:
    kernel = weft.load(FOLDER / f"{rung}.cu")
    run, _ = kernel.run(gpu, sizes={"HQ": 3, "HKV": 2, "SQ": 2, "SKV": 3, "D": 4})
    assert any("HQ % HKV == 0" in finding.message for finding in run.findings), run.findings
