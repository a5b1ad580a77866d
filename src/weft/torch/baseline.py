"""PyTorch's attention as a contender of `weft bench`, with the name of the backend that ran."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.gates import flash_gate, tight_gate
from weft.attention.reference import Causal, attention, attention16
from weft.core.errors import ToolMissing, UsageError
from weft.engines.cuda_device import CudaDevice
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Outputs, Problem

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


class TorchSdpa:
    """scaled_dot_product_attention on q, k and v of a problem; for a quantised problem, on the unquantised inputs.

    `backend` is one of BACKENDS, or `auto`: the one PyTorch chooses for these tensors. It is always forced, so the
    named backend is the one that ran.
    """

    name = "PyTorch SDPA"

    def __init__(
        self,
        problem: Problem,
        *,
        backend: str = "auto",
        where: str = "cuda",
        stream: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._stream, self._where = stream, where
        self._dtype = problem.workload.dtype
        self._causal = _causal(problem)
        with self._stream():
            self._qkv = [torch.empty(x.shape, dtype=TYPES[self._dtype], device=where) for x in _inputs(problem)]
            self._o: torch.Tensor = torch.empty_like(self._qkv[0])
            self._backend = self._choose(backend)
        self._try()
        self.detail = f"torch {torch.__version__}, {self._backend.name.lower()}"

    def upload(self, problem: Problem) -> None:
        with self._stream():
            for tensor, values in zip(self._qkv, _inputs(problem), strict=True):
                exact = torch.from_numpy(values.astype(np.float32))  # numbers already of this type: no rounding
                tensor.copy_(exact.to(TYPES[self._dtype]))

    def poison(self) -> None:
        with self._stream():
            self._o = torch.full_like(self._qkv[0], torch.nan)

    def inputs(self) -> Mapping[int, int]:
        return {tensor.data_ptr(): tensor.nbytes for tensor in self._qkv}

    def enqueue(self) -> None:
        q, k, v = self._qkv
        with self._stream(), torch.no_grad(), sdpa_kernel(self._backend):
            self._o = F.scaled_dot_product_attention(q, k, v, is_causal=self._causal, enable_gqa=self._gqa)

    def outputs(self) -> Outputs:
        with self._stream():
            return {"o": self._o.to(torch.float32).cpu().numpy().astype(numpy_dtype(self._dtype))}

    def close(self) -> None:
        self._qkv = []

    def judge(self, problem: Problem, outputs: Outputs) -> str:
        q, k, v = (x.astype(numpy_dtype(self._dtype)) for x in _inputs(problem))
        causal: Causal = "top_left" if self._causal else None
        gold = attention(q, k, v, causal=causal).o
        if self._dtype == "f32":
            gate = tight_gate(outputs["o"], gold, v, "f32")
        else:
            gate = flash_gate(outputs["o"], gold, attention16(q, k, v, causal=causal).o, self._dtype)
        return "" if gate.passed else str(gate)

    @property
    def _gqa(self) -> bool:
        return bool(self._qkv[0].size(1) != self._qkv[1].size(1))

    def _try(self) -> None:
        """Run one call before timing: a backend may refuse the shapes."""
        with self._stream():
            for tensor in self._qkv:
                tensor.zero_()
        try:
            self.enqueue()
        except RuntimeError as error:
            raise UsageError(f"PyTorch's backend {self._backend.name.lower()} cannot run this: {error}") from error

    def _choose(self, backend: str) -> Any:
        if backend in BACKENDS:
            return BACKENDS[backend]
        if backend != "auto":
            raise UsageError(f"backend {backend!r}: use auto, {', '.join(BACKENDS)}")
        q, k, v = self._qkv
        chosen = torch._fused_sdp_choice(q, k, v, is_causal=self._causal, enable_gqa=self._gqa)
        return SDPBackend(chosen)


def cuda_stream(device: CudaDevice) -> Callable[[], AbstractContextManager[Any]]:
    """Return a context in which PyTorch uses the device's stream. Raises ToolMissing if this PyTorch has no CUDA."""
    if not torch.cuda.is_available():
        raise ToolMissing(f"this PyTorch ({torch.__version__}) cannot use the GPU: install a build with CUDA")
    outer = torch.cuda.ExternalStream(int(device.stream.handle))
    return lambda: torch.cuda.stream(outer)


def _inputs(problem: Problem) -> tuple[Array, Array, Array]:
    if not isinstance(problem, AttentionProblem):
        raise UsageError("PyTorch SDPA computes attention, not this task; use --against first to compare kernels")
    return problem.original or (problem.q, problem.k, problem.v)


def _causal(problem: Problem) -> bool:
    mask, shape = problem.workload.mask, problem.workload.shape
    if mask == "bottom_right" and shape.sq != shape.skv:
        raise UsageError("PyTorch's is_causal is top_left, not bottom_right; use --against first to compare kernels")
    return mask != "none"
