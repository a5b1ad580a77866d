"""The launches of a kernel file, without running them, for callers whose arrays are already on the device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.core.records import Binary

from .arguments import Array, pack_parameters
from .cuda_device import CudaDevice, LoadedKernel
from .cuda_gpu import CudaGPU
from .kernel_file import KernelFile
from .launch import Launch


@dataclass(frozen=True)
class PlannedLaunch:
    """A launch and its kernel on the device; arrays of the launch are placeholders for device buffers."""

    kernel: LoadedKernel
    launch: Launch


@dataclass(frozen=True)
class LaunchPlan:
    """Every launch of a kernel file for one set of shapes."""

    binary: Binary
    launches: tuple[PlannedLaunch, ...]
    arrays: Mapping[str, Array]
    """Every array that the file declares, workspaces included: their shapes and types."""

    def bind(self, addresses: Mapping[str, int]) -> "DeviceCall":
        """Return the same launches on the buffers at these addresses, one for each of `arrays`."""
        at = {array.ctypes.data: addresses[name] for name, array in self.arrays.items() if name in addresses}

        def address_of(array: Array, name: str) -> int:
            return at[array.ctypes.data]

        packed = [(each, pack_parameters(each.kernel.params, each.launch.args, address_of)) for each in self.launches]
        return DeviceCall(tuple(packed))


@dataclass(frozen=True)
class DeviceCall:
    """Launches with their parameters, ready to be enqueued any number of times."""

    launches: tuple[tuple[PlannedLaunch, bytes], ...]

    def enqueue(self, device: CudaDevice, stream: Any = None) -> None:
        """Put them into the device's stream, or into another CUDA stream."""
        for planned, params in self.launches:
            launch = planned.launch
            device.launch(
                planned.kernel,
                launch.grid,
                launch.block,
                params,
                shared_bytes=launch.shared_bytes,
                cluster=launch.cluster,
                stream=stream,
            )


def plan_launches(kernel: KernelFile, gpu: CudaGPU, arrays: Mapping[str, Any]) -> LaunchPlan:
    """Compile for the shapes of `arrays`, load onto the GPU, and return the launches."""
    bound = kernel.bind(arrays)
    planned = []
    for launch in bound.launches:
        with launch.located():
            gpu.check(launch)
        planned.append(PlannedLaunch(gpu.device.kernel(launch.binary, launch.entry), launch))
    first = bound.launches[0]
    for name, value in bound.constants.items():
        gpu.set_symbol(first.binary, first.entry, name, value)
    return LaunchPlan(first.binary, tuple(planned), bound.arrays)
