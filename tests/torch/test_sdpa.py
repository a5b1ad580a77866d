"""weft.torch on CPU tensors: PyTorch's semantics, compared with PyTorch and with float64."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.attention.dtypes import numpy_dtype
from weft.attention.gates import flash_gate
from weft.attention.quantise import QUANTISERS
from weft.attention.reference import attention, attention16, visible
from weft.core.chips import DEFAULT_GPU, target_of
from weft.core.errors import UsageError
from weft.kernels.ladder import MASKS, RUNGS
from weft.torch import ForwardOnly, fp8_sdpa, kernel_call, sdpa
from weft.torch.choose import DTYPES, ENCODED, Wanted, backward_rung, choose_rung, why_not
from weft.torch.functions import _FP8_SDPA, _SDPA
from weft.torch.kernel_call import KernelWentWrong

D = 16


def draw(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)


def qkv(heads: int = 2, kv_heads: int = 2, sq: int = 19, skv: int = 37, **options: Any) -> tuple[torch.Tensor, ...]:
    return draw((2, heads, sq, D), (2, kv_heads, skv, D), (2, kv_heads, skv, D), **options)


def wide(x: torch.Tensor) -> np.ndarray:
    return x.to(torch.float64).numpy()


def judge(o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, rounding: float) -> None:
    """Compare with float64, and for 16-bit types by FlashAttention's rule."""
    causal = None if mask == "none" else mask
    gold = attention(wide(q), wide(k), wide(v), causal=causal).o
    if o.dtype == torch.float32:
        assert np.abs(wide(o) - gold).max() < rounding
        return
    name = DTYPES[o.dtype]
    narrow = [wide(x).astype(numpy_dtype(name)) for x in (q, k, v)]
    assert flash_gate(wide(o).astype(numpy_dtype(name)), gold, attention16(*narrow, causal=causal).o, name).passed


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_types_and_masks_with_ragged_lengths(dtype: torch.dtype, mask: str) -> None:
    q, k, v = qkv(dtype=dtype)
    align = {} if mask == "none" else {"causal_align": mask}
    o = sdpa(q, k, v, is_causal=mask != "none", rung="scalar", **align)
    assert o.dtype == dtype and o.shape == q.shape and o.is_contiguous()
    judge(o, q, k, v, mask, 2e-6)
    shown = torch.from_numpy(visible(19, 37, None if mask == "none" else mask))
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=shown)
    assert (o - theirs).abs().max() <= 4 * torch.finfo(dtype).eps * v.abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_default_rung(dtype: torch.dtype) -> None:
    q, k, v = qkv(dtype=dtype)
    judge(sdpa(q, k, v), q, k, v, "none", 0)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 70), st.integers(1, 70),
    st.sampled_from(MASKS), st.integers(0, 1 << 20),
)  # fmt: skip
def test_any_lengths_and_heads(batch: int, kv: int, group: int, sq: int, skv: int, mask: str, seed: int) -> None:
    q, k, v = draw((batch, kv * group, sq, D), (batch, kv, skv, D), (batch, kv, skv, D), seed=seed)
    align = {} if mask == "none" else {"causal_align": mask}
    o, lse = sdpa(q, k, v, is_causal=mask != "none", enable_gqa=True, return_lse=True, rung="scalar", **align)
    gold = attention(wide(q), wide(k), wide(v), causal=None if mask == "none" else mask)
    assert np.abs(wide(o) - gold.o).max() < 4e-6
    seen = np.isfinite(gold.lse)
    assert (
        np.array_equal(np.isfinite(wide(lse)), seen) and np.abs(wide(lse)[seen] - gold.lse[seen]).max(initial=0) < 1e-5
    )


def test_top_left_is_what_pytorch_means_by_causal() -> None:
    q, k, v = qkv()
    ours = sdpa(q, k, v, is_causal=True, rung="scalar")
    assert (ours - F.scaled_dot_product_attention(q, k, v, is_causal=True)).abs().max() < 2e-6


def test_grouped_queries() -> None:
    q, k, v = qkv(heads=6, kv_heads=2)
    ours = sdpa(q, k, v, enable_gqa=True, rung="scalar")
    assert (ours - F.scaled_dot_product_attention(q, k, v, enable_gqa=True)).abs().max() < 2e-6
    with pytest.raises(UsageError, match="enable_gqa=True"):
        sdpa(q, k, v)
    with pytest.raises(UsageError, match="not a multiple of 4"):
        sdpa(*qkv(heads=6, kv_heads=4), enable_gqa=True)


@pytest.mark.parametrize("scale", [0.5, -0.3, 0.0, 3])
def test_the_scale_is_that_of_the_caller(scale: float) -> None:
    q, k, v = qkv()
    ours = sdpa(q, k, v, scale=scale, rung="scalar")
    assert (ours - F.scaled_dot_product_attention(q, k, v, scale=scale)).abs().max() < 4e-6


