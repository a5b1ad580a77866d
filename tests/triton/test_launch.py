"""Launches in all forms that Triton supports: arguments, grids and hooks."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime import driver as configured
from triton.tools.tensor_descriptor import TensorDescriptor

import weft.triton
from tests.triton import form_kernels as kernels
from weft.core.errors import LaunchError, UsageError


@pytest.fixture(autouse=True)
def _device() -> Iterator[Any]:
    with weft.triton.on("l4") as device:
        yield device


def test_scalars_of_every_type() -> None:
    out = torch.zeros(8, dtype=torch.float64)
    kernels.scalars[(1,)](out, -7, 1, 0.1, True, 1 << 40, 0.1, 0.1, 0.1)
    single, half, brain = (torch.tensor(0.1, dtype=kind).item() for kind in (torch.float32, torch.half, torch.bfloat16))
    assert out.tolist() == [-7, 1, single, 1, float(1 << 40), half, brain, 0.1]


def test_a_float_too_large_for_its_type_is_infinite() -> None:
    out = torch.zeros(8, dtype=torch.float64)
    kernels.scalars[(1,)](out, 2, 1, 1e300, False, 1 << 40, 1e6, 1.0, 1e300)
    assert out.tolist()[2:] == [float("inf"), 0, float(1 << 40), float("inf"), 1, 1e300]


def test_none_is_a_constant() -> None:
    x, bias, out = torch.randn(20), torch.randn(20), torch.empty(20)
    kernels.maybe_bias[(1,)](x, None, out, 20, BLOCK=32)
    assert torch.equal(out, x)
    kernels.maybe_bias[(1,)](x, bias, out, 20, BLOCK=32)
    assert torch.equal(out, x + bias)


def test_tuples() -> None:
    x, y, out = torch.randn(40), torch.randn(20), torch.empty(20)
    kernels.add_pair[(1,)]((x, y), out, (20, (2, triton.language.constexpr(3))), BLOCK=32)
    assert torch.equal(out, x[::2] + y)


@pytest.mark.parametrize("view", ["transposed", "offset", "expanded", "whole"])
def test_views(view: str) -> None:
    base = torch.randn(12, 24)
    x = {
        "transposed": base.t()[:12, :12],
        "offset": base[3:9, 5:17],
        "expanded": base[0, :1].expand(6, 10),
        "whole": base,
    }[view]
    out = torch.empty(x.shape)
    kernels.copy_2d[(x.shape[0],)](x, out, *x.stride(), *x.shape, BLOCK=32)
    assert torch.equal(out, x)


def test_bounds_are_those_of_the_storage() -> None:
    x = torch.zeros(64)
    part = x[16:32]
    kernels.double_up[(1,)](part.fill_(3.0), 48, BLOCK=64)  # past the view, inside the storage
    assert torch.equal(x[16:32], torch.full((16,), 6.0))
    with pytest.raises(weft.triton.KernelFindings, match=r"M101 .* x_ptr \(256 bytes\).*form_kernels.py:\d+"):
        kernels.double_up[(1,)](part, 49, BLOCK=64)


def test_one_storage_twice_is_one_buffer() -> None:
    x = torch.arange(64.0)
    kernels.convert[(1,)](x[:32], x[32:], 32, BLOCK=32)
    assert torch.equal(x, torch.arange(32.0).repeat(2))


def test_memory_shared_without_a_storage_is_refused() -> None:
    array = torch.zeros(64).numpy()
    x, y = torch.from_numpy(array), torch.from_numpy(array[16:])
    with pytest.raises(LaunchError, match="shares memory"):
        kernels.convert[(1,)](x, y, 16, BLOCK=16)


@pytest.mark.parametrize(
    ("source", "target"),
    [(torch.float8_e4m3fn, torch.float32), (torch.float8_e5m2, torch.float32), (torch.bfloat16, torch.float8_e5m2),
     (torch.float16, torch.bfloat16), (torch.int8, torch.float16), (torch.uint8, torch.float32),
     (torch.int64, torch.float32), (torch.bool, torch.float32)],
)  # fmt: skip
def test_types(source: torch.dtype, target: torch.dtype) -> None:
    x = torch.randint(0, 2, (24,)).to(source)
    out = torch.empty(24, dtype=target)
    kernels.convert[(1,)](x, out, 24, BLOCK=32)
    assert torch.equal(out.float(), x.float())


def test_reinterpret() -> None:
    x = torch.arange(16, dtype=torch.int8)
    out = torch.empty(16, dtype=torch.uint8)
    kernels.bits_of[(1,)](triton.reinterpret(x, triton.language.uint8), out, 16, BLOCK=16)
    assert torch.equal(out, (x + 1).to(torch.uint8))


def test_an_object_with_a_type_and_an_address_is_a_tensor() -> None:
    x = torch.arange(16.0)
    kernels.double_up[(1,)](kernels.Pointer(x.data_ptr() + 4 * 12), 4, BLOCK=16)
    assert torch.equal(x, torch.cat([torch.arange(12.0), 2 * torch.arange(12.0, 16.0)]))
    with pytest.raises(weft.triton.KernelFindings, match="M101"):
        kernels.double_up[(1,)](kernels.Pointer(x.data_ptr() + 4 * 12), 5, BLOCK=16)


def test_an_address_of_no_tensor_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"Pointer\.data_ptr\(\) is 0x7fff00000000"):
        kernels.double_up[(1,)](kernels.Pointer(0x7FFF_0000_0000), 4, BLOCK=16)


def test_descriptors_of_the_host() -> None:
    x, out = torch.randn(40, 48), torch.zeros(40, 48)
    kernels.copy_tiles[(3, 3)](
        TensorDescriptor.from_tensor(x, [16, 16]), TensorDescriptor.from_tensor(out, [16, 16]), BLOCK=16
    )
    assert torch.equal(out, 2 * x)


def test_an_address_as_a_number() -> None:
    x, out = torch.randn(16), torch.empty(16)
    kernels.follow[(1,)](x.data_ptr(), out, BLOCK=16)
    assert torch.equal(out, x)


def test_addresses_in_a_tensor_stay_host_addresses() -> None:
    x = torch.randn(16)
    table = torch.tensor([x.data_ptr(), 5])
    kernels.double_up[(1,)](table[1:], 1, BLOCK=16)
    assert table.tolist() == [x.data_ptr(), 10]


def test_empty_grids_and_tensors_launch_nothing(_device: weft.triton.Device) -> None:
    x = torch.empty(0)
    kernels.double_up[(0,)](x, 0, BLOCK=16)
    assert _device.launches == 0
    kernels.double_up[(1,)](x, 0, BLOCK=16)
    with pytest.raises(weft.triton.KernelFindings, match="M101"):
        kernels.double_up[(1,)](x, 1, BLOCK=16)


def test_grid_and_ways_to_launch() -> None:
    x = torch.ones(100)
    kernels.double_up[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100, BLOCK=16)
    kernels.double_up[(7, 1, 1)](x, 100, BLOCK=16, num_warps=8, num_stages=1)
    kernels.double_up.run(x, 100, BLOCK=16, grid=(7,), warmup=False)
    assert torch.equal(x, torch.full((100,), 8.0))


def test_warmup_compiles_and_does_not_run(_device: weft.triton.Device) -> None:
    kernel = kernels.double_up.warmup(torch.float32, 100, BLOCK=64, grid=(1,))
    kernel._init_handles()
    assert _device.launches == 0
    assert "double_up" in kernel.asm["ptx"]
    assert 0 < kernel.n_regs <= 255
    assert kernel.n_spills == 0
    x = torch.ones(64)
    kernel[(1, 1, 1)](x, 64, 64)
    assert torch.equal(x, torch.full((64,), 2.0))


def test_heuristics_and_hooks() -> None:
    seen: list[str] = []
    tuned = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(kernels.double_up)
    x = torch.ones(50)
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.launch_enter_hook = lambda metadata: seen.append("in " + metadata.get()["name"])
        triton.knobs.runtime.launch_exit_hook = lambda metadata: seen.append("out " + metadata.get()["name"])
        tuned[(1,)](x, 50)
    assert seen == ["in double_up", "out double_up"]
    assert torch.equal(x, torch.full((50,), 2.0))


def test_prints_and_assertions(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.tensor([1, 2, 3], dtype=torch.int32)
    kernels.checked[(1,)](x, 3, BLOCK=4, num_warps=1, debug=True)
    assert set(capsys.readouterr().out.splitlines()) == {"pid (0, 0, 0) idx () sum: 7"}
    x[1] = -1
    with pytest.raises(weft.triton.KernelFindings, match=r"X402 assertion failed: not positive") as caught:
        kernels.checked[(1,)](x, 3, BLOCK=4, num_warps=1, debug=True)
    (finding,) = caught.value.findings
    assert finding.place is not None
    assert finding.place.file.endswith("form_kernels.py")


def test_other_tensors_than_cpu_tensors_are_refused() -> None:
    with pytest.raises(LaunchError, match="x_ptr is on meta"):
        kernels.double_up[(1,)](torch.empty(4, device="meta"), 4, BLOCK=16)


def test_a_chip_is_a_target() -> None:
    with weft.triton.on("a100") as a100:
        x = torch.ones(16)
        kernels.double_up[(1,)](x, 16, BLOCK=16)
        kernel = kernels.double_up.warmup(torch.float32, 16, BLOCK=16, grid=(1,))
        assert kernel.metadata.target.arch == 80
        assert ".target sm_80" in kernel.asm["ptx"]
        assert a100.launches == 1
    assert torch.equal(x, torch.full((16,), 2.0))


def test_unknown_chips_are_refused() -> None:
    with pytest.raises(UsageError, match="a100"), weft.triton.on("nothing"):
        pass


@pytest.mark.skipif(not hasattr(CompiledKernel, "__del__"), reason="this Triton does not unload kernels")
def test_a_kernel_may_be_deleted_when_no_device_is_active() -> None:
    with weft.triton.on("l4"):
        kernel = kernels.double_up.warmup(torch.float32, 100, BLOCK=8, grid=(1,))
        kernel[(1, 1, 1)](torch.ones(8), 8, 8)
    active, configured._active = configured._active, None
    try:
        kernel.__del__()
    finally:
        configured._active = active


def test_everything_is_restored_afterwards() -> None:
    before = triton.testing.do_bench, torch.Tensor.data_ptr, triton.runtime.driver._active, triton.knobs.cache.dir
    weft.triton.activate("rtx3090", check=True, cuda=True)
    assert triton.runtime.driver.active.get_current_target().arch == 86
    weft.triton.deactivate()
    after = triton.testing.do_bench, torch.Tensor.data_ptr, triton.runtime.driver._active, triton.knobs.cache.dir
    assert after == before
