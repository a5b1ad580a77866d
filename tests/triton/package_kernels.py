"""Triton kernels of packages on PyPI (requirements-packages.txt), called as by their users, with references.

A package is imported where it is called, because it looks for CUDA at import. References are PyTorch's functions or the
definition, in float64 where there is a recurrence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

Tensor = Any
Pair = tuple[Tensor, Tensor]
"""The results of the kernel and the expected results."""

FP32, BF16 = 1e-4, 2e-2
"""Absolute and relative: sums of at most some hundred terms of about 1; a last rounding to 8 bits of mantissa."""
INT8 = 3e-2
"""Of the norm: Q and K are rounded to 1/254 of the largest of their block; their scores are off by 1 % or so."""


@dataclass(frozen=True)
class PackageKernel:
    """One forward function of a package."""

    package: str
    name: str
    call: Callable[[], Pair]
    tolerance: float = FP32
    of_norm: bool = False
    """Whether the tolerance is of the difference's L2 norm, not of each element."""
    in_ci: bool = False

    def wrong(self) -> str:
        """Run it; return what differs from the reference, or an empty string."""
        got, expected = (tensor.detach().double() for tensor in self.call())
        if got.shape != expected.shape:
            return f"shape {tuple(got.shape)}, should be {tuple(expected.shape)}"
        if self.of_norm:
            off = ((got - expected).norm() / expected.norm()).item()
            return "" if off <= self.tolerance else f"off by {off:.3g} in the L2 norm"
        if not torch.allclose(got, expected, rtol=self.tolerance, atol=self.tolerance):
            return f"off by {(got - expected).abs().max().item():.3g} of {expected.abs().max().item():.3g}"
        return ""


def normal(seed: int, *shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to("cuda")


X, Y = (lambda: normal(0, 6, 200)), (lambda: normal(1, 6, 200))
ROW, OTHER_ROW = (lambda: normal(2, 200)), (lambda: normal(3, 200))


def sage(*, causal: bool, d: int = 64, dtype: Any = torch.float16) -> Pair:
    from sageattention import sageattn

    q, k, v = (normal(seed, 1, 2, 128, d, dtype=dtype) for seed in range(3))
    expected = functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    return sageattn(q, k, v, is_causal=causal), expected  # it subtracts the mean from k in place


def sage_quantised() -> Pair:
    from sageattention.quant_per_block import per_block_int8

    q, k = (normal(seed, 1, 2, 128, 64, dtype=torch.float16) for seed in range(2))
    _, _, got, scale = per_block_int8(q, k)
    blocks = k.float().reshape(1, 2, 2, 64 * 64)
    assert torch.allclose(scale, blocks.abs().amax(-1, keepdim=True) / 127)
    return got.float().reshape(blocks.shape) * scale / blocks.abs().amax(), blocks / blocks.abs().amax()


def liger(name: str, arguments: Callable[[], tuple[Any, ...]], reference: Callable[..., Tensor]) -> Callable[[], Pair]:
    """A function of Liger's functional interface. Some write into their arguments: the reference comes first."""

    def call() -> Pair:
        from liger_kernel.transformers import functional as liger_functional

        given = arguments()
        expected = reference(*given)
        got = getattr(liger_functional, name)(*given)
        return (got[0] if isinstance(got, tuple) else got), expected

    return call


def sparsemax(x: Tensor) -> Tensor:
    """Martins and Astudillo 2016, algorithm 1."""
    z = x.sort(-1, descending=True).values
    sums = z.cumsum(-1)
    count = (1 + torch.arange(1, x.shape[-1] + 1) * z > sums).sum(-1, keepdim=True)
    return torch.clamp(x - (sums.gather(-1, count - 1) - 1) / count, min=0)


def rotary() -> tuple[Tensor, ...]:
    angles = torch.outer(torch.arange(16.0), 10000 ** (-torch.arange(0, 32, 2) / 32)).repeat(1, 2)[None]
    return normal(0, 1, 4, 16, 32), normal(1, 1, 2, 16, 32), angles.cos().to("cuda"), angles.sin().to("cuda")


def rotated(q: Tensor, _k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q * cos + torch.cat([-q[..., 16:], q[..., :16]], -1) * sin


def rms_norm(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), w, eps)


def recurrence(q: Tensor, k: Tensor, v: Tensor, *, decay: Tensor | None = None, beta: Tensor | None = None) -> Tensor:
    """Return linear attention by its definition: S ← S·exp(decay) + k vᵀ, or the delta rule; o = qᵀ S. (B, T, H, D)."""
    q, k, v = (tensor.double() for tensor in (q * q.shape[-1] ** -0.5, k, v))
    state = torch.zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3], dtype=torch.float64, device=q.device)
    rows = []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * decay[:, t].double().exp()[..., None]
        added = v[:, t]
        if beta is not None:
            added = (added - torch.einsum("bhk,bhkv->bhv", k[:, t], state)) * beta[:, t].double()[..., None]
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], added)
        rows.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(rows, 1)


