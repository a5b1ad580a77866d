"""A rung with the macros and the scale of one call, run where its tensors are."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch

from weft.attention.contract import DENSE, NO_LIMIT, Contract
from weft.attention.dtypes import numpy_dtype
from weft.core.chips import target_of
from weft.core.errors import WeftError
from weft.core.records import Run, worst_first
from weft.engines.cuda_device import CudaDevice
from weft.engines.cuda_gpu import CudaGPU
from weft.engines.element_types import ELEMENT_TYPES
from weft.engines.expressions import Expression
from weft.engines.kernel_file import KernelFile, load
from weft.engines.plan_launches import LaunchPlan, plan_launches
from weft.engines.virtual import VirtualGPU
from weft.kernels.ladder import ELEMENTS, ENCODINGS, MASKS, RUNGS

MAX_STEPS = 1 << 32
"""More than `weft run` allows: a program calls a kernel of the ladder, not an unknown one."""

_LOCK = threading.Lock()
"""The virtual GPU has one memory."""


class KernelWentWrong(WeftError):
    """The kernel ran and has findings: its result is not valid."""


@dataclass(frozen=True)
class Chosen:
    """The choices that decide which code runs."""

    rung: str
    dtype: str
    mask: str
    scale: float
    encoding: str = ""
    contract: Contract = DENSE


def run_kernel(chosen: Chosen, tensors: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> None:
    """Fill `outputs` from `tensors`, all contiguous and on one device, by their names in the rung's file."""
    device = next(iter(tensors.values())).device
    if device.type == "cpu":
        _on_virtual_gpu(chosen, tensors, outputs)
    elif device.type == "cuda":
        with torch.cuda.device(device):  # the current device is set only for this call
            _on_cuda_gpu(_cuda_gpu(torch.cuda.current_device()), chosen, {**tensors, **outputs})
    else:
        raise WeftError(f"tensors on {device}: weft.torch runs on cpu (the virtual GPU) and cuda")


@lru_cache(maxsize=64)
def kernel_for(chosen: Chosen, arch: str) -> KernelFile:
    """Return the rung's file, with the scale of the call instead of the one its lines compute."""
    macros = {"ELEMENT": ELEMENTS[chosen.dtype], "CAUSAL": str(MASKS.index(chosen.mask))}
    macros |= {**NO_LIMIT, **chosen.contract.defines()}
    if chosen.encoding:
        macros["ENCODING"] = str(ENCODINGS.index(chosen.encoding))
    file = load(RUNGS[chosen.rung].path, arch=arch)
    has = {line.name for line in file.lines.defines}
    kernel = file.with_macros({name: value for name, value in macros.items() if name in has})
    scalars = tuple(
        replace(line, value=Expression.parse(repr(chosen.scale))) if line.name == "scale" else line
        for line in kernel.lines.scalars
    )
    if scalars == kernel.lines.scalars:
        raise WeftError(f"rung {chosen.rung} has no scalar `scale`, so it cannot take PyTorch's scale argument")
    return replace(kernel, lines=replace(kernel.lines, scalars=scalars))


@cache
def _virtual_gpu(name: str) -> VirtualGPU:
    return VirtualGPU(name)


@cache
def _cuda_gpu(ordinal: int) -> CudaGPU:
    return CudaGPU(CudaDevice(ordinal))


def _on_virtual_gpu(chosen: Chosen, tensors: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> None:
    gpu = _virtual_gpu(RUNGS[chosen.rung].gpu)
    kernel = kernel_for(chosen, target_of(gpu.chip.name))
    with _LOCK:
        run = kernel.run(gpu, {**tensors, **outputs}, max_steps=MAX_STEPS).run
    _require_clean(run, chosen)


def _require_clean(run: Run, chosen: Chosen) -> None:
    if not run.clean:
        raise KernelWentWrong(f"rung {chosen.rung} has findings: {'; '.join(map(str, worst_first(run.findings)[:3]))}")


def _on_cuda_gpu(gpu: CudaGPU, chosen: Chosen, tensors: Mapping[str, torch.Tensor]) -> None:
    """Run the kernel on the tensors without copies, in PyTorch's current stream."""
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in tensors.items())
    plan = _plan(gpu, chosen, shapes)
    like = next(iter(tensors.values()))
    held = {name: like.new_empty(_bytes(plan, name), dtype=torch.uint8) for name in plan.arrays if name not in tensors}
    addresses = {name: tensor.data_ptr() for name, tensor in {**tensors, **held}.items()}
    enqueue(gpu, plan, addresses, torch.cuda.current_stream(like.device).cuda_stream)


def enqueue(gpu: CudaGPU, plan: LaunchPlan, addresses: Mapping[str, int], stream: Any) -> None:
    """Enqueue the launches on these addresses. The driver reports their errors at the next wait for the stream."""
    plan.bind(addresses).enqueue(gpu.device, stream)


@lru_cache(maxsize=256)
def _plan(gpu: CudaGPU, chosen: Chosen, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> LaunchPlan:
    """Return the plan, compiled once for each set of shapes; the arrays are placeholders for tensors."""
    kernel = kernel_for(chosen, gpu.arch)
    return plan_launches(kernel, gpu, stand_ins(kernel, chosen, dict(shapes)))


def stand_ins(kernel: KernelFile, chosen: Chosen, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return host arrays of the tensors' shapes, in the types that the file declares."""
    declared = {line.name: line.element for line in kernel.arrays}
    types = {name: ELEMENT_TYPES.get(element) or numpy_dtype(chosen.dtype) for name, element in declared.items()}
    return {name: np.zeros(shape, types[name]) for name, shape in shapes.items()}


def _bytes(plan: LaunchPlan, name: str) -> int:
    return max(plan.arrays[name].nbytes, 1)
