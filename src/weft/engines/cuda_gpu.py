"""A CUDA GPU behind the engine protocol. Held to the contract by a stand-in of cuda-core; never run on hardware yet."""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from weft.core.errors import LaunchError, ResourceError, UsageError
from weft.core.records import Binary, Dim3, Finding, Run
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array, pack_parameters
from .cuda_device import CudaDevice, LoadedKernel, cuda_failure
from .host_arrays import HostArrays, dim3
from .protocol import Capabilities, require_watch
from .sample import CannotSample, Sample
from .written import EVERYTHING_WRITTEN, Written

FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "M101",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "M101",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "M102",
    "CUDA_ERROR_ASSERT": "X402",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "X401",
    "CUDA_ERROR_INVALID_PC": "X401",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "X401",
    "CUDA_ERROR_LAUNCH_FAILED": "X401",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "S302",
}
"""What the driver says after a kernel went wrong → the code of a finding. It knows neither the place nor the thread."""


class CudaGPU:
    """One GPU. `max_steps` has no meaning here: an endless kernel runs until the driver's own watchdog, if it has one.

    After a kernel that went wrong the driver serves this process no more: later launches are refused.
    """

    name = "cuda"
    capabilities = Capabilities(can_watch=False, can_sample=False, exact=False)

    def __init__(self, device: CudaDevice | None = None) -> None:
        self.device = device or CudaDevice()
        self._kept: _DeviceArrays | None = None
        self._broken = ""

    @property
    def arch(self) -> str:
        """Of the GPU that is there."""
        return self.device.arch

    @property
    def shared_limit_bytes(self) -> int:
        """Most shared memory that a CTA can have, by opt-in."""
        return self.device.shared_limit_bytes

    def launch(
        self,
        binary: Binary,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        names: Sequence[str] = (),
        max_steps: int = 1 << 32,
        watch: Instrumentation = PLAIN,
        ctas: Sample | None = None,
        written: Written = EVERYTHING_WRITTEN,
    ) -> Run:
        """Copy in, launch, wait, copy out. See `Engine.launch`."""
        require_watch(self, watch)
        if ctas is not None:
            self.check_sample(binary, entry)
        if self._broken:
            raise LaunchError(f"the GPU serves this process no more after {self._broken}: start a new one")
        kernel = self.device.kernel(binary, entry)
        size = dim3(grid), dim3(block)
        self.check_size(kernel, *size, shared_bytes)
        arrays = self._kept or _DeviceArrays(self.device)
        try:
            params = pack_parameters(kernel.params, args, arrays.address, names)
            arrays.copy_in()
            with _printed() if kernel.prints else nullcontext([""]) as printed:
                self.device.launch(kernel, *size, params, shared_bytes=shared_bytes)
                fault = self.device.wait()
            if fault:
                self._broken = f"{fault} in {kernel.name}"
            else:
                arrays.copy_out()
        finally:
            if arrays is not self._kept and not self._broken:
                arrays.release()
        findings = self._findings(kernel, fault)
        return Run((entry,), findings, printed[0], 0, binary.source_digest, binary.ptx_digest, binary.defines)

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Initialise a `__constant__` or `__device__` variable."""
        address, size = self.device.symbol(binary, name)
        data = np.ascontiguousarray(value)
        if data.nbytes > size:
            raise UsageError(f"{data.nbytes} bytes for {name}, which has {size}")
        self.device.write(address, data.ctypes.data, data.nbytes)
        self.device.require_no_fault(f"setting {name}")

    @contextmanager
    def sequence(self, binary: Binary, entry: str) -> Iterator[None]:
        """Launches inside keep their buffers."""
        self._kept = _DeviceArrays(self.device)
        try:
            yield
        finally:
            kept, self._kept = self._kept, None
            if not self._broken:
                kept.release()

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Shared memory that the kernel has without asking at its launch."""
        return self.device.kernel(binary, entry).static_shared_bytes

    def check_sample(self, binary: Binary, entry: str) -> None:
        """Always raises: hardware runs whole grids."""
        raise CannotSample(f"{entry}: a CUDA GPU runs whole grids; use the virtual GPU for a part of one")

    def check_size(self, kernel: LoadedKernel, grid: Dim3, block: Dim3, shared_bytes: int) -> None:
        """Raise LaunchError for a launch that this GPU cannot take."""
        has = self.device.properties
        largest_grid = (has.max_grid_dim_x, has.max_grid_dim_y, has.max_grid_dim_z)
        largest_block = (has.max_block_dim_x, has.max_block_dim_y, has.max_block_dim_z)
        for what, size, largest in (("grid", grid, largest_grid), ("block", block, largest_block)):
            if any(not 1 <= n <= most for n, most in zip(size, largest, strict=True)):
                raise LaunchError(f"{what} {size}: every size is at least 1 and at most {largest} on {self.arch}")
        threads = block[0] * block[1] * block[2]
        if threads > has.max_threads_per_block:
            raise LaunchError(f"block {block} has {threads} threads; a CTA has at most {has.max_threads_per_block}")
        if threads > kernel.max_threads:
            raise ResourceError(f"block {block} is larger than {kernel.name} allows: {kernel.max_threads} threads")
        total = kernel.static_shared_bytes + shared_bytes
        if total > self.shared_limit_bytes:
            raise ResourceError(
                f"{kernel.name} asks for {total} bytes of shared memory; {self.arch} has {self.shared_limit_bytes} "
                "per CTA. Smaller tiles or fewer pipeline stages help."
            )

    def _findings(self, kernel: LoadedKernel, fault: str) -> tuple[Finding, ...]:
        if not fault:
            return ()
        if fault not in FAULTS:
            raise cuda_failure(kernel.name, fault, self.device.explain(fault))
        message = f"{kernel.name}: {self.device.explain(fault)} ({fault})"
        return (Finding(FAULTS[fault], message, cure="run it on the virtual GPU, which names the line and the thread"),)


class _DeviceArrays(HostArrays):
    """Host arrays with device buffers of their own."""

    def __init__(self, device: CudaDevice) -> None:
        super().__init__(self._buffer)
        self.device = device
        self.buffers: list[Any] = []

    def copy_in(self) -> None:
        for array, address in self.placed.values():
            self.device.write(address, array.ctypes.data, array.nbytes)

    def copy_out(self) -> None:
        for array, address in self.placed.values():
            if array.flags.writeable:
                self.device.read(address, array.ctypes.data, array.nbytes)
        self.device.require_no_fault("copying results back")

    def release(self) -> None:
        for buffer in self.buffers:
            self.device.free(buffer)

    def _buffer(self, size_bytes: int, name: str) -> int:
        self.buffers.append(self.device.allocate(size_bytes))
        return int(self.buffers[-1].handle)


@contextmanager
def _printed() -> Iterator[list[str]]:
    """What kernels print: the driver writes it to the process's standard output when the stream is waited for."""
    text = [""]
    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    c_library.fflush(None)
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield text
        finally:
            c_library.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            text[0] = file.read().decode(errors="replace")
