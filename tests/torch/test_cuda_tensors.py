"""CUDA tensors, as far as possible without a GPU: the plan of a rung on device addresses, on the stand-in."""

from typing import Any

import pytest
import torch

from tests.engines.recording_cuda import RecordingCuda
from weft.attention.contract import DENSE, Contract
from weft.engines.cuda_gpu import CudaGPU
from weft.engines.plan_launches import plan_launches
from weft.torch import sdpa
from weft.torch.kernel_call import Chosen, enqueue, kernel_for, stand_ins


@pytest.mark.parametrize(
    ("rung", "contract"),
    [("scalar", DENSE), ("split_k", DENSE), ("softcap_sinks", Contract(left=5, soft_cap=0.5, sinks=True))],
)
def test_a_rung_runs_on_addresses_in_another_stream(rung: str, contract: Contract) -> None:
    recording = RecordingCuda()
    gpu = CudaGPU(recording.device())
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 2, 20, 16, generator=generator).half() for _ in range(3))
    o, lse = torch.empty_like(q), torch.empty(1, 2, 20)
    tensors: dict[str, Any] = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
    options: dict[str, Any] = {}
    if contract.sinks:
        tensors["sinks"] = torch.tensor([1.0, -1.0])
        options = {"window": (contract.left, 0), "soft_cap": contract.soft_cap, "sinks": tensors["sinks"]}
    chosen = Chosen(rung, "f16", "top_left", 0.3, contract=contract)
    kernel = kernel_for(chosen, gpu.arch)
    plan = plan_launches(kernel, gpu, stand_ins(kernel, chosen, {name: tuple(x.shape) for name, x in tensors.items()}))
    assert "cuLaunchKernel" not in recording.names()
    device = gpu.device
    buffers = {name: device.allocate(array.nbytes) for name, array in plan.arrays.items()}
    addresses = {name: int(buffer.handle) for name, buffer in buffers.items()}
    for name in tensors.keys() - {"o", "lse"}:
        device.write(addresses[name], tensors[name].data_ptr(), tensors[name].nbytes)
    foreign = device.device.create_stream()
    enqueue(gpu, plan, addresses, foreign.handle)
    assert {given["hStream"] for given in recording.given("cuLaunchKernel")} == {foreign.handle}
    for name in ("o", "lse"):
        device.read(addresses[name], tensors[name].data_ptr(), tensors[name].nbytes)
    device.require_no_fault("reading")
    on_cpu, lse_on_cpu = sdpa(q, k, v, is_causal=True, scale=0.3, rung=rung, return_lse=True, **options)
    assert torch.equal(o, on_cpu) and torch.equal(lse, lse_on_cpu)