def heads() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (normal(seed, 1, 12, 2, 16) for seed in range(3))
    return q, functional.normalize(k, dim=-1), v


def gates(*shape: int) -> Tensor:
    return functional.logsigmoid(normal(7, *shape))


def fla_linear() -> Pair:
    from fla.ops.linear_attn import fused_recurrent_linear_attn

    q, k, v = heads()
    return fused_recurrent_linear_attn(q, k, v, normalize=False)[0], recurrence(q, k, v)


def fla_gla() -> Pair:
    from fla.ops.gla import fused_recurrent_gla

    (q, k, v), g = heads(), gates(1, 12, 2, 16)
    return fused_recurrent_gla(q, k, v, gk=g)[0], recurrence(q, k, v, decay=g)


def fla_simple_gla() -> Pair:
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    (q, k, v), g = heads(), gates(1, 12, 2)
    return fused_recurrent_simple_gla(q, k, v, g=g)[0], recurrence(q, k, v, decay=g[..., None])


def fla_delta_rule() -> Pair:
    from fla.ops.delta_rule import fused_recurrent_delta_rule

    (q, k, v), beta = heads(), torch.sigmoid(normal(8, 1, 12, 2))
    return fused_recurrent_delta_rule(q, k, v, beta)[0], recurrence(q, k, v, beta=beta)


def fla_softmax() -> Pair:
    from fla.ops.utils import softmax_fwd

    return softmax_fwd(X()), X().softmax(-1)


def fla_logsumexp() -> Pair:
    from fla.ops.utils import logsumexp_fwd

    return logsumexp_fwd(X()), X().logsumexp(-1)


def fla_chunk_cumsum() -> Pair:
    from fla.ops.utils import chunk_local_cumsum

    x = normal(0, 1, 64, 2)
    return chunk_local_cumsum(x, chunk_size=32), torch.cat([x[:, :32].cumsum(1), x[:, 32:].cumsum(1)], 1)


def gems(name: str, *arguments: Any, reference: Callable[[Tensor], Tensor], like: Any = X) -> Callable[[], Pair]:
    def call() -> Pair:
        import flag_gems

        got = getattr(flag_gems, name)(like(), *(given() if callable(given) else given for given in arguments))
        return got, reference(like())

    return call


def target() -> Tensor:
    return Y().softmax(-1)


CLASSES = (3, 199, 0, 77, 140, 8)

