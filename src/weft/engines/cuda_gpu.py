"""A CUDA GPU as an engine. Tested against the engine contract with a stand-in of cuda-core; not yet run on hardware."""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from weft.core.errors import LaunchError, ResourceError, Unsupported, UsageError
from weft.core.records import Binary, Finding, Run, merge_runs

from .arguments import Array, EncodedByAddress, HostArrays, pack_parameters
from .cuda_device import CudaDevice, LoadedKernel, cuda_failure
from .launch import Launch
from .protocol import DEFAULTS, Capabilities, Engine, RunOptions, require_possible
from .sample import CannotSample

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
"""The driver's error after a kernel failed → the code of a finding. The driver names neither line nor thread."""


class CudaGPU(Engine):
    """One GPU. `max_steps` has no effect here: an infinite kernel runs until the driver's watchdog, if any, ends it.

    After a failed kernel the driver rejects all further calls of this process: later launches are refused.
    """

    name = "cuda"
    capabilities = Capabilities(can_watch=False, can_sample=False, exact=False)

    def __init__(self, device: CudaDevice | None = None) -> None:
        self.device = device or CudaDevice()
        self.arch = self.device.arch
        self._broken = ""

    @property
    def shared_limit_bytes(self) -> int:
        """Bytes of shared memory that a CTA can have with opt-in."""
        return self.device.shared_limit_bytes

    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        """Copy in, launch and wait one by one, copy out; see `Engine.run`."""
        require_possible(self, launches, options)
        if options.ctas is not None:
            raise CannotSample("a CUDA GPU runs complete grids; use the virtual GPU to run some CTAs")
        if self._broken:
            raise LaunchError(f"the GPU cannot be used by this process after {self._broken}: start a new process")
        for launch in launches:
            with launch.located():
                self.check(launch)
        arrays, runs = _DeviceArrays(self.device), []
        try:
            kernels, blocks = [self.device.kernel(launch.binary, launch.entry) for launch in launches], []
            for launch, kernel in zip(launches, kernels, strict=True):
                with launch.located():
                    blocks.append(pack_parameters(kernel.params, launch.args, arrays.address, launch.names))
            arrays.copy_in()
            for launch, kernel, block in zip(launches, kernels, blocks, strict=True):
                with launch.located():
                    runs.append(self._run_one(launch, kernel, block))
                if self._broken or not options.goes_on(runs[-1]):
                    break
            if not self._broken:
                arrays.copy_out()
        finally:
            if not self._broken:
                arrays.release()
        return merge_runs(runs)

    def _run_one(self, launch: Launch, kernel: LoadedKernel, params: bytes) -> Run:
        with _printed() if kernel.prints else nullcontext([""]) as printed:
            self.device.launch(
                kernel, launch.grid, launch.block, params, shared_bytes=launch.shared_bytes, cluster=launch.cluster
            )
            fault = self.device.wait()
        if fault:
            self._broken = f"{fault} in {kernel.name}"
        binary, findings = launch.binary, self._findings(kernel, fault)
        return Run((launch.entry,), findings, printed[0], 0, binary.source_digest, binary.ptx_digest, binary.defines)

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Initialise a `__constant__` or `__device__` variable."""
        address, size = self.device.symbol(binary, name)
        data = np.ascontiguousarray(value)
        if data.nbytes > size:
            raise UsageError(f"the value for {name} has {data.nbytes} bytes; the variable has {size}")
        self.device.write(address, data.ctypes.data, data.nbytes)
        self.device.require_no_fault(f"setting {name}")

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Return the bytes of static shared memory of the kernel."""
        return self.device.kernel(binary, entry).static_shared_bytes

    def check(self, launch: Launch) -> None:
        """Raise LaunchError for a launch that this GPU cannot take."""
        if any(isinstance(value, EncodedByAddress) for value in launch.args):
            raise Unsupported("a tensor map of a launch line on a CUDA GPU: its bytes are those of the virtual GPU")
        kernel, grid, block = self.device.kernel(launch.binary, launch.entry), launch.grid, launch.block
        has = self.device.properties
        largest_grid = (has.max_grid_dim_x, has.max_grid_dim_y, has.max_grid_dim_z)
        largest_block = (has.max_block_dim_x, has.max_block_dim_y, has.max_block_dim_z)
        for what, size, largest in (("grid", grid, largest_grid), ("block", block, largest_block)):
            if any(not 1 <= n <= most for n, most in zip(size, largest, strict=True)):
                raise LaunchError(f"{what} {size}: every size must be at least 1 and at most {largest} on {self.arch}")
        threads = block[0] * block[1] * block[2]
        if threads > has.max_threads_per_block:
            raise LaunchError(f"block {block} has {threads} threads; a CTA has at most {has.max_threads_per_block}")
        if threads > kernel.max_threads:
            raise ResourceError(f"block {block} is larger than {kernel.name} allows: {kernel.max_threads} threads")
        self.check_shared(launch)

    def _findings(self, kernel: LoadedKernel, fault: str) -> tuple[Finding, ...]:
        if not fault:
            return ()
        if fault not in FAULTS:
            raise cuda_failure(kernel.name, fault, self.device.explain(fault))
        message = f"{kernel.name}: {self.device.explain(fault)} ({fault})"
        return (Finding(FAULTS[fault], message, cure="run it on the virtual GPU, which names the line and the thread"),)


class _DeviceArrays(HostArrays):
    """Host arrays, each with its device buffer."""

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
    """Capture what kernels print: the driver writes it to standard output while the process waits for the stream."""
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