def test_lse_is_the_logarithm_of_the_row_sums() -> None:
    q, k, v = qkv()
    o, lse = sdpa(q, k, v, is_causal=True, return_lse=True, rung="scalar")
    scores = (q.double() @ k.double().mT) / math.sqrt(D)
    scores = scores.masked_fill(~torch.ones(19, 37, dtype=torch.bool).tril(), -math.inf)
    assert lse.dtype == torch.float32 and lse.shape == q.shape[:-1] and o.shape == q.shape
    assert (lse - scores.logsumexp(-1)).abs().max() < 1e-5


def test_a_query_that_sees_no_key() -> None:
    q, k, v = qkv(sq=30, skv=10)
    o, lse = sdpa(q, k, v, is_causal=True, causal_align="bottom_right", return_lse=True, rung="scalar")
    assert not o[:, :, :20].any() and torch.isneginf(lse[:, :, :20]).all()
    assert torch.isfinite(lse[:, :, 20:]).all() and torch.isfinite(o).all()


def strided(kind: str) -> tuple[torch.Tensor, ...]:
    q, k, v = qkv(sq=37)
    match kind:
        case "heads inside":  # (batch, length, heads, dimension), as most models have it
            return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
        case "one tensor":
            packed = torch.stack([q, k, v], dim=3)
            return packed[:, :, :, 0], packed[:, :, :, 1], packed[:, :, :, 2]
        case "every other row":
            return tuple(x[:, :, ::2] for x in (q, k, v))
        case "expanded batch":
            return q, k[:1].expand(2, -1, -1, -1), v[:1].expand(2, -1, -1, -1)
        case "broadcast batch":
            return q, k[:1], v[:1]
        case "broadcast heads":
            return q, k[:, :1], v[:, :1]
        case "one query head":
            return q[:, :1], k, v
        case "three axes":
            return q[0], k[0], v[0]
        case "two axes":
            return q[0, 0], k[0, 0], v[0, 0]
        case _:
            return tuple(x.reshape(2, 1, 2, 37, D) for x in (q, k, v))


KINDS = (
    "heads inside", "one tensor", "every other row", "expanded batch", "broadcast batch", "broadcast heads",
    "one query head", "three axes", "two axes", "five axes",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_strides_and_axes(kind: str) -> None:
    q, k, v = strided(kind)
    before = [x.clone() for x in (q, k, v)]
    ours, lse = sdpa(q, k, v, rung="scalar", return_lse=True)
    theirs = F.scaled_dot_product_attention(q, k, v)
    assert ours.shape == theirs.shape and lse.shape == theirs.shape[:-1]
    assert (ours - theirs).abs().max() < 2e-6
    assert all(torch.equal(x, was) for x, was in zip((q, k, v), before, strict=True))


@pytest.mark.parametrize(
    ("change", "why"),
    [({"attn_mask": None}, "attn_mask is not supported"), ({"dropout_p": 0.1}, "dropout_p is not supported"),
     ({"is_casual": True}, "unknown option 'is_casual'"), ({"causal_align": "middle"}, "causal_align 'middle'"),
     ({"rung": "fastest"}, "rung 'fastest'"), ({"rung": "wmma"}, "f16 or bf16, not f32"),
     ({"rung": "fp8_wmma"}, "computes fp8_sdpa")],
)  # fmt: skip
def test_options_that_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sdpa(*qkv(), **change)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [(draw((1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 16)), "q, k and v must have the same"),
     (draw((1, 1, 4, 8), (1, 1, 5, 8), (1, 1, 4, 8)), "5 rows and v has 4"),
     (draw((1, 1, 0, 8), (1, 1, 4, 8), (1, 1, 4, 8)), "a tensor is empty"),
     (draw((8,), (8,), (8,)), "at least"), (draw(*[(1, 1, 4, 8)] * 3, dtype=torch.float64), "not torch.float64"),
     ((*draw((1, 1, 4, 8), (1, 1, 4, 8)), *draw((1, 1, 4, 8), dtype=torch.float16)), "all f16")],
)  # fmt: skip
def test_tensors_that_are_refused(tensors: tuple[torch.Tensor, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sdpa(*tensors)


def test_gradients_of_codes_and_of_lse_are_refused() -> None:
    q, k, v = qkv()
    k.requires_grad_()
    with pytest.raises(ForwardOnly, match="forward only"):
        fp8_sdpa(q, k, v)
    with torch.no_grad():
        assert not sdpa(q, k, v, rung="scalar").requires_grad
    with pytest.raises(UsageError, match=r"LSE of .* has no gradient"):
        sdpa(q, k, v, rung="scalar", return_lse=True)[1].sum().backward()


@pytest.mark.parametrize(
    ("align", "dtype"), [("", torch.float32), ("top_left", torch.float16), ("bottom_right", torch.float32)]
)
def test_gradients_are_those_of_pytorch(align: str, dtype: torch.dtype) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(heads=4, kv_heads=2, dtype=dtype))
    do = draw((2, 4, 19, D), seed=7)[0].to(dtype)
    options = {"is_causal": bool(align), "causal_align": align or "top_left"}
    sdpa(q, k, v, enable_gqa=True, scale=0.3, rung="scalar", **options).backward(do)
    found = [x.grad.double() for x in (q, k, v) if x.grad is not None]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    mask = torch.from_numpy(visible(19, 37, align or None))
    F.scaled_dot_product_attention(*exact, attn_mask=mask, enable_gqa=True, scale=0.3).backward(do.double())
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, theirs.grad, atol=1e-5 if dtype == torch.float32 else 8e-3, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "d", "rung"),
    [("f16", 64, "backward_mma"), ("bf16", 128, "backward_mma"), ("f16", 129, "backward"), ("f32", 64, "backward")],
)
def test_gradients_of_16_bits_are_computed_on_tensor_cores(dtype: str, d: int, rung: str) -> None:
    assert backward_rung(Wanted(dtype, "none", d, 19, 37, 2)) == rung


