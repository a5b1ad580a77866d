"""One CUDA GPU through cuda-core: modules, buffers, launches, events. Thin; not yet run on hardware.

cuda-core owns devices, streams, buffers, modules and events. Its `launch` takes no struct by value, so launches call
the driver directly, with pointers to the parameters in host memory. So do copies and waits, because the driver returns
result codes and no exceptions.
"""

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.core.distribution import install_command
from weft.core.errors import LaunchError, ResourceError, ToolMissing, UsageError, WeftError
from weft.core.records import Binary, Dim3

from .pass_arguments import parameters
from .protocol import PLAIN_SHARED_BYTES

TOO_LARGE = (
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
)
_SLOT_BYTES = 16
"""Parameters are aligned to this in host memory, which suits every type."""
_NAME = re.compile(r"CUDA_ERROR_\w+")
_FUNCTION = re.compile(r"(?=\.entry\s|\.func\s)")


class NoGPU(WeftError):
    """This machine has no usable CUDA GPU; the message names what is missing."""


@dataclass(frozen=True)
class Libraries:
    """The two modules of NVIDIA's Python packages. Tests replace them by a recording stand-in."""

    core: Any
    """cuda.core"""
    driver: Any
    """cuda.bindings.driver"""


def libraries() -> Libraries:
    """Import both. The import needs no driver."""
    try:
        from cuda import core
        from cuda.bindings import driver
    except ImportError as error:
        raise ToolMissing(f"the CUDA engine needs cuda-core: {install_command('cuda')} ({error})") from error
    return Libraries(core, driver)


def require_gpu(ordinal: int = 0) -> "CudaDevice":
    """Return the GPU, or raise NoGPU with the reason."""
    try:
        found = libraries()
    except ToolMissing as error:
        raise NoGPU(f"no GPU can be used: {error}") from error
    try:
        devices = found.core.Device.get_all_devices()
    except Exception as error:  # the driver's library is missing, or it refuses: cuda-core has a type for each
        raise NoGPU(f"no GPU can be used: {' '.join(str(error).split())}") from error
    if ordinal >= len(devices):
        raise NoGPU(f"no GPU {ordinal}: the driver reports {len(devices)} GPUs")
    return CudaDevice(ordinal, found)


class CudaFailure(LaunchError):
    """The driver refused a call; the message names its error code, such as CUDA_ERROR_INVALID_VALUE."""


class CudaTooLarge(CudaFailure, ResourceError):
    """The driver refused because the GPU has too few resources."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel on the device."""

    name: str
    handle: Any
    """The driver's CUkernel."""
    function: Any
    """The same as the driver's launch calls take it."""
    params: tuple[tuple[str, int, int], ...]
    """Name, offset in Weft's parameter block and size of each parameter."""
    static_shared_bytes: int
    max_threads: int
    registers: int
    local_bytes: int
    cooperative: bool
    prints: bool


