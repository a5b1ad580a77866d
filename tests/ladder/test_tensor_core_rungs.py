"""`wmma_qk`, `wmma` and `fp8_wmma`, compared with float64 attention; initcheck and racecheck watch every run."""

import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import weft
from tests.in_turn import one_in
from weft.attention.dtypes import numpy_dtype
from weft.attention.quantise import SimFp8
from weft.attention.reference import Causal, attention
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import CompileError
from weft.kernels import RUNGS
from weft.kernels.ladder import ELEMENTS
from weft.probes import InitCheck, Probes, RaceCheck

Floats = npt.NDArray[Any]

HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""Relative error of one rounding."""

FINE = 1e-5
"""What fp32 may leave, relative to the largest |V|: truncating tensor-core sums, ex2.approx, the online softmax. It
covers P below fp16's smallest normal number, too, where rounding is absolute: 2^-25 for each of at most 130 keys."""

FINE_LSE = 3e-5
"""The same for the logarithm, absolute: a chain of D / 8 ≤ 16 steps, each truncating 9 terms below 16 at 2^-24 and a
sum below 64 at 2^-23, times 1/√128, is 2.3e-5; the rest is the logarithm of l."""


@dataclass(frozen=True)
class Case:
    rung: str
    shape: Shape
    causal: Causal = None
    dtype: str = "f16"
    levers: dict[str, str] = field(default_factory=dict)

    @property
    def defines(self) -> dict[str, str]:
        chosen = {"CAUSAL": {None: "0", "top_left": "1", "bottom_right": "2"}[self.causal], **self.levers}
        return chosen | ({"ELEMENT": ELEMENTS[self.dtype]} if self.rung != "wmma_qk" else {})

    def __str__(self) -> str:
        levers = [f"{name}={value}" for name, value in self.levers.items()]
        return "-".join([self.rung, self.shape.name, self.dtype, self.causal or "full", *levers])


RAGGED_GQA_8 = Shape("ragged_gqa_8", 1, 8, 1, 33, 50, 32)
D20 = Shape("d20", 1, 2, 1, 37, 41, 20)  # neither whole fragments nor rows of whole 16-byte vectors
WIDE = Shape("wide", 2, 2, 1, 45, 70, 128)

SDPA = (
    *(Case("wmma", SHAPES[name]) for name in ("split_65", "one_token", "ragged", "d80", "d96", "split_4", "decode")),
    Case("wmma", RAGGED_GQA_8),
    Case("wmma", D20),
    *(Case("wmma", SHAPES[name], "top_left") for name in ("split_65", "few_queries", "few_keys")),
    *(Case("wmma", SHAPES[name], "bottom_right") for name in ("split_65", "few_queries", "few_keys", "one_token")),
    Case("wmma", WIDE, "bottom_right"),
    Case("wmma", SHAPES["ragged"], None, "bf16"),
    Case("wmma", SHAPES["gqa_8"], None, "bf16"),
    Case("wmma", WIDE, "bottom_right", "bf16"),
    Case("wmma", SHAPES["ragged"], None, "f16", {"BLOCK_M": "64", "WARPS": "8"}),
    Case("wmma", SHAPES["ragged"], None, "f16", {"BLOCK_M": "16"}),
    Case("wmma", SHAPES["few_keys"], "bottom_right", "f16", {"BLOCK_N": "64", "WARPS": "2"}),
    *(Case("wmma_qk", SHAPES[name]) for name in ("split_65", "one_token", "gqa_8", "ragged")),
    Case("wmma_qk", D20),
    *(Case("wmma_qk", SHAPES[name], "top_left") for name in ("few_queries", "few_keys")),
    *(Case("wmma_qk", SHAPES[name], "bottom_right") for name in ("few_queries", "few_keys")),
    Case("wmma_qk", WIDE, "bottom_right", "f16", {"K_TRANSPOSE": "copy"}),
    Case("wmma_qk", SHAPES["ragged"], None, "f16", {"BLOCK_M": "64", "BLOCK_N": "64", "WARPS": "8"}),
)

