"""Workloads with tensor descriptors: attention, matmul, reduction, gather, compared with PyTorch on the CPU."""

from typing import Any

import torch
import triton
from torch.nn import functional
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.triton.descriptor_kernels import (
    attention_device,
    attention_host,
    double_boxes,
    gather_rows,
    matmul_host,
    matmul_persistent,
    reduce_tiles,
)
from tests.triton.workloads import TYPES, Case, Workload, _normal

LOG2_E = 1.4426950408889634
Tensor = Any


def allocate_scratch() -> None:
    """Give kernels that make descriptors their scratch memory."""
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))


def _heads(dtype: str, factor: int) -> tuple[Tensor, Tensor, Tensor]:
    shape = (2, 96 * factor, 64)
    return _normal(1, *shape, dtype=dtype), _normal(2, *shape, dtype=dtype), _normal(3, *shape, dtype=dtype)


def _attention(dtype: str, factor: int, *, causal: bool, how: str) -> Case:
    q, k, v = _heads(dtype, factor)
    heads, length, d = q.shape
    scale = d**-0.5

    def run() -> tuple[Tensor, ...]:
        o = torch.empty_like(q)
        grid = (triton.cdiv(length, 64), heads)
        if how == "host":
            boxes = [TensorDescriptor.from_tensor(each, [1, 64, d]) for each in (q, k, v, o)]
            attention_host[grid](*boxes, length, scale * LOG2_E, 64, 64, d, causal)
        else:
            allocate_scratch()
            specialise = how == "specialised"
            attention_device[grid](
                q, k, v, o, heads, length, scale * LOG2_E, 64, 64, d, causal, specialise, num_warps=4, num_stages=2
            )
        return (o,)

    wide = [each.float() for each in (q, k, v)]
    return Case(run, (functional.scaled_dot_product_attention(*wide, is_causal=causal).to(q.dtype),))


def _matmul(dtype: str, factor: int, *, how: str) -> Case:
    m, n, k = 128 * factor + 40, 128, 128
    a, b = _normal(1, m, k, dtype=dtype), _normal(2, n, k, dtype=dtype)
    kept = "fp16" if dtype == "fp8" else dtype
    expected = (a.float() @ b.float().T).to(TYPES[kept])

    def run() -> tuple[Tensor, ...]:
        c = torch.empty(m, n, dtype=TYPES[kept])
        if how == "host":
            boxes = [TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, c)]
            matmul_host[(triton.cdiv(m, 64), n // 64)](*boxes, k, 64, 64, 64)
        else:
            allocate_scratch()
            matmul_persistent[(2,)](a, b, c, m, n, k, 64, 64, 64, 2, how == "specialised", num_warps=4)
        return (c,)

    return Case(run, (expected,), tolerance=6e-2 if dtype in ("fp8", "bf16") else 2e-2)


def _reduce(dtype: str, factor: int) -> Case:
    x = torch.randint(-4, 5, (128 * factor, 64), generator=torch.Generator().manual_seed(4)).to(TYPES[dtype])

    def run() -> tuple[Tensor, ...]:
        y = torch.ones(40, 64, dtype=TYPES[dtype])
        boxes = [TensorDescriptor.from_tensor(each, [32, 64]) for each in (x, y)]
        reduce_tiles[(len(x) // 32,)](*boxes, 32, 64)
        return (y,)

    expected = torch.ones(40, 64)
    expected[:32] += x.float().reshape(-1, 32, 64).sum(0)
    return Case(run, (expected.to(TYPES[dtype]),), tolerance=0.0)


def _gather(dtype: str, factor: int) -> Case:
    x = _normal(5, 100, 64, dtype=dtype)
    rows = torch.randint(0, 100, (32,), generator=torch.Generator().manual_seed(6), dtype=torch.int32)

    def run() -> tuple[Tensor, ...]:
        y = torch.empty(32, 64, dtype=TYPES[dtype])
        source = TensorDescriptor.from_tensor(x, [1, 64])
        gather_rows[(1,)](source, rows, TensorDescriptor.from_tensor(y, [32, 64]), 32, 64)
        return (y,)

    return Case(run, (x[rows.long()],), tolerance=0.0)


def _boxes(dtype: str, factor: int) -> Case:
    x = _normal(7, 3, 20, 48, dtype=dtype)

    def run() -> tuple[Tensor, ...]:
        y = torch.zeros_like(x)
        boxes = [TensorDescriptor.from_tensor(each, [2, 16, 32]) for each in (x, y)]
        double_boxes[(2, 2, 2)](*boxes, 2, 16, 32)
        return (y,)

    return Case(run, (2 * x,), tolerance=0.0)


DESCRIPTORS = (
    Workload("attention_host", ("fp16", "bf16"), lambda t, f: _attention(t, f, causal=False, how="host")),
    Workload("attention_host_causal", ("fp16",), lambda t, f: _attention(t, f, causal=True, how="host")),
    Workload("attention_device", ("fp16", "bf16"), lambda t, f: _attention(t, f, causal=False, how="device")),
    Workload("attention_specialised", ("fp16",), lambda t, f: _attention(t, f, causal=False, how="specialised")),
    Workload("matmul_host", ("fp16", "bf16", "fp8"), lambda t, f: _matmul(t, f, how="host")),
    Workload("matmul_persistent", ("fp16",), lambda t, f: _matmul(t, f, how="device")),
    Workload("matmul_specialised", ("fp16",), lambda t, f: _matmul(t, f, how="specialised")),
    Workload("reduce", ("fp16", "fp32"), _reduce),
    Workload("boxes", ("fp16",), _boxes),
    Workload("gather", ("fp16",), _gather),
)
"""`gather` needs sm_100 or later."""