class CudaDevice:
    """A GPU with its own stream."""

    def __init__(self, ordinal: int = 0, found: Libraries | None = None) -> None:
        self.found = found or libraries()
        self.driver = self.found.driver
        self.device = self.found.core.Device(ordinal)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.properties = self.device.properties
        major, minor = self.device.compute_capability
        self.arch = f"sm_{major}{minor}"
        self._modules: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], LoadedKernel] = {}
        self._opted_in: dict[int, int] = {}

    @property
    def name(self) -> str:
        """The driver's name of the GPU: `NVIDIA L4`."""
        return str(self.device.name)

    @property
    def shared_limit_bytes(self) -> int:
        """Bytes of shared memory that a CTA can have with opt-in."""
        return int(self.properties.max_shared_memory_per_block_optin)

    def kernel(self, binary: Binary, entry: str) -> LoadedKernel:
        """Load a kernel by the name the user writes or the one in the PTX."""
        name = binary.entries.get(entry, entry)
        key = (binary.ptx_digest, name)
        if key not in self._kernels:
            declared = parameters(binary.ptx, name)
            kernel = self._call("get_kernel", self._module(binary).get_kernel, name)
            attributes = kernel.attributes
            params, at = [], 0
            for number, param in enumerate(declared):
                params.append((str(number), at, param.size_bytes))
                at += -(-param.size_bytes // _SLOT_BYTES) * _SLOT_BYTES
            self._kernels[key] = LoadedKernel(
                name=name,
                handle=kernel.handle,
                function=self.driver.CUfunction(int(kernel.handle)),
                params=tuple(params),
                static_shared_bytes=int(attributes.shared_size_bytes),
                max_threads=int(attributes.max_threads_per_block),
                registers=int(attributes.num_regs),
                local_bytes=int(attributes.local_size_bytes),
                cooperative=_waits_for_the_grid(binary.ptx, name),
                prints="vprintf" in binary.ptx,
            )
        return self._kernels[key]

    def symbol(self, binary: Binary, name: str) -> tuple[int, int]:
        """Return address and size of a `__constant__` or `__device__` variable."""
        result = self.driver.cuLibraryGetGlobal(self._module(binary).handle, name.encode())
        if result[0].name == "CUDA_ERROR_NOT_FOUND":
            raise UsageError(f"no variable {name!r} in this module")
        address, size = self._checked("cuLibraryGetGlobal", result)
        return int(address), int(size)

    def allocate(self, size_bytes: int) -> Any:
        """Allocate device memory with undefined contents; `int(buffer.handle)` is its address."""
        return self._call("allocate", self.device.allocate, max(size_bytes, 1), stream=self.stream)

    def free(self, buffer: Any) -> None:
        """Free a buffer once the work in the stream is done with it."""
        buffer.close(self.stream)

    def write(self, address: int, host_address: int, size_bytes: int) -> None:
        """Copy host → device, in the stream."""
        if size_bytes:
            result = self.driver.cuMemcpyHtoDAsync(address, host_address, size_bytes, self.stream.handle)
            self._checked("cuMemcpyHtoDAsync", result)

    def read(self, address: int, host_address: int, size_bytes: int) -> None:
        """Copy device → host, in the stream."""
        if size_bytes:
            result = self.driver.cuMemcpyDtoHAsync(host_address, address, size_bytes, self.stream.handle)
            self._checked("cuMemcpyDtoHAsync", result)

    def copy(self, to_address: int, address: int, size_bytes: int) -> None:
        """Copy device → device, in the stream."""
        if size_bytes:
            result = self.driver.cuMemcpyDtoDAsync(to_address, address, size_bytes, self.stream.handle)
            self._checked("cuMemcpyDtoDAsync", result)

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        """Set every byte, in the stream."""
        if size_bytes:
            result = self.driver.cuMemsetD8Async(address, byte, size_bytes, self.stream.handle)
            self._checked("cuMemsetD8Async", result)

    def launch(
        self,
        kernel: LoadedKernel,
        grid: Dim3,
        block: Dim3,
        params: bytes,
        *,
        shared_bytes: int = 0,
        cluster: Dim3 = (0, 0, 0),
        stream: Any = None,
    ) -> None:
        """Put a launch into the stream. `params` has the layout of `kernel.params`; the driver copies it."""
        self._opt_in(kernel, shared_bytes)
        held = ctypes.create_string_buffer(params, max(len(params), 1))
        start = ctypes.addressof(held)
        pointers = (ctypes.c_void_p * max(len(kernel.params), 1))(*(start + at for _, at, _ in kernel.params))
        where = self.stream.handle if stream is None else stream
        given = (kernel.function, *grid, *block, shared_bytes, where, ctypes.addressof(pointers))
        if any(cluster):
            self._launch_clusters(given, cluster, cooperative=kernel.cooperative)
        elif kernel.cooperative:
            self._checked("cuLaunchCooperativeKernel", self.driver.cuLaunchCooperativeKernel(*given))
        else:
            self._checked("cuLaunchKernel", self.driver.cuLaunchKernel(*given, 0))

    def _launch_clusters(self, given: tuple[Any, ...], cluster: Dim3, *, cooperative: bool) -> None:
        function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, pointers = given
        driver = self.driver
        config, attribute = driver.CUlaunchConfig(), driver.CUlaunchAttribute()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid_x, grid_y, grid_z
        config.blockDimX, config.blockDimY, config.blockDimZ = block_x, block_y, block_z
        config.sharedMemBytes, config.hStream = shared_bytes, stream
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        sizes = attribute.value.clusterDim
        sizes.x, sizes.y, sizes.z = cluster
        attributes = [attribute]
        if cooperative:
            other = driver.CUlaunchAttribute()
            other.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            other.value.cooperative = 1
            attributes.append(other)
        config.attrs, config.numAttrs = attributes, len(attributes)
        self._checked("cuLaunchKernelEx", driver.cuLaunchKernelEx(config, function, pointers, 0))

    def wait(self) -> str:
        """Wait for the stream. Return the driver's code of a kernel's error, or an empty string."""
        (status,) = self.driver.cuStreamSynchronize(self.stream.handle)
        return "" if int(status) == 0 else str(status.name)

    def require_no_fault(self, what: str) -> None:
        """Wait for the stream; raise if something in it failed."""
        fault = self.wait()
        if fault:
            raise cuda_failure(what, fault, self.explain(fault))

    def explain(self, name: str) -> str:
        """Return the driver's description of an error code."""
        status = getattr(self.driver.CUresult, name)
        error, text = self.driver.cuGetErrorString(status)
        return text.decode() if int(error) == 0 and text else name

    def reset_persisting_l2(self) -> None:
        """Reset all persisting lines of L2 to normal."""
        if int(self.properties.max_persisting_l2_cache_size):
            self._checked("cuCtxResetPersistingL2Cache", self.driver.cuCtxResetPersistingL2Cache())

    def timed_event(self) -> Any:
        """Create an event with timing: `later - earlier` is milliseconds."""
        return self.device.create_event(self.found.core.EventOptions(timing_enabled=True))

    def record(self, event: Any) -> None:
        """Put an event into the stream."""
        self.stream.record(event)

    def _module(self, binary: Binary) -> Any:
        if binary.ptx_digest not in self._modules:
            if binary.arch.rstrip("af") != self.arch:
                raise UsageError(f"{binary.source_name} was compiled for {binary.arch}; this GPU is {self.arch}")
            code = self.found.core.ObjectCode
            if binary.cubin:
                self._modules[binary.ptx_digest] = code.from_cubin(binary.cubin, name=binary.source_name)
            else:
                self._modules[binary.ptx_digest] = code.from_ptx(binary.ptx.encode(), name=binary.source_name)
        return self._modules[binary.ptx_digest]

    def _opt_in(self, kernel: LoadedKernel, shared_bytes: int) -> None:
        """Opt the kernel in, once, to dynamic shared memory above 48 KB."""
        if kernel.static_shared_bytes + shared_bytes <= PLAIN_SHARED_BYTES:
            return
        if self._opted_in.get(int(kernel.handle), 0) < shared_bytes:
            attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            result = self.driver.cuKernelSetAttribute(attribute, shared_bytes, kernel.handle, self.device.device_id)
            self._checked("cuKernelSetAttribute", result)
            self._opted_in[int(kernel.handle)] = shared_bytes

    def _call(self, what: str, function: Any, *args: Any, **options: Any) -> Any:
        """Call cuda-core, whose exceptions carry the driver's code in their text."""
        try:
            return function(*args, **options)
        except Exception as error:
            code = _NAME.search(str(error))
            if code is None:
                raise
            raise cuda_failure(what, code[0], str(error)) from error

    def _checked(self, what: str, result: Sequence[Any]) -> tuple[Any, ...]:
        status, *values = result
        if int(status) != 0:
            raise cuda_failure(what, str(status.name), self.explain(str(status.name)))
        return tuple(values)


def cuda_failure(call: str, name: str, what: str) -> CudaFailure:
    """Return the exception for an error code of the driver."""
    return (CudaTooLarge if name in TOO_LARGE else CudaFailure)(f"{call}: {name} ({what})")


def _waits_for_the_grid(ptx: str, entry: str) -> bool:
    """Whether the kernel uses a barrier of the entire grid, which reads %envreg, in the kernel or in a function."""
    bodies = _FUNCTION.split(ptx)
    named = re.compile(rf"\.entry\s+{re.escape(entry)}\b")
    return any("%envreg" in body for body in bodies if named.match(body) or body.startswith(".func"))
