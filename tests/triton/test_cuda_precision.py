"""Operators on cuda:0 with all checkers: 16-bit sums are rounded once, as on CUDA; torch.compile and flex_attention."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

import weft.triton

pytestmark = pytest.mark.usefixtures("cuda")
KINDS = [torch.float16, torch.bfloat16]
ROWS = 1024


@pytest.fixture
def cuda() -> Iterator[weft.triton.Device]:
    with weft.triton.on("l4", cuda=True, check=True) as device:
        yield device


def drawn(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0))


def layer_norm(weight: torch.Tensor) -> torch.Tensor:
    x = drawn(ROWS, len(weight)).to(weight.dtype)
    return functional.layer_norm(x.to(weight.device), weight.shape, weight)


def group_norm(weight: torch.Tensor) -> torch.Tensor:
    x = drawn(16, len(weight), 64).to(weight.dtype)
    return functional.group_norm(x.to(weight.device), 4, weight)


def embedding(weight: torch.Tensor) -> torch.Tensor:
    return functional.embedding(torch.zeros(ROWS, dtype=torch.int64, device=weight.device), weight[None])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", [layer_norm, group_norm, embedding])
def test_gradients_are_rounded_once(function: Callable[[torch.Tensor], torch.Tensor], kind: torch.dtype) -> None:
    gradients = []
    for device, wide in (("cuda", kind), ("cpu", torch.float64)):
        weight = drawn(32).to(kind).to(device, wide).requires_grad_()
        out = function(weight)
        out.backward(drawn(*out.shape).to(kind).to(device, wide))
        assert weight.grad is not None and weight.grad.dtype == wide
        gradients.append(weight.grad.cpu().double())
    unit = torch.finfo(kind).eps
    torch.testing.assert_close(gradients[0], gradients[1], rtol=unit, atol=unit * gradients[1].abs().max().item() / 8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_rounded_once(kind: torch.dtype) -> None:
    x = drawn(512).to(kind)
    factors = (1 + x.double() / 64).to(kind)
    rounded = factors.double().prod()
    found = factors.cuda().prod()
    assert found.dtype == kind
    assert found.item() == pytest.approx(rounded.item(), rel=torch.finfo(kind).eps)


def test_a_layer_norm_keeps_its_statistics_in_float32() -> None:
    x = (100 + drawn(8, 32)).bfloat16()
    normed, mean, deviation = torch.native_layer_norm(x.cuda(), (32,), None, None, 1e-5)
    assert [each.dtype for each in (normed, mean, deviation)] == [torch.bfloat16, torch.float32, torch.float32]
    torch.testing.assert_close(mean.cpu().double(), x.double().mean(-1, keepdim=True), rtol=1e-6, atol=0)


def test_the_gradient_of_a_wide_weight_stays_wide() -> None:
    x = drawn(8, 32).bfloat16().cuda()
    results = torch.ops.aten.native_layer_norm_backward(
        x, x, [32], torch.zeros(8, 1, device="cuda"), torch.ones(8, 1, device="cuda"), torch.ones(32, device="cuda"),
        torch.zeros(32, device="cuda"), [True, True, True],
    )  # fmt: skip
    assert [each.dtype for each in results] == [torch.bfloat16, torch.float32, torch.float32]


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm"])
def test_products_with_a_wider_result(name: str) -> None:
    batch = (2,) if name.startswith("b") else ()
    factors = [drawn(*batch, 16, 64).bfloat16(), drawn(*batch, 64, 8).bfloat16()]
    start = [drawn(*batch, 16, 8)] if "add" in name else []
    exact = getattr(torch, name)(*(each.double() for each in [*start, *factors]))
    given = [each.cuda() for each in [*start, *factors]]
    found = getattr(torch, name)(*given, out_dtype=torch.float32)
    assert found.is_cuda and found.dtype == torch.float32
    torch.testing.assert_close(found.cpu().double(), exact, rtol=1e-5, atol=1e-5)
    written = torch.empty_like(found)
    getattr(torch, name)(*given, out_dtype=torch.float32, out=written)
    assert torch.equal(written, found)
    with pytest.raises(RuntimeError, match="out_dtype"):
        getattr(torch, name)(*given, out_dtype=torch.float16)


def test_flex_attention_runs_under_initcheck() -> None:
    q, k, v = (drawn(1, 2, 16, 16).cuda() for _ in range(3))
    found = flex_attention(q, k, v)
    torch.testing.assert_close(found.cpu(), functional.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu()))


def test_torch_compile_makes_kernels_under_initcheck(cuda: weft.triton.Device) -> None:
    x = drawn(8, 32)
    found = torch.compile(lambda x: (x.sin() + 1).sum(-1))(x.cuda())
    assert cuda.launches > 0, "PyTorch compiles nothing under a mode that it does not know"
    torch.testing.assert_close(found.cpu(), (x.sin() + 1).sum(-1))


def test_the_gradient_of_a_dilated_convolution() -> None:
    gradients = []
    for device in ("cuda", "cpu"):
        x, weight = (drawn(*size).to(device).requires_grad_() for size in ((2, 3, 9, 9), (4, 3, 3, 3)))
        functional.conv2d(x, weight, dilation=2).sum().backward()
        gradients.append([each.grad.cpu() for each in (x, weight) if each.grad is not None])
    torch.testing.assert_close(gradients[0], gradients[1])