KERNELS = (
    PackageKernel("sageattention", "sageattn", lambda: sage(causal=False), INT8, of_norm=True, in_ci=True),
    PackageKernel("sageattention", "sageattn causal", lambda: sage(causal=True), INT8, of_norm=True, in_ci=True),
    # Half a step of a 127th, and the fp32 division.
    PackageKernel("sageattention", "per_block_int8", sage_quantised, 0.51 / 127, in_ci=True),
    PackageKernel("sageattention", "sageattn d 128", lambda: sage(causal=False, d=128), INT8, of_norm=True),
    PackageKernel(
        "sageattention", "sageattn bf16", lambda: sage(causal=True, dtype=torch.bfloat16), INT8, of_norm=True
    ),
    PackageKernel(
        "liger-kernel", "rms_norm", liger("liger_rms_norm", lambda: (X(), ROW(), 1e-6), rms_norm), in_ci=True
    ),
    PackageKernel(
        "liger-kernel", "softmax", liger("liger_softmax", lambda: (X(),), lambda x: x.softmax(-1)), in_ci=True
    ),
    PackageKernel(
        "liger-kernel", "swiglu bf16",
        liger(
            "liger_swiglu", lambda: (X().bfloat16(), Y().bfloat16()),
            lambda a, b: functional.silu(a.float()) * b.float(),
        ),
        BF16, in_ci=True,
    ),
    PackageKernel(
        "liger-kernel", "cross_entropy",
        liger("liger_cross_entropy", lambda: (X(), torch.tensor(CLASSES, device="cuda")), functional.cross_entropy),
        in_ci=True,
    ),
    PackageKernel(
        "liger-kernel", "layer_norm",
        liger(
            "liger_layer_norm", lambda: (X(), ROW(), OTHER_ROW(), 1e-5),
            lambda x, w, b, eps: functional.layer_norm(x, (200,), w, b, eps),
        ),
    ),
    PackageKernel(
        "liger-kernel", "geglu bf16",
        liger(
            "liger_geglu", lambda: (X().bfloat16(), Y().bfloat16()),
            lambda a, b: functional.gelu(a.float(), approximate="tanh") * b.float(),
        ),
        BF16,
    ),
    PackageKernel(
        "liger-kernel", "kl_div",
        liger("liger_kl_div", lambda: (X().log_softmax(-1), target()), functional.kl_div),
    ),
    PackageKernel(
        "liger-kernel", "relu_squared", liger("liger_relu_squared", lambda: (X(),), lambda x: x.relu().square())
    ),
    PackageKernel("liger-kernel", "sparsemax", liger("liger_sparsemax", lambda: (X(),), sparsemax)),
    PackageKernel("liger-kernel", "rope", liger("liger_rope", rotary, rotated)),
    PackageKernel(
        "liger-kernel", "fused_add_rms_norm",
        liger(
            "liger_fused_add_rms_norm", lambda: (X(), Y(), ROW(), 1e-6),
            lambda x, residual, w, eps: rms_norm(x + residual, w, eps),
        ),
    ),
    PackageKernel("fla-core", "fused_recurrent_linear_attn", fla_linear, in_ci=True),
    PackageKernel("fla-core", "fused_recurrent_delta_rule", fla_delta_rule, in_ci=True),
    PackageKernel("fla-core", "fused_recurrent_gla", fla_gla),
    PackageKernel("fla-core", "fused_recurrent_simple_gla", fla_simple_gla),
    PackageKernel("fla-core", "softmax_fwd", fla_softmax),
    PackageKernel("fla-core", "logsumexp_fwd", fla_logsumexp),
    PackageKernel("fla-core", "chunk_local_cumsum", fla_chunk_cumsum),
    PackageKernel("flag_gems", "softmax", gems("softmax", -1, reference=lambda x: x.softmax(-1)), in_ci=True),
    PackageKernel("flag_gems", "sum", gems("sum", reference=torch.sum), in_ci=True),
    PackageKernel("flag_gems", "argmax", gems("argmax", 1, reference=lambda x: x.argmax(1)), tolerance=0, in_ci=True),
    PackageKernel("flag_gems", "cumsum", gems("cumsum", 1, reference=lambda x: x.cumsum(1))),
    PackageKernel("flag_gems", "amax", gems("amax", [1], reference=lambda x: x.amax(1)), tolerance=0),
    PackageKernel("flag_gems", "mean", gems("mean", reference=torch.mean)),
    PackageKernel("flag_gems", "prod", gems("prod", reference=torch.prod, like=lambda: 1 + X() / 40)),
    PackageKernel(
        "flag_gems", "rms_norm", gems("rms_norm", (200,), ROW, reference=lambda x: rms_norm(x, ROW(), 1e-5))
    ),
    PackageKernel("flag_gems", "exp", gems("exp", reference=torch.exp)),
)  # fmt: skip
