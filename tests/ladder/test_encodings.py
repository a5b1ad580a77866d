"""`qk_dot`, `fp8_scalar` and `fp8_wmma` with both meanings of their 8-bit codes: sim-FP8 and E4M3."""

import zlib
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.attention.dtypes import Array, ulp
from weft.attention.emulate import Algorithm, emulate
from weft.attention.gates import lse_gate, tight_gate
from weft.attention.quantise import QUANTISERS
from weft.attention.reference import Causal, attention
from weft.attention.shapes import SHAPES, Shape
from weft.core.errors import CompileError
from weft.kernels import RUNGS
from weft.kernels.ladder import ENCODINGS, MASKS
from weft.probes import InitCheck, Probes, RaceCheck

ATTENTION = ("fp8_scalar", "fp8_wmma")
EVERY_CODE = np.arange(256, dtype=np.uint8)

both_encodings = pytest.mark.parametrize("encoding", ENCODINGS)
attention_rungs = pytest.mark.parametrize("rung", ATTENTION)
cases = pytest.mark.parametrize(
    ("shape", "causal"),
    [
        (SHAPES["split_65"], None),
        (Shape("gqa_batch", 2, 4, 2, 33, 50, 20), "bottom_right"),
        (Shape("few_keys", 1, 2, 1, 70, 20, 20), "bottom_right"),
    ],
    ids=lambda value: value.name if isinstance(value, Shape) else value,
)


def numbers(codes: Array, encoding: str) -> Array:
    """Return the value of codes in float64, without the head's scale."""
    if encoding == "e4m3":
        return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return (codes.astype(np.float64) - 128) * 448 / 127


def exact(arrays: Mapping[str, Array], name: str, encoding: str) -> Array:
    """Return them decoded in float64."""
    scale = arrays[f"{name}_scale"].astype(np.float64)[..., None, None]
    return np.asarray(numbers(arrays[f"{name}_code"], encoding) * scale)


def encoded(shape: Shape, encoding: str) -> dict[str, Array]:
    """Return normals; every head has another magnitude, so that a scale of the wrong head is noticed."""
    rng = np.random.default_rng(zlib.crc32(shape.name.encode()))
    arrays: dict[str, Array] = {}
    for name, size in (("q", shape.q), ("k", shape.kv), ("v", shape.kv)):
        magnitude = np.linspace(0.5, 1.5, size[0] * size[1]).reshape(*size[:2], 1, 1)
        codes, scale = QUANTISERS[encoding].encode(rng.standard_normal(size) * magnitude)
        arrays[f"{name}_code"], arrays[f"{name}_scale"] = codes, scale
    return arrays


def run(rung: str, arrays: Mapping[str, Array], encoding: str, **defines: str) -> dict[str, Array]:
    """Return the arrays after a run without findings."""
    chosen = {"ENCODING": str(ENCODINGS.index(encoding)), **defines}
    kernel = weft.load(RUNGS[rung].path, defines=chosen)
    outcome, after = kernel.run(weft.VirtualGPU(), arrays, watch=Probes(InitCheck(), RaceCheck()))
    assert outcome.clean, "\n".join(map(str, outcome.findings))
    return after


def attend(rung: str, arrays: Mapping[str, Array], encoding: str, causal: Causal, **defines: str) -> dict[str, Array]:
    mask = str(MASKS.index(causal or "none"))
    return run(rung, arrays, encoding, ELEMENT="float", CAUSAL=mask, **defines)


