"""weft.torch.sdpa with windows, soft caps and sinks, compared with attention in float64, written here in torch."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.torch.test_sdpa import draw, qkv
from weft.attention.contract import DENSE, Contract
from weft.core.errors import UsageError
from weft.kernels.ladder import MASKS, RUNGS
from weft.torch import ForwardOnly, fp8_sdpa, sdpa
from weft.torch.choose import Wanted, choose_rung, why_not
from weft.torch.functions import _SDPA_VARIANT
from weft.torch.options import LEAST_CAP, MOST_CAP

SINKS = torch.tensor([1.5, -2.0])
WINDOW, CAP = (4, 3), 0.75


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    align: str = "",
    window: tuple[int | None, int | None] = (None, None),
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and LSE in float64. A sink is a further key whose value is 0."""
    q, k, v = (x.double() for x in (q, k, v))
    group, (sq, skv) = q.size(-3) // k.size(-3), (q.size(-2), k.size(-2))
    k, v = (x.repeat_interleave(group, -3) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    corner = 0 if align == "top_left" else skv - sq
    after = torch.arange(skv) - torch.arange(sq)[:, None] - corner  # key minus diagonal
    left, right = window
    unseen = torch.zeros(sq, skv, dtype=torch.bool)
    if align:
        right = 0
    if left is not None:
        unseen |= after < -left
    if right is not None:
        unseen |= after > right
    scores = scores.masked_fill(unseen, -math.inf)
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(*scores.shape[:-1], 1)
        scores, v = torch.cat([scores, column], -1), torch.cat([v, torch.zeros_like(v[..., :1, :])], -2)
    return scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1)


def agree(found: tuple[torch.Tensor, ...], gold: tuple[torch.Tensor, ...], v: torch.Tensor) -> None:
    """Compare O and LSE. 16-bit types round P, relative to its weights, and O once each; the rest is float32 sums."""
    (o, lse), (gold_o, gold_lse) = found, gold
    limit = 4e-6 if o.dtype == torch.float32 else 2 * torch.finfo(o.dtype).eps * float(v.abs().max())
    assert (o.double() - gold_o).abs().max() <= limit
    seen = torch.isfinite(gold_lse)
    assert torch.equal(torch.isfinite(lse), seen)
    assert (lse.double() - gold_lse)[seen].abs().max() <= 2e-5


def compare(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, align: str = "", rung: str | None = None, **options: Any
) -> None:
    causal = {"is_causal": True, "causal_align": align} if align else {"causal_align": "bottom_right"}
    o, lse = sdpa(q, k, v, enable_gqa=True, return_lse=True, rung=rung, **causal, **options)
    assert o.dtype == q.dtype and o.shape == q.shape
    agree((o, lse), reference(q, k, v, align=align, **options), v)


OPTIONS: tuple[dict[str, Any], ...] = (
    {"window": WINDOW}, {"window": (4, None)}, {"window": (None, 3)}, {"window": (0, 0)}, {"soft_cap": CAP},
    {"sinks": SINKS}, {"soft_cap": CAP, "sinks": SINKS}, {"window": WINDOW, "soft_cap": 30, "sinks": SINKS},
)  # fmt: skip