@pytest.mark.filterwarnings("ignore:Input #.* requires gradient and is not a double precision")
def test_gradcheck_compares_every_derivative_with_differences() -> None:
    """The kernels have no float64: with steps of 1/64 a difference is right to about 1e-4, of derivatives up to 1."""
    q, k, v = (x.requires_grad_() for x in draw((1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4)))

    def attend(*tensors: torch.Tensor) -> Any:
        return sdpa(*tensors, is_causal=True, causal_align="bottom_right", enable_gqa=True, scale=0.5, rung="scalar")

    assert torch.autograd.gradcheck(attend, (q, k, v), eps=2**-6, atol=1e-3, rtol=0)


def test_a_layer_trains() -> None:
    """Steps of gradient descent through the kernels lower a loss as steps through PyTorch's attention do."""
    x, goal = draw((1, 2, 12, D), (1, 2, 12, D))

    def losses(attend: Any) -> list[float]:
        weights = [w.requires_grad_() for w in draw((D, D), (D, D), (D, D), seed=3)]
        found = []
        for _ in range(3):
            loss = (attend(*(x @ (w / 4) for w in weights)) - goal).square().mean()
            loss.backward()
            found.append(float(loss.detach()))
            with torch.no_grad():
                for w in weights:
                    assert w.grad is not None
                    w -= w.grad
                    w.grad = None
        return found

    ours, theirs = losses(lambda q, k, v: sdpa(q, k, v, rung="scalar")), losses(F.scaled_dot_product_attention)
    assert ours == pytest.approx(theirs, rel=1e-4) and ours[0] > ours[1] > ours[2]


def test_the_operators_pass_pytorchs_checks() -> None:
    q, k, v = draw((1, 2, 5, D), (1, 1, 7, D), (1, 1, 7, D))
    torch.library.opcheck(_SDPA, (q, k, v, "top_left", 0.25, "scalar"))
    # The last of PyTorch's checks takes gradients of every output; LSE has none.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(_SDPA, (q.clone().requires_grad_(), k, v, "top_left", 0.25, "scalar"), test_utils=checks)
    torch.library.opcheck(_FP8_SDPA, (q, k, v, "none", 0.25, "e4m3", "fp8_scalar"))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_makes_one_graph(dynamic: bool) -> None:
    def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = sdpa(2 * q, k.transpose(1, 2), v, is_causal=True, return_lse=True, rung="scalar")
        return fp8_sdpa(o, o, o, rung="fp8_scalar") + 1, lse

    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (9, 12):
        q, k, v = draw((1, 2, length, D), (1, length, 2, D), (1, 2, length, D))
        for ours, plain in zip(compiled(q, k, v), block(q, k, v), strict=True):
            assert torch.equal(ours, plain)


def test_gradients_of_compiled_code_are_the_same() -> None:
    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, is_causal=True, rung="scalar").square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    tensors = [x.requires_grad_() for x in draw((1, 2, 5, D), (1, 1, 7, D), (1, 1, 7, D))]
    ours, plain = (torch.autograd.grad(each(*tensors), tensors) for each in (compiled, loss))
    assert all(torch.equal(a, b) and a.abs().max() > 0 for a, b in zip(ours, plain, strict=True))


