"""`cuda=True` and `weft triton`: PyTorch has the device cuda:0, and everything is undone afterwards."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from torch.utils._triton import has_triton

import weft.triton
from tests.triton.form_kernels import double_up
from weft.cli.main import main
from weft.core.errors import Unsupported

CUDA = torch.device("cuda", 0)


@pytest.fixture
def cuda() -> Iterator[None]:
    with weft.triton.on("l4", cuda=True):
        yield


def test_pytorch_asks_again_whether_triton_works() -> None:
    """Its answer is cached; the first may be from before there was a device."""
    importlib.import_module("torch._inductor.config")
    assert not has_triton()
    with weft.triton.on("l4", cuda=True):
        assert has_triton()
    assert not has_triton()


@pytest.mark.usefixtures("cuda")
def test_factories_and_moves() -> None:
    made = [
        torch.randn(4, device="cuda"),
        torch.zeros(4, device=CUDA),
        torch.ones(4).cuda(),
        torch.ones(4).to("cuda:0"),
        torch.tensor([1.0], device=0),
        torch.ones(4).to(CUDA, torch.float16),
        torch.empty(4, device="cuda").half(),
    ]
    made += [torch.empty_like(made[0]), made[0] + 1, made[0].new_zeros(3), made[0].view(2, 2)[0]]
    assert all(each.is_cuda and each.device == CUDA and each.get_device() == 0 for each in made)
    assert made[5].dtype == made[6].dtype == torch.float16
    hosts = [torch.ones(4), made[0].cpu(), torch.ones(4) * 2, made[0].to("cpu"), torch.ones(4, device="cpu")]
    assert not any(each.is_cuda or each.device.type == "cuda" for each in hosts)


@pytest.mark.usefixtures("cuda")
def test_a_move_to_another_device_copies_and_to_the_same_does_not() -> None:
    host = torch.ones(4)
    device = host.cuda()
    device.zero_()
    back = device.cpu()
    device.add_(5)
    assert host.tolist() == [1] * 4
    assert back.tolist() == [0] * 4
    assert device.to("cuda").data_ptr() == device.cuda().data_ptr() == device.data_ptr()
    assert device.to(torch.float32) is device
    assert host.to("cpu") is host
    assert device.to("cuda", copy=True).data_ptr() != device.data_ptr()


@pytest.mark.usefixtures("cuda")
def test_modules_generators_and_default_devices() -> None:
    layer = torch.nn.Linear(4, 2).to("cuda")
    with torch.device("cuda"):
        x = torch.ones(3, 4)
    assert x.is_cuda and layer(x).is_cuda and not torch.ones(1).is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.ones(1).is_cuda
    finally:
        torch.set_default_device(None)
    assert not torch.ones(1).is_cuda
    draws = [torch.randn(4, device="cuda", generator=torch.Generator("cuda").manual_seed(3)) for _ in range(2)]
    assert torch.equal(*draws)
    torch.cuda.manual_seed(5)
    first = torch.randn(2, device="cuda")
    torch.cuda.manual_seed_all(5)
    assert torch.equal(first, torch.randn(2, device="cuda"))


@pytest.mark.usefixtures("cuda")
def test_a_function_with_a_backward_pass() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return launch(x)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return launch(grads[0])

    def launch(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda
        y = x.contiguous().clone()
        double_up[(1,)](y, y.numel(), BLOCK=16)
        return y

    x = torch.ones(10, device="cuda", requires_grad=True)
    y = Double.apply(x)
    (y * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6] * 10


@pytest.mark.usefixtures("cuda")
def test_torch_cuda_describes_the_chip() -> None:
    facts = torch.cuda.get_device_properties(0)
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.cuda.get_device_capability() == (8, 9) == (facts.major, facts.minor)
    assert facts.multi_processor_count == 58
    assert triton.runtime.driver.active.get_active_torch_device() == CUDA
    assert triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 58
    x = torch.ones(256, device="cuda")
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        begin.record()
        double_up[(1,)](x, 256, BLOCK=256)
        end.record()
    torch.cuda.synchronize()
    assert 0 < begin.elapsed_time(end) < 1
    assert x.sum().item() == 512
    for name in ("CUDAGraph", "graph", "Stream", "ExternalStream", "Event", "device", "device_of", "StreamContext"):
        assert isinstance(getattr(torch.cuda, name), type), name
    with pytest.raises(Unsupported, match="CUDAGraph"):
        torch.cuda.CUDAGraph()


def test_everything_is_undone_afterwards() -> None:
    before = dict(vars(torch.cuda))
    with weft.triton.on("l4", cuda=True):
        kept = torch.ones(4, device="cuda")
    assert vars(torch.cuda) == before
    assert torch.accelerator.current_accelerator() is None
    assert kept.device == CUDA
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2] * 3
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(4, device="cuda")


SCRIPT = """
import sys
import torch, triton, triton.language as tl

@triton.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)

def main(size, claimed):
    x = torch.zeros(size, device="cuda")
    increment[(triton.cdiv(claimed, 64),)](x, claimed, BLOCK=64)
    assert (x == 1).all(), "not all"
    print(__name__, x.device, int(x.sum()))

main(int(sys.argv[1]), int(sys.argv[2]))
"""


def run_script(folder: Path, *args: str) -> int:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return main(["triton", *args[:-2], str(script), *args[-2:]])


@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx5090"])
def test_a_script(gpu: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_script(tmp_path, "--gpu", gpu, "100", "100") == 0
    assert capfd.readouterr().out == "__main__ cuda:0 100\n"


def test_a_script_with_findings(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_script(tmp_path, "--check", "100", "110") == 1
    seen = capfd.readouterr().err
    assert f"{tmp_path}/script.py:12: launch of increment" in seen
    assert "M101" in seen and f"{tmp_path}/script.py:8" in seen


def test_a_script_that_raises(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_script(tmp_path, "100", "90") == 1
    seen = capfd.readouterr().err
    assert seen.rstrip().endswith("AssertionError: not all")
    assert "runpy" not in seen


def test_a_missing_script_or_unknown_chip_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["triton", str(tmp_path / "none.py")]) == 2
    assert run_script(tmp_path, "--gpu", "nothing", "1", "1") == 2
    assert "known are a100" in capfd.readouterr().err
