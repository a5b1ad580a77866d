"""What PyTorch does with tensors of cuda:0 it does with those of the virtual GPU: dispatch, autograd, refusals."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import weft.triton
from tests.triton.form_kernels import Pointer, double_up

pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture
def cuda() -> Iterator[weft.triton.Device]:
    with weft.triton.on("l4", cuda=True) as device:
        yield device


def doubled(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    double_up[(1,)](y, y.numel(), BLOCK=64)
    return y


def test_an_operator_registered_for_cuda_is_called(cuda: weft.triton.Device) -> None:
    library = torch.library.Library("weft_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", doubled, "CUDA")
    library.impl("twice", lambda x: x * 0, "CPU")
    x = torch.full((8,), 3.0, device="cuda")
    assert torch.ops.weft_test.twice(x).tolist() == [6] * 8
    assert torch.ops.weft_test.twice(x.cpu()).tolist() == [0] * 8
    assert cuda.launches == 1


def test_an_operator_without_a_kernel_for_cuda_is_refused() -> None:
    library = torch.library.Library("weft_test_cpu", "FRAGMENT")
    library.define("only(Tensor x) -> Tensor")
    library.impl("only", lambda x: x, "CPU")
    with pytest.raises(NotImplementedError, match="'CUDA' backend"):
        torch.ops.weft_test_cpu.only(torch.ones(2, device="cuda"))


def test_an_operator_of_pytorch_is_overridden(cuda: weft.triton.Device) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("silu", doubled, "CUDA", allow_override=True)
    try:
        x = torch.ones(8, device="cuda", requires_grad=True)
        assert torch.nn.functional.silu(x).tolist() == [2] * 8
        assert cuda.launches == 1
    finally:
        library._destroy()
    expected = torch.nn.functional.silu(torch.ones(8))
    assert torch.equal(torch.nn.functional.silu(torch.ones(8, device="cuda")).cpu(), expected)


def test_a_custom_operator_with_a_backward_pass(cuda: weft.triton.Device) -> None:
    @torch.library.custom_op("weft_test::double", mutates_args=(), device_types="cuda")
    def double(x: torch.Tensor) -> torch.Tensor:
        return doubled(x)

    double.register_autograd(lambda ctx, grad: torch.ops.weft_test.double(grad))
    x = torch.ones(8, device="cuda", requires_grad=True)
    double(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2] * 8
    assert cuda.launches == 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant: bool) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.ReLU()).cuda()
    x = torch.randn(3, 4, device="cuda", requires_grad=True)

    def gradient(*, recompute: bool) -> torch.Tensor:
        torch.manual_seed(0)
        y = checkpoint(layer, x, use_reentrant=reentrant) if recompute else layer(x)
        return torch.autograd.grad(y.square().sum(), x)[0] if not reentrant else through_backward(y)

    def through_backward(y: torch.Tensor) -> torch.Tensor:
        x.grad = None
        y.square().sum().backward()
        assert x.grad is not None
        return x.grad.clone()

    assert torch.equal(gradient(recompute=True), gradient(recompute=False))


def test_tensors_of_two_devices_are_refused() -> None:
    x, host = torch.ones(4, device="cuda"), torch.ones(4)
    for wrong in (
        lambda: x + host,
        lambda: x @ host,
        lambda: torch.cat([x, host]),
        lambda: torch.where(x > 0, x, host),
    ):
        with pytest.raises(RuntimeError, match="two devices"):
            wrong()
    assert (x + torch.tensor(2.0)).tolist() == [3] * 4
    with pytest.raises(TypeError, match="cuda:0"):
        x.numpy()


def test_host_tensors_are_refused_by_kernels() -> None:
    host = torch.ones(4)
    with pytest.raises(ValueError, match="cpu tensor"):
        double_up[(1,)](host, 4, BLOCK=4)
    with pytest.raises(ValueError, match="cpu tensor"):
        double_up[(1,)](Pointer(host.data_ptr()), 4, BLOCK=4)
    device = torch.ones(4, device="cuda")
    double_up[(1,)](Pointer(device.data_ptr()), 4, BLOCK=4)
    assert host.tolist() == [1] * 4 and device.tolist() == [2] * 4
    pinned = torch.ones(4).pin_memory()
    double_up[(1,)](pinned, 4, BLOCK=4)
    assert pinned.tolist() == [2] * 4


def test_threads_of_autograd_and_of_the_user() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return doubled(x)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            assert grads[0].is_cuda and torch.empty(1, device="cuda").is_cuda
            return doubled(grads[0].contiguous())

    found: list[list[float]] = []

    def work() -> None:
        x = torch.ones(8, device="cuda", requires_grad=True)
        Double.apply(x).sum().backward()
        assert x.grad is not None
        found.append(x.grad.tolist())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2.0] * 8] * 3


def test_a_small_model_is_trained() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(16, 8), torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    )
    copy = torch.nn.Sequential(
        torch.nn.Embedding(16, 8), torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    ).cuda()
    copy.load_state_dict(model.state_dict())
    tokens = torch.randint(0, 16, (2, 5))
    losses = []
    for net, given in ((model, tokens), (copy, tokens.cuda())):
        optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
        for _ in range(3):
            optimiser.zero_grad()
            loss = net(given).square().mean()
            loss.backward()
            optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_numbers_as_operands() -> None:
    host = torch.arange(6, dtype=torch.uint8)
    x = host.cuda()
    for function in (
        lambda t: t % 2,
        lambda t: t % 2.5,
        lambda t: 7 % (t + 1),
        lambda t: torch.fmod(t, 2),
        lambda t: t.half() % 3,
        lambda t: t & 3,
        lambda t: t.to(torch.int16) | 9,
        lambda t: torch.where(t > 1, t, 0),
        lambda t: t * 2.5,
    ):
        expected, found = function(host), function(x).cpu()
        assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("second", ["plain", "conjugated"])
@pytest.mark.parametrize("first", ["plain", "conjugated"])
def test_tensors_that_are_conjugated_when_they_are_read(first: str, second: str) -> None:
    """PyTorch hands these to some kernels (vdot, matmul) as they are, with a mark."""

    def results(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        a, b = (a.conj() if first == "conjugated" else a), (b.conj() if second == "conjugated" else b)
        negated = b.imag  # of a conjugated tensor: a view that is negated when it is read
        return [torch.vdot(a[0], b[0]), a @ b.T, a * b, negated @ negated.T, torch.empty_like(b).copy_(b), b.cpu()]

    x, y = torch.randn(2, 3, 4, dtype=torch.cfloat)
    for found, expected in zip(results(x.to("cuda"), y.to("cuda")), results(x, y), strict=True):
        torch.testing.assert_close(found.cpu(), expected)


def test_the_state_of_the_generator_is_seed_and_offset() -> None:
    (generator,) = torch.cuda.default_generators
    for _ in range(2):
        torch.manual_seed(77)
        seed, offset = generator.get_state().view(torch.int64)
        assert (int(seed), int(offset)) == (77, 0)
        state = generator.get_state()
        state.view(torch.int64)[1] += 12
        generator.set_state(state)
        assert generator.get_offset() == 12 and torch.equal(generator.get_state(), state)


def test_views_share_memory_and_outputs_grow() -> None:
    x = torch.arange(12.0, device="cuda").reshape(3, 4)
    x.t()[1:3].mul_(10)
    assert x[0].tolist() == [0, 10, 20, 3]
    assert x.view(torch.int32).dtype == torch.int32 and x.view(torch.int32).data_ptr() == x.data_ptr()
    out = torch.empty(0, device="cuda")
    torch.add(x, 1, out=out)
    assert out.shape == x.shape and out[0].tolist() == [1, 11, 21, 4]
    assert x.resize_(2, 2).shape == (2, 2) and x.resize_(5, 5).shape == (5, 5)
    assert x.unfold(0, 2, 1).shape == (4, 5, 2)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16


class Attention(torch.nn.Module):
    """A small block: normalisation, projections, attention, residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * 8**-0.5).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


def test_torch_compile_of_an_attention_block(cuda: weft.triton.Device) -> None:
    torch.manual_seed(0)
    block, copy = Attention(), Attention().cuda()
    copy.load_state_dict(block.state_dict())
    x = torch.randn(2, 9, 16, requires_grad=True)
    given = x.detach().cuda().requires_grad_()
    expected = block(x)
    expected.square().sum().backward()
    found = torch.compile(copy)(given)
    assert cuda.launches > 0
    torch.testing.assert_close(found.cpu(), expected)
    forward = cuda.launches
    found.square().sum().backward()
    assert cuda.launches > forward
    assert x.grad is not None and given.grad is not None
    torch.testing.assert_close(given.grad.cpu(), x.grad)
    for ours, theirs in zip(copy.parameters(), block.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, atol=1e-5, rtol=1e-4)