@both_encodings
@pytest.mark.parametrize(
    ("rung", "defines"),
    [("fp8_scalar", {}), ("fp8_wmma", {"DEQUANT": "lut"}), ("fp8_wmma", {"DEQUANT": "direct"})],
    ids=lambda value: value if isinstance(value, str) else value.get("DEQUANT", "registers"),
)
def test_every_code_has_its_value(encoding: str, rung: str, defines: dict[str, str]) -> None:
    """With one key, which then has weight 1, O is V: the codes 0 … 255 in two heads of 128 columns, NaN included."""
    zero = QUANTISERS[encoding].encode(np.zeros((1, 2, 1, 128)))
    scale = np.full((1, 2), 0.0123, np.float32)
    arrays = {
        **{f"{name}_code": zero.codes for name in "qk"},
        **{f"{name}_scale": zero.scale for name in "qk"},
        **{"v_code": EVERY_CODE.reshape(1, 2, 1, 128), "v_scale": scale},
    }
    o = attend(rung, arrays, encoding, None, **defines)["o"]
    # What the kernels declare: a step in fp32, a product in fp32, and for tensor cores the rounding to fp16.
    step = scale if encoding == "e4m3" else scale * np.float32(np.float32(448) / np.float32(127))
    number = arrays["v_code"].astype(np.float32) - 128
    if encoding == "e4m3":
        number = arrays["v_code"].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        assert np.isnan(number).sum() == 2
    expected = number * step[..., None, None]
    if rung == "fp8_wmma":
        expected = expected.astype(np.float16).astype(np.float32)
    assert np.array_equal(o, expected, equal_nan=True)