def test_shapes_are_known_without_running() -> None:
    q, k, v = (x.to("meta") for x in qkv(dtype=torch.float16))
    o, lse = sdpa(q, k, v, return_lse=True)
    assert (o.shape, o.dtype, lse.shape, lse.dtype) == (q.shape, torch.float16, q.shape[:-1], torch.float32)


@pytest.mark.parametrize("encoding", ["e4m3", "sim_fp8"])
@pytest.mark.parametrize("mask", ["none", "bottom_right"])
def test_fp8_is_attention_on_the_decoded_values(encoding: str, mask: str) -> None:
    q, k, v = qkv(heads=4, dtype=torch.float16, seed=3)
    options = {"is_causal": mask != "none", "causal_align": "bottom_right", "enable_gqa": True, "return_lse": True}
    o, lse = fp8_sdpa(q, k, v, encoding=encoding, rung="fp8_scalar", scale=0.2, **options)
    quantiser = QUANTISERS[encoding]
    meant = [quantiser.decode(*quantiser.encode(wide(x).astype(np.float32))) for x in (q, k, v)]
    gold = attention(*meant, scale=0.2, causal=None if mask == "none" else mask)
    assert o.dtype == torch.float16
    assert np.abs(wide(o) - gold.o).max() < 2e-3 and np.abs(wide(lse) - gold.lse).max() < 1e-4
    rough = attention(wide(q), wide(k), wide(v), scale=0.2, causal=None if mask == "none" else mask)
    assert 1e-3 < np.abs(wide(o) - rough.o).max() < 0.3


def test_fp8_by_the_default_rung() -> None:
    q, k, v = qkv(dtype=torch.float16)
    o = fp8_sdpa(q, k, v)
    assert (o - F.scaled_dot_product_attention(q, k, v)).abs().mean() < 0.03
    per_head = fp8_sdpa(q, k, v, rung="fp8_scalar")
    assert (o - per_head).abs().mean() < 0.03


def test_fp8_refuses_unknown_encodings() -> None:
    with pytest.raises(UsageError, match="encoding 'e5m2'"):
        fp8_sdpa(*qkv(), encoding="e5m2")


calls = st.builds(
    Wanted, st.sampled_from(["f16", "bf16", "f32"]), st.sampled_from(MASKS), st.integers(1, 600),
    st.integers(1, 400), st.integers(1, 400), st.integers(1, 8), st.sampled_from(["", "e4m3", "sim_fp8"]),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(calls)
def test_the_highest_rung_that_supports_the_call_is_chosen(wanted: Wanted) -> None:
    chosen = choose_rung(wanted)
    names = [name for name, rung in RUNGS.items() if rung.language == "CUDA" and not rung.gpu]
    assert not why_not(chosen, wanted)
    for higher in names[names.index(chosen.name) + 1 :]:
        assert why_not(RUNGS[higher], wanted)
        with pytest.raises(UsageError, match="does not support this call"):
            choose_rung(wanted, higher)


def test_a_call_that_no_rung_supports_is_refused_with_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.torch.choose.RUNGS", {"wmma": RUNGS["wmma"]})
    with pytest.raises(UsageError, match="wmma: its largest head dimension is 128, not 200"):
        choose_rung(Wanted("f16", "none", 200, 8, 8, 1))


def test_a_kernel_with_findings_gives_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wrong.cu"
    path.write_text(
        "// weft: sizes B=1 H=1 S=4 D=16\n// weft: in q, k, v : f32[B, H, S, D] = normal\n"
        "// weft: out o : f32[B, H, S, D]\n// weft: out lse : f32[B, H, S]\n"
        "// weft: launch wrong(o) grid(1) block(1)\n"
        'extern "C" __global__ void wrong(float* o) { o[1 << 20] = 1.0f; }\n'
    )
    monkeypatch.setattr(kernel_call, "kernel_for", lambda chosen, arch: weft.load(path))
    with pytest.raises(KernelWentWrong, match="M101"):
        sdpa(*draw(*[(1, 1, 4, D)] * 3), rung="scalar")


def test_every_rung_of_attention_takes_a_scale() -> None:
    """Without it PyTorch's `scale` could not be passed."""
    for rung, dtype in itertools.product(RUNGS.values(), ("f16", "f32")):
        encoding = "e4m3" if rung.task in ENCODED else ""
        wanted = Wanted(dtype, "none", 64, 128, 128, 1, encoding)
        if not why_not(rung, wanted):
            chosen = kernel_call.Chosen(rung.name, dtype, "none", 0.125, encoding)
            (scale,) = (
                line
                for line in kernel_call.kernel_for(chosen, target_of(rung.gpu or DEFAULT_GPU)).scalars
                if line.name == "scale"
            )
            assert scale.value.value({}) == 0.125