@pytest.mark.parametrize("align", ["", "top_left", "bottom_right"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_options_in_float32(options: dict[str, Any], align: str) -> None:
    options = options.copy()
    if align and "window" in options:
        options["window"] = (options["window"][0], 0)
    compare(*qkv(), align=align, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rung", ["pipelined", "fa_triton", "softcap_sinks"])
def test_windows_of_16_bit_rungs(rung: str, dtype: torch.dtype) -> None:
    compare(*qkv(dtype=dtype), window=WINDOW, rung=rung)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_caps_and_sinks_in_16_bits(dtype: torch.dtype) -> None:
    compare(*qkv(dtype=dtype), soft_cap=CAP, sinks=SINKS.to(dtype))


def test_queries_that_see_no_key_have_the_sink_alone() -> None:
    q, k, v = qkv(sq=30, skv=10)
    options: dict[str, Any] = {"is_causal": True, "causal_align": "bottom_right", "return_lse": True}
    o, lse = sdpa(q, k, v, window=(2, 0), sinks=SINKS, **options)
    assert not o[:, :, :20].any() and torch.equal(lse[:, :, :20], SINKS[:, None].expand(2, 2, 20))
    o, lse = sdpa(q, k, v, window=(2, 0), **options)
    assert not o[:, :, :20].any() and torch.isneginf(lse[:, :, :20]).all() and torch.isfinite(lse[:, :, 20:]).all()


def test_grouped_queries_and_a_sink_per_query_head() -> None:
    compare(*qkv(heads=4, kv_heads=2), sinks=torch.tensor([0.0, 1.0, 2.0, -math.inf]))


def test_options_without_a_limit_are_plain_attention() -> None:
    q, k, v = qkv()
    plain = sdpa(q, k, v)
    assert torch.equal(sdpa(q, k, v, window=(None, None), soft_cap=None, sinks=None), plain)
    assert (sdpa(q, k, v, soft_cap=MOST_CAP, sinks=torch.full((2,), -math.inf)) - plain).abs().max() < 4e-6
    equal = sdpa(q, k, v, soft_cap=LEAST_CAP)
    assert (equal - v.mean(dim=2, keepdim=True)).abs().max() < 4e-6, "scores of ±1e-30 are equal weights"


@pytest.mark.parametrize(
    ("change", "why"),
    [({"window": 4}, "give .left, right."), ({"window": (4, 3, 2)}, "give .left, right."),
     ({"window": (-1, 0)}, "or None for no limit"), ({"window": (1 << 31, 0)}, "from 0 to 2.30"),
     ({"window": (4, 3), "is_causal": True}, r"use \(4, 0\), or is_causal=False"),
     ({"window": (4, 3)}, "causal_align='bottom_right'"), ({"soft_cap": 0.0}, "or None for no cap"),
     ({"soft_cap": math.nan}, "or None for no cap"), ({"soft_cap": -2.0}, "or None for no cap"),
     ({"soft_cap": 1e-50}, "from 1e-30"), ({"soft_cap": "20"}, "give a number"),
     ({"sinks": SINKS[:1]}, r"one logit per query head, \(2,\)"), ({"sinks": SINKS.double()}, "in float32 or q's type"),
     ({"sinks": SINKS, "rung": "pipelined"}, "it computes sdpa, not softcap_sinks"),
     ({"soft_cap": 20.0, "rung": "fa1"}, "fa1 does not support this call: it has no macro SOFT_CAP"),
     ({"window": (4, None), "causal_align": "bottom_right", "rung": "split_k"}, "no macro WINDOW_LEFT")],
)  # fmt: skip
def test_options_that_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sdpa(*qkv(), **change)


@pytest.mark.parametrize("option", [{"window": (4, 0)}, {"soft_cap": 20.0}, {"sinks": SINKS}])
def test_codes_have_none_of_them(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(option))} is supported by weft.torch.sdpa only"):
        fp8_sdpa(*qkv(), **option)


@pytest.mark.parametrize("option", [{"window": (4, 0)}, {"soft_cap": 20.0}, {"sinks": SINKS}])
def test_gradients_through_them_are_refused(option: dict[str, Any]) -> None:
    q, k, v = qkv(skv=19)
    with pytest.raises(ForwardOnly, match="window, soft_cap or sinks is forward only"):
        sdpa(q, k.requires_grad_(), v, **option)
    with torch.no_grad():
        assert not sdpa(q, k, v, **option).requires_grad


def test_gradients_of_sinks_are_refused() -> None:
    with pytest.raises(ForwardOnly, match=r"Call it under torch.no_grad\(\)"):
        sdpa(*qkv(), sinks=SINKS.clone().requires_grad_())


def test_the_operator_passes_pytorchs_checks() -> None:
    q, k, v = draw((1, 2, 5, 16), (1, 1, 7, 16), (1, 1, 7, 16))
    torch.library.opcheck(_SDPA_VARIANT, (q, k, v, SINKS, "none", 0.25, "", 3, 2, 20.0))
    torch.library.opcheck(_SDPA_VARIANT, (q, k, v, None, "top_left", 0.25, "", 3, None, None))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_makes_one_graph(dynamic: bool) -> None:
    def block(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = sdpa(2 * q, k, v, is_causal=True, window=(3, 0), soft_cap=20.0, sinks=sinks)
        return o + sdpa(q, k, v, window=(3, 2), causal_align="bottom_right")

    compiled: Callable[..., torch.Tensor] = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (9, 12):
        tensors = draw(*[(1, 2, length, 16)] * 3)
        assert torch.equal(compiled(*tensors, SINKS), block(*tensors, SINKS))


def test_shapes_are_known_without_running() -> None:
    q, k, v = (x.to("meta") for x in qkv(dtype=torch.float16))
    o, lse = sdpa(q, k, v, sinks=SINKS.to("meta"), return_lse=True)
    assert (o.shape, o.dtype, lse.shape, lse.dtype) == (q.shape, torch.float16, q.shape[:-1], torch.float32)


def test_windows_alone_run_on_tensor_cores_and_plain_attention_never_pays_for_sinks() -> None:
    window = Contract(left=4)
    for dtype, rung in (("f16", "pipelined"), ("f32", "softcap_sinks")):
        assert choose_rung(Wanted(dtype, "none", 64, 19, 37, 1, contract=window)).name == rung
    for mask, dtype in itertools.product(MASKS, ("f16", "f32")):
        assert "softcap_sinks" in why_not(RUNGS["softcap_sinks"], Wanted(dtype, mask, 64, 19, 37, 1, contract=DENSE))
