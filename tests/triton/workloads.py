"""Typical Triton kernels, launched on CPU tensors, and PyTorch's results for comparison.

Every workload is made for a type and a factor: 1 is small enough for a test, more is for measuring. The module runs
under Triton's interpreter too (TRITON_INTERPRET=1), except autotuners, libdevice and inline assembly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch.nn import functional

from tests.kernels.triton_fp8_attention import flash_attention_fp8
from tests.kernels.triton_gemm_kernels import split_k_matmul, strided_matmul
from tests.kernels.triton_kernels import flash_attention, matmul, row_softmax, vector_add
from tests.kernels.triton_order_kernels import histogram, row_cumsum, sort_rows
from tests.kernels.triton_row_kernels import (
    column_sums,
    cross_entropy,
    dropout,
    group_norm,
    layer_norm,
    layer_norm_gradient,
)
from tests.triton.launch_kernels import (
    arc_sine,
    packed_matmul,
    paged_decode,
    rms_norm,
    scatter_sums,
    table_matmul,
    tuned_matmul,
)

TYPES = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn,
    "int32": torch.int32,
}  # fmt: skip
TOLERANCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2, "fp8": 6e-2, "int32": 0.0}
"""Absolute and relative: sums of some hundred terms of about 1, rounded to the type at the end."""

Tensor = Any


@dataclass(frozen=True)
class Case:
    """One launch sequence with its reference."""

    run: Callable[[], tuple[Tensor, ...]]
    expected: tuple[Tensor, ...]
    tolerance: float | None = None
    """Tolerance instead of the type's."""


@dataclass(frozen=True)
class Workload:
    """A kernel, called as by its users."""

    name: str
    types: tuple[str, ...]
    make: Callable[[str, int], Case]
    interpreted: bool = True
    """Whether Triton's interpreter can run it."""

    def wrong(self, case: Case, got: tuple[Tensor, ...], dtype: str) -> str:
        """Return what differs from the reference, or an empty string."""
        tolerance = TOLERANCE[dtype] if case.tolerance is None else case.tolerance
        for number, (ours, theirs) in enumerate(zip(got, case.expected, strict=True)):
            a, b = ours.double(), theirs.double()
            if a.shape != b.shape:
                return f"output {number}: shape {tuple(a.shape)}, should be {tuple(b.shape)}"
            if not torch.allclose(a, b, rtol=tolerance, atol=tolerance):
                return f"output {number}: off by {(a - b).abs().max().item():.3g} of {b.abs().max().item():.3g}"
        return ""


def _normal(seed: int, *shape: int, dtype: str = "fp32") -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(TYPES[dtype])