def test_every_e4m3_code_in_a_dot_product() -> None:
    """D = 1 and Q = 1 (code 0x38): the scores are K, one code after the other."""
    ones = {f"{name}_scale": np.ones((1, 1), np.float32) for name in "qk"}
    arrays = {"q_code": np.full((1, 1, 1, 1), 0x38, np.uint8), "k_code": EVERY_CODE.reshape(1, 1, 256, 1), **ones}
    s = run("qk_dot", arrays, "e4m3", SCALED="0")["s"].reshape(-1)
    assert np.array_equal(s, EVERY_CODE.view(ml_dtypes.float8_e4m3fn).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(
    "shape",
    [Shape("4x8", 1, 1, 1, 4, 8, 64), Shape("gqa", 2, 4, 2, 3, 5, 37), Shape("one", 1, 1, 1, 1, 1, 1)],
    ids=lambda shape: shape.name,
)
@both_encodings
def test_scores(shape: Shape, encoding: str) -> None:
    arrays = {name: array for name, array in encoded(shape, encoding).items() if not name.startswith("v")}
    s = run("qk_dot", arrays, encoding)["s"]
    q, k = exact(arrays, "q", encoding), exact(arrays, "k", encoding).repeat(shape.group, axis=1).swapaxes(-1, -2)
    # Products are exact and integer sums are, too; an E4M3 score rounds D / 32 + 5 times, and at most 8 times after it.
    sums = 0 if encoding == "sim_fp8" else (shape.d // 32 + 5) * 2.0**-24 * (np.abs(q) @ np.abs(k))
    bound = (sums + 8 * 2.0**-24 * np.abs(q @ k)) / np.sqrt(shape.d)
    assert (np.abs(s - q @ k / np.sqrt(shape.d)) <= bound * (1 + 1e-6)).all()


@both_encodings
@cases
def test_the_scalar_rung_is_attention_of_the_decoded_inputs(shape: Shape, causal: Causal, encoding: str) -> None:
    arrays = encoded(shape, encoding)
    after = attend("fp8_scalar", arrays, encoding, causal)
    expected = attention(*(exact(arrays, name, encoding) for name in "qkv"), causal=causal)
    blind = np.isneginf(expected.lse)
    assert (np.abs(after["o"] - expected.o) <= 1e-5 + ulp(expected.o, "f32")).all()
    assert np.array_equal(np.isneginf(after["lse"]), blind) and not after["o"][blind].any()
    assert (np.abs(after["lse"][~blind] - expected.lse[~blind]) <= 1e-5).all()


@both_encodings
@cases
def test_the_tensor_core_rung_is_attention_of_the_decoded_inputs(shape: Shape, causal: Causal, encoding: str) -> None:
    """The error is within that of rounding Q, K, V and P to fp16."""
    arrays = encoded(shape, encoding)
    after = attend("fp8_wmma", arrays, encoding, causal)
    q, k, v = (exact(arrays, name, encoding) for name in "qkv")
    expected, of_v = attention(q, k, v, causal=causal), attention(q, k, np.abs(v), causal=causal).o
    # A score moves by at most δ = 2 · 2^-11 · Σ |q k| · scale, a weight by a factor within exp(±2δ); V and P each add
    # half an ulp. 1e-5 of the largest |V| and 3e-5 are fp32's share, as in test_tensor_core_rungs.
    products = np.abs(q) @ np.abs(k).repeat(shape.group, axis=1).swapaxes(2, 3)
    delta = 2 * 2.0**-11 * products.max(-1, keepdims=True) / np.sqrt(shape.d) * (1 + 1e-3)
    bound = (np.expm1(2 * delta) + 2 * 2.0**-11) * of_v * (1 + 1e-3) + 1e-5 * np.abs(v).max()
    assert (np.abs(after["o"] - expected.o) <= bound).all()
    blind = np.isneginf(expected.lse)
    assert np.array_equal(np.isneginf(after["lse"]), blind) and not after["o"][blind].any()
    assert (np.abs(after["lse"][~blind] - expected.lse[~blind]) <= (delta[..., 0] + 3e-5)[~blind]).all()


@both_encodings
def test_the_table_holds_what_is_computed(encoding: str) -> None:
    arrays = encoded(SHAPES["split_65"], encoding)
    table, direct = (attend("fp8_wmma", arrays, encoding, None, DEQUANT=way) for way in ("lut", "direct"))
    assert table["o"].tobytes() == direct["o"].tobytes() and table["lse"].tobytes() == direct["lse"].tobytes()


@both_encodings
@attention_rungs
@cases
def test_a_rung_follows_its_declared_algorithm(rung: str, shape: Shape, causal: Causal, encoding: str) -> None:
    """Far closer than the bounds above: the same roundings at the same places."""
    arrays = encoded(shape, encoding)
    after = attend(rung, arrays, encoding, causal)
    short = "f16" if rung == "fp8_wmma" else "f32"
    algorithm = Algorithm(block_m=32, block_n=32, operand_dtype=short, p_dtype=short)
    q, k, v = (QUANTISERS[encoding].decode(arrays[f"{name}_code"], arrays[f"{name}_scale"]) for name in "qkv")
    emulated = emulate(algorithm, q, k, v, causal=causal)
    gate = tight_gate(after["o"], emulated.o, v, "f32", allowance=emulated.allowance)
    assert gate.passed, gate
    lse = lse_gate(after["lse"], emulated.lse, allowance=emulated.allowance)
    assert lse.passed, lse


@attention_rungs
def test_the_encoding_matters(rung: str) -> None:
    """Codes of one encoding read as the other give another result: no case above can pass by accident."""
    arrays = encoded(SHAPES["split_65"], "sim_fp8")
    one, other = (attend(rung, arrays, encoding, None)["lse"] for encoding in ENCODINGS)
    assert not np.allclose(one, other, rtol=0, atol=0.1)


@pytest.mark.parametrize("rung", ["qk_dot", *ATTENTION])
def test_a_file_runs_as_it_is_in_either_encoding(rung: str) -> None:
    """The codes that its lines generate are finite numbers."""
    for encoding in ENCODINGS:
        kernel = weft.load(RUNGS[rung].path, defines={"ENCODING": str(ENCODINGS.index(encoding))})
        outcome, after = kernel.run(weft.VirtualGPU(), sizes={"SQ": 3, "SKV": 5, "D": 16})
        assert outcome.clean and np.isfinite(after["s" if rung == "qk_dot" else "o"].astype(np.float64)).all()


@pytest.mark.parametrize("rung", ["qk_dot", *ATTENTION])
def test_an_unknown_encoding_does_not_compile(rung: str) -> None:
    with pytest.raises(CompileError, match="ENCODING is 0"):
        weft.load(RUNGS[rung].path, defines={"ENCODING": "2"}).compile()