CODES = (
    *(Case("fp8_wmma", SHAPES[name]) for name in ("split_65", "one_token", "gqa_8", "ragged")),
    *(Case("fp8_wmma", SHAPES[name], "bottom_right") for name in ("few_queries", "few_keys")),
    Case("fp8_wmma", WIDE, "top_left"),
    Case("fp8_wmma", D20),
)


def normal(shape: Shape) -> tuple[Floats, Floats, Floats]:
    """q, k, v in float64."""
    rng = np.random.default_rng(zlib.crc32(shape.name.encode()))
    return rng.standard_normal(shape.q), rng.standard_normal(shape.kv), rng.standard_normal(shape.kv)


def run(case: Case, arrays: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Return O and LSE in float64, of a run without findings."""
    kernel = weft.load(RUNGS[case.rung].path, defines=case.defines)
    outcome, results = kernel.run(weft.VirtualGPU(), arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert outcome.clean, "\n".join(map(str, outcome.findings))
    return results["o"].astype(np.float64), results["lse"].astype(np.float64)


def check(o: Floats, expected: Floats, bound: Floats) -> None:
    """Fails on NaN: no comparison with it is true."""
    worst = np.unravel_index(np.argmax(np.abs(o - expected) - bound), o.shape)
    assert (np.abs(o - expected) <= bound).all(), f"at {worst}: {o[worst]}, expected {expected[worst]}"


def check_lse(lse: Floats, expected: Floats, bound: float) -> None:
    empty = np.isneginf(expected)
    assert (np.isneginf(lse) == empty).all()
    assert (np.abs(lse[~empty] - expected[~empty]) <= bound).all()


@pytest.mark.parametrize("case", one_in(6, SDPA), ids=str)
def test_sdpa(case: Case) -> None:
    q, k, v = (x.astype(numpy_dtype(case.dtype)) for x in normal(case.shape))
    o, lse = run(case, {"q": q, "k": k, "v": v})
    expected = attention(q, k, v, causal=case.causal)
    # O is rounded once; so is each P of `wmma`, and Σ P δ V / l with |δ| ≤ half an ulp is at most that of Σ P |V| / l.
    of_p = 0.0 if case.rung == "wmma_qk" else attention(q, k, np.abs(v), causal=case.causal).o
    check(o, expected.o, HALF_ULP[case.dtype] * (np.abs(expected.o) + of_p) + FINE * np.abs(v.astype(float)).max())
    check_lse(lse, expected.lse, FINE_LSE)
    assert (o[np.isneginf(expected.lse)] == 0).all()


def test_some_rows_see_no_key() -> None:
    """The cases above include a whole CTA of such rows, and one that has both kinds."""
    shape = SHAPES["few_keys"]
    empty = shape.sq - shape.skv
    assert empty > 64 and empty % 32


def quantised(shape: Shape) -> dict[str, Floats]:
    arrays: dict[str, Floats] = {}
    for name, x in zip("qkv", normal(shape), strict=True):
        arrays[f"{name}_code"], arrays[f"{name}_scale"] = SimFp8().encode(x)
    return arrays


def decoded_in_fp16(codes: Floats, scale: Floats) -> Floats:
    """As the kernel declares it: a product in fp32, then fp16."""
    step = scale * np.float32(np.float32(448) / np.float32(127))
    return ((codes.astype(np.float32) - np.float32(128)) * step[..., None, None]).astype(np.float16)


@pytest.mark.parametrize("case", one_in(6, CODES), ids=str)
def test_codes(case: Case) -> None:
    arrays = quantised(case.shape)
    o, lse = run(case, arrays)
    q, k, v = (decoded_in_fp16(arrays[f"{name}_code"], arrays[f"{name}_scale"]) for name in "qkv")
    expected = attention(q, k, v, causal=case.causal)
    of_p = attention(q, k, np.abs(v), causal=case.causal).o
    largest = np.abs(v.astype(float)).max()
    check(o, expected.o, HALF_ULP["f16"] * (np.abs(expected.o) + of_p) + FINE * largest)
    check_lse(lse, expected.lse, FINE_LSE)

    # Against the quantiser's own decoding: rounding q and k to fp16 moves a score by at most δ = 2 · 2^-11 · Σ |q k| ·
    # scale, hence the logarithm by δ and each weight by a factor within exp(±2δ); rounding v adds half an ulp.
    q, k, v = (SimFp8().decode(arrays[f"{name}_code"], arrays[f"{name}_scale"]) for name in "qkv")
    exact = attention(q, k, v, causal=case.causal)
    group = case.shape.group
    absolute = np.abs(q).astype(float) @ np.abs(k).astype(float).repeat(group, 1).swapaxes(2, 3)
    delta = 2 * HALF_ULP["f16"] * absolute.max(-1, keepdims=True) / np.sqrt(case.shape.d) * (1 + 1e-3)
    check(o, exact.o, (np.expm1(2 * delta) + 3 * HALF_ULP["f16"]) * of_p * (1 + 1e-3) + FINE * largest)
    check_lse(lse, exact.lse, float(delta.max()) + FINE_LSE)


@pytest.mark.parametrize("case", [CODES[3], CODES[5], CODES[6]], ids=str)
def test_the_table_holds_what_is_computed(case: Case) -> None:
    """DEQUANT changes how a value is obtained, but no bit of it; so `direct` is as correct as `lut` above."""
    arrays = quantised(case.shape)
    ways = [replace(case, levers={"DEQUANT": way}) for way in ("lut", "direct")]
    (table_o, table_lse), (direct_o, direct_lse) = (run(way, arrays) for way in ways)
    assert table_o.tobytes() == direct_o.tobytes() and table_lse.tobytes() == direct_lse.tobytes()


def test_a_head_of_zeros() -> None:
    """Scale 1 and code 128 are exact zeros: every key has the same weight."""
    shape = SHAPES["split_65"]
    arrays = quantised(shape)
    zeros = SimFp8().encode(np.zeros(shape.q))
    o, lse = run(Case("fp8_wmma", shape), arrays | {"q_code": zeros.codes, "q_scale": zeros.scale})
    v = decoded_in_fp16(arrays["v_code"], arrays["v_scale"]).astype(float)
    mean = v.mean(2, keepdims=True) + np.zeros(shape.q)
    check(o, mean, HALF_ULP["f16"] * np.abs(mean) + FINE * np.abs(v).max())
    check_lse(lse, np.full(shape.lse, np.log(shape.skv)), FINE_LSE)


@pytest.mark.parametrize(
    ("rung", "defines", "sizes", "message"),
    [
        ("wmma", {"ELEMENT": "float"}, {}, "takes half or __nv_bfloat16"),
        ("wmma", {"BLOCK_M": "64"}, {"D": 128}, "reduce BLOCK_M or BLOCK_N"),
        ("wmma_qk", {"CAUSAL": "3"}, {}, "CAUSAL is 0"),
        ("wmma", {}, {"D": 129}, "D is 1 to 128"),
        ("fp8_wmma", {"DEQUANT": "table"}, {}, 'has no member "table"'),
    ],
)
def test_what_is_not_supported_does_not_compile(
    rung: str, defines: dict[str, str], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        weft.load(RUNGS[rung].path, defines=defines).compile(sizes=sizes)


@pytest.mark.parametrize("rung", ["wmma_qk", "wmma", "fp8_wmma"])
def test_heads_that_cannot_share_keys_are_a_finding(rung: str) -> None:
    outcome, _ = weft.load(RUNGS[rung].path).run(weft.VirtualGPU(), sizes={"HQ": 3, "HKV": 2})
    assert any("HQ % HKV == 0" in str(finding) for finding in outcome.findings)