def _vector_add(dtype: str, factor: int) -> Case:
    n = 3000 * factor
    x, y = _normal(0, n, dtype=dtype), _normal(1, n, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        out = torch.empty_like(x)
        vector_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
        return (out,)

    return Case(run, (x + y,))


def _softmax(dtype: str, factor: int) -> Case:
    x = _normal(2, 24 * factor, 200, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        out = torch.empty_like(x)
        row_softmax[(8 * factor,)](x, out, *x.shape, BLOCK=256, num_warps=2)
        return (out,)

    return Case(run, (torch.softmax(x.double(), dim=1),))


def _matmul(dtype: str, factor: int, *, kernel: Any = matmul) -> Case:
    m, n, k = 96, 80 * factor, 72
    a, b = _normal(3, m, k, dtype=dtype), _normal(4, k, n, dtype=dtype) * k**-0.5

    def run() -> tuple[Tensor, ...]:
        c = torch.empty(m, n, dtype=a.dtype)
        if kernel is matmul:
            kernel[(triton.cdiv(m, 32) * triton.cdiv(n, 32),)](
                a, b, c, m, n, k, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, GROUP_M=4, num_warps=2, num_stages=2
            )
        else:
            kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](a, b, c, m, n, k)
        return (c,)

    return Case(run, (a.double() @ b.double(),), 3e-3 if dtype == "fp32" else None)  # tf32 has 11 bits


def _fp8_matmul(dtype: str, factor: int) -> Case:
    m, n, k = 64, 64 * factor, 96
    a, b = _normal(5, m, k, dtype=dtype), _normal(6, n, k, dtype=dtype).t()

    def run() -> tuple[Tensor, ...]:
        c = torch.empty(m, n)
        strided_matmul[(2, triton.cdiv(n, 32))](
            a,
            b,
            c,
            m,
            n,
            k,
            *a.stride(),
            *b.stride(),
            *c.stride(),
            BLOCK_M=32,
            BLOCK_N=32,
            BLOCK_K=32,
            PRECISION="ieee",
        )
        return (c,)

    return Case(run, (a.double() @ b.double(),), 2e-2)  # fp8 tensor cores add with 13 bits or so


def _split_k(dtype: str, factor: int) -> Case:
    m, n, k = 48, 40 * factor, 160
    a, b = _normal(7, m, k, dtype=dtype), _normal(8, k, n, dtype=dtype) * k**-0.5

    def run() -> tuple[Tensor, ...]:
        c = torch.zeros(m, n)
        tiles = triton.cdiv(m, 32) * triton.cdiv(n, 32)
        split_k_matmul[(tiles, 3)](a, b, c, m, n, k, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, SPLITS=3, num_warps=2)
        return (c,)

    return Case(run, (a.double() @ b.double(),), 3e-3 if dtype == "fp32" else 1e-3)


def _dropout(dtype: str, factor: int) -> Case:
    n, p = 2000 * factor, 0.25
    x, residual = _normal(9, n, dtype=dtype), _normal(10, n, dtype=dtype)

    def once() -> Tensor:
        out = torch.empty_like(x)
        dropout[(triton.cdiv(n, 512),)](x, residual, out, n, p, 123, BLOCK=512)
        return out

    def run() -> tuple[Tensor, ...]:
        out = once()
        ones, none = torch.ones_like(x), torch.zeros_like(x)
        mask = torch.empty_like(x)
        dropout[(triton.cdiv(n, 512),)](ones, none, mask, n, p, 123, BLOCK=512)
        kept = mask != 0
        again = residual.double() + torch.where(kept, x.double() / (1 - p), 0.0)
        share = (kept.double().mean() - (1 - p)).abs() < 0.05  # 2000 draws: 0.01 is one standard deviation
        return (out.double() - again, share)

    return Case(run, (torch.zeros(n), torch.tensor(True)))


def _layer_norm(dtype: str, factor: int) -> Case:
    rows, n = 16 * factor, 100
    x, weight, bias = _normal(11, rows, n, dtype=dtype), _normal(12, n, dtype=dtype), _normal(13, n, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        y, mean, rstd = torch.empty_like(x), torch.empty(rows), torch.empty(rows)
        layer_norm[(rows,)](x, weight, bias, y, mean, rstd, n, 1e-5, BLOCK=128)
        return (y,)

    return Case(run, (functional.layer_norm(x.double(), (n,), weight.double(), bias.double(), 1e-5),))


def _layer_norm_backward(dtype: str, factor: int) -> Case:
    rows, n, groups = 16 * factor, 100, 4
    x, weight, dy = _normal(14, rows, n, dtype=dtype), _normal(15, n, dtype=dtype), _normal(16, rows, n, dtype=dtype)
    leaves = [each.double().requires_grad_() for each in (x, weight, torch.zeros(n))]
    functional.layer_norm(leaves[0], (n,), leaves[1], leaves[2], 1e-5).backward(dy.double())

    def run() -> tuple[Tensor, ...]:
        y, mean, rstd, dx = torch.empty_like(x), torch.empty(rows), torch.empty(rows), torch.empty_like(x)
        bias, locks = torch.zeros(n, dtype=x.dtype), torch.zeros(2 * groups, dtype=torch.int32)
        parts, sums = torch.zeros(2, groups, n), torch.empty(2, n)
        layer_norm[(rows,)](x, weight, bias, y, mean, rstd, n, 1e-5, BLOCK=128)
        layer_norm_gradient[(rows,)](
            x, weight, dy, mean, rstd, dx, parts[0], parts[1], locks, n, BLOCK=128, GROUPS=groups
        )
        for part, total in zip(parts, sums, strict=True):
            column_sums[(triton.cdiv(n, 64),)](part, total, groups, n, BLOCK_M=4, BLOCK_N=64)
        return (dx, *sums)

    return Case(run, tuple(leaf.grad for leaf in leaves), 5e-5 if dtype == "fp32" else None)


def _attention(dtype: str, factor: int, *, causal: bool) -> Case:
    h, s, d = 2 * factor, 112, 32
    q, k, v = (_normal(17 + i, h, s, d, dtype=dtype) for i in range(3))

    def run() -> tuple[Tensor, ...]:
        o, lse = torch.empty_like(q), torch.empty(h, s)
        flash_attention[(triton.cdiv(s, 64), h)](
            q, k, v, o, lse, s, d**-0.5, D=d, BLOCK_M=64, BLOCK_N=32, CAUSAL=causal, num_stages=2
        )
        return (o,)

    expected = functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    return Case(run, (expected,), 3e-3 if dtype == "fp32" else None)


def _fp8_attention(dtype: str, factor: int) -> Case:
    h, s, d = 2 * factor, 96, 32
    q, k, v = (_normal(20 + i, h, s, d, dtype=dtype) for i in range(3))
    v_t = v.transpose(1, 2).contiguous()

    def run() -> tuple[Tensor, ...]:
        o = torch.empty(h, s, d)
        flash_attention_fp8[(triton.cdiv(s, 32), h)](
            q, k, v_t, o, s, 1.0, 1.0, 1.0, d**-0.5, D=d, BLOCK_M=32, BLOCK_N=32, CAUSAL=True
        )
        return (o,)

    return Case(run, (functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True),))


def _table_matmul(dtype: str, factor: int) -> Case:
    shapes = [(64, 48, 32), (33, 40, 64), (96, 32, 48 * factor)]
    a = [_normal(30 + i, m, k, dtype=dtype) for i, (m, _, k) in enumerate(shapes)]
    b = [_normal(40 + i, k, n, dtype=dtype) * k**-0.5 for i, (_, n, k) in enumerate(shapes)]

    def run() -> tuple[Tensor, ...]:
        c = [torch.empty(m, n, dtype=a[0].dtype) for m, n, _ in shapes]
        tables = [torch.tensor([each.data_ptr() for each in group]) for group in (a, b, c)]
        sizes = torch.tensor(shapes, dtype=torch.int32)
        table_matmul[(4,)](*tables, sizes, len(shapes), BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, num_warps=2)
        return tuple(c)

    return Case(run, tuple(x.double() @ y.double() for x, y in zip(a, b, strict=True)))


def _arc_sine(dtype: str, factor: int) -> Case:
    n = 1500 * factor
    x = torch.rand(n, generator=torch.Generator().manual_seed(50)) * 2 - 1

    def run() -> tuple[Tensor, ...]:
        y = torch.empty_like(x)
        arc_sine[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        return (y,)

    return Case(run, (torch.asin(x.double()),), 1e-6)


def _paged_decode(dtype: str, factor: int) -> Case:
    sequences, kv_heads, group, d, page, most = 2 * factor, 2, 4, 32, 16, 5
    generator = torch.Generator().manual_seed(60)
    pages = torch.randperm(sequences * most, generator=generator).reshape(sequences, most).int()
    lengths = torch.randint(1, most * page + 1, (sequences,), generator=generator, dtype=torch.int32)
    q = _normal(61, sequences, kv_heads * group, d, dtype=dtype)
    k, v = (_normal(62 + i, sequences * most, page, kv_heads, d, dtype=dtype) for i in range(2))

    def run() -> tuple[Tensor, ...]:
        o = torch.empty_like(q)
        paged_decode[(sequences, kv_heads)](
            q, k, v, pages, lengths, o, d**-0.5, most, HEADS=kv_heads, GROUP=group, D=d, PAGE=page, num_warps=2
        )
        return (o,)

    rows = []
    for number, length in enumerate(lengths.tolist()):
        keys, values = (each[pages[number].long()].flatten(0, 1)[:length].double() for each in (k, v))
        each = [
            functional.scaled_dot_product_attention(
                q[number, i : i + 1].double(), keys[:, i // group], values[:, i // group]
            )
            for i in range(kv_heads * group)
        ]
        rows.append(torch.cat(each))
    return Case(run, (torch.stack(rows),))


def _rms_norm(dtype: str, factor: int) -> Case:
    rows, n = 12 * factor, 120
    x, weight = _normal(70, rows, 2 * n, dtype=dtype)[:, :n], _normal(71, n, dtype=dtype)  # rows with a stride

    def run() -> tuple[Tensor, ...]:
        y = torch.empty(rows, n, dtype=x.dtype)
        rms_norm[(rows,)](x, weight, y, x.stride(0), n, 1e-6, BLOCK=128, num_warps=1)
        return (y,)

    return Case(run, (functional.rms_norm(x.double(), (n,), weight.double(), 1e-6),))


def _cumsum(dtype: str, factor: int) -> Case:
    x = _normal(80, 6 * factor, 300, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        out = torch.empty_like(x, dtype=torch.float32)
        row_cumsum[(len(x),)](x, out, x.shape[1], BLOCK=128, REVERSE=False)
        return (out,)

    return Case(run, (x.double().cumsum(1),), 5e-5)


def _histogram(dtype: str, factor: int) -> Case:
    x = torch.randint(0, 64, (2000 * factor,), generator=torch.Generator().manual_seed(90), dtype=torch.int32)

    def run() -> tuple[Tensor, ...]:
        counts = torch.zeros(64, dtype=torch.int32)
        histogram[(triton.cdiv(len(x), 256),)](x, counts, len(x), BLOCK=256, BINS=64)
        return (counts,)

    return Case(run, (torch.bincount(x, minlength=64),))


def _scatter_sums(dtype: str, factor: int) -> Case:
    n = 600 * factor
    x = _normal(91, n)
    bucket = torch.randint(0, 8, (n,), generator=torch.Generator().manual_seed(92), dtype=torch.int32)

    def run() -> tuple[Tensor, ...]:
        sums = torch.zeros(8)
        scatter_sums[(triton.cdiv(n, 128),)](x, bucket, sums, n, BLOCK=128)
        return (sums,)

    return Case(run, (torch.zeros(8, dtype=torch.float64).index_add_(0, bucket.long(), x.double()),), 1e-4)


def _packed_matmul(dtype: str, factor: int) -> Case:
    m, n, k = 32, 64 * factor, 64
    x = _normal(100, m, k, dtype=dtype)
    w = torch.randint(-128, 128, (n, k), generator=torch.Generator().manual_seed(101), dtype=torch.int8)
    packed, scale = w.view(torch.int32), _normal(102, n, dtype=dtype).abs() / 500

    def run() -> tuple[Tensor, ...]:
        out = torch.empty(m, n, dtype=x.dtype)
        packed_matmul[(1, triton.cdiv(n, 32))](x, packed, scale, out, m, n, k, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
        return (out,)

    return Case(run, (x.double() @ (w.double() * scale.double()[:, None]).t(),))


def _sort(dtype: str, factor: int) -> Case:
    x = _normal(110, 8 * factor, 60, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        out = torch.empty_like(x)
        sort_rows[(2 * factor,)](x, out, 60, BLOCK_M=4, BLOCK_N=64, DESCENDING=False, num_warps=2)
        return (out,)

    return Case(run, (x.sort(dim=1).values,))


def _group_norm(dtype: str, factor: int) -> Case:
    x = _normal(120, 10 * factor, 90, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        y = torch.empty_like(x)
        group_norm[(len(x),)](x, y, 90, 1e-5, BLOCK=128, num_warps=1)
        return (y,)

    return Case(run, (functional.layer_norm(x.double(), (90,)),))


def _cross_entropy(dtype: str, factor: int) -> Case:
    rows, v = 8 * factor, 90
    logits = _normal(130, rows, v, dtype=dtype)
    target = torch.randint(0, v, (rows,), generator=torch.Generator().manual_seed(131), dtype=torch.int32)
    leaf = logits.double().requires_grad_()
    loss = functional.cross_entropy(leaf, target.long(), reduction="none")
    loss.sum().backward()

    def run() -> tuple[Tensor, ...]:
        losses, best, gradient = torch.empty(rows), torch.empty(rows, dtype=torch.int32), torch.empty_like(logits)
        cross_entropy[(rows,)](logits, target, losses, best, gradient, v, -100, BLOCK=128, num_warps=2)
        return losses, best, gradient

    return Case(run, (loss.detach(), logits.argmax(1), leaf.grad))


FLOATS = ("fp32", "fp16", "bf16")
WORKLOADS = (
    Workload("vector_add", FLOATS, _vector_add),
    Workload("softmax", FLOATS, _softmax),
    Workload("matmul", FLOATS, _matmul),
    Workload("matmul_autotuned", ("fp16",), lambda t, f: _matmul(t, f, kernel=tuned_matmul), interpreted=False),
    Workload("matmul_strided", ("fp8",), _fp8_matmul),
    Workload("matmul_split_k", ("fp16",), _split_k),
    Workload("dropout", ("fp32", "fp16"), _dropout),
    Workload("layer_norm", FLOATS, _layer_norm),
    Workload("layer_norm_backward", ("fp32", "fp16"), _layer_norm_backward),
    Workload("attention", FLOATS, lambda t, f: _attention(t, f, causal=False)),
    Workload("attention_causal", ("fp16", "bf16"), lambda t, f: _attention(t, f, causal=True)),
    Workload("attention_fp8", ("fp8",), _fp8_attention),
    Workload("grouped_gemm", ("fp16",), _table_matmul),
    Workload("asin", ("fp32",), _arc_sine, interpreted=False),
    Workload("paged_decode", ("fp16", "bf16"), _paged_decode),
    Workload("rms_norm", FLOATS, _rms_norm),
    Workload("cumsum", ("fp32", "fp16"), _cumsum),
    Workload("histogram", ("int32",), _histogram),
    Workload("scatter_sums", ("fp32",), _scatter_sums),
    Workload("matmul_dequantised", ("fp16", "bf16"), _packed_matmul, interpreted=False),
    Workload("sort", ("fp32",), _sort),
    Workload("group_norm", ("fp32", "bf16"), _group_norm),
    Workload("cross_entropy", ("fp32", "fp16"), _cross_entropy),
)
