"""What a kernel file would launch, without launching it: for callers whose arrays already are on the device."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from weft.core.records import Binary, Dim3, Run
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array, pack_parameters
from .cuda_device import CudaDevice, LoadedKernel
from .cuda_gpu import CudaGPU
from .host_arrays import dim3
from .kernel_file import KernelFile
from .protocol import Capabilities
from .sample import Sample
from .written import EVERYTHING_WRITTEN, Written


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch; arrays among `args` are host arrays that only stand for buffers of the device."""

    kernel: LoadedKernel
    grid: Dim3
    block: Dim3
    shared_bytes: int
    args: tuple[Any, ...]


@dataclass(frozen=True)
class LaunchPlan:
    """Every launch of a kernel file for one set of shapes."""

    binary: Binary
    launches: tuple[PlannedLaunch, ...]
    arrays: Mapping[str, Array]
    """Every array that the file declares, workspaces included: their shapes and types."""

    def bind(self, addresses: Mapping[str, int]) -> "DeviceCall":
        """The same launches on the buffers at these addresses, one for each of `arrays`."""
        at = {array.ctypes.data: addresses[name] for name, array in self.arrays.items() if name in addresses}

        def address_of(array: Array, name: str) -> int:
            return at[array.ctypes.data]

        packed = [(each, pack_parameters(each.kernel.params, each.args, address_of)) for each in self.launches]
        return DeviceCall(tuple(packed))


@dataclass(frozen=True)
class DeviceCall:
    """Launches with their parameters, ready to go into a stream any number of times."""

    launches: tuple[tuple[PlannedLaunch, bytes], ...]

    def enqueue(self, device: CudaDevice, stream: Any = None) -> None:
        """Put them into the device's stream, or another one of the driver's."""
        for launch, params in self.launches:
            device.launch(
                launch.kernel, launch.grid, launch.block, params, shared_bytes=launch.shared_bytes, stream=stream
            )


def plan_launches(kernel: KernelFile, gpu: CudaGPU, arrays: Mapping[str, Any]) -> LaunchPlan:
    """Compile for the shapes of `arrays`, load onto the GPU, and note what would be launched."""
    collector = _Collector(gpu)
    placed = kernel.run(collector, arrays).arrays
    assert collector.binary is not None
    return LaunchPlan(collector.binary, tuple(collector.launches), placed)


class _Collector:
    """An engine that launches nothing."""

    name = "plan"
    capabilities = Capabilities(can_watch=False, can_sample=False, exact=False)

    def __init__(self, gpu: CudaGPU) -> None:
        self.gpu = gpu
        self.arch, self.shared_limit_bytes = gpu.arch, gpu.shared_limit_bytes
        self.set_symbol: Callable[[Binary, str, str, Array], None] = gpu.set_symbol
        self.static_shared_bytes: Callable[[Binary, str], int] = gpu.static_shared_bytes
        self.check_sample: Callable[[Binary, str], None] = gpu.check_sample
        self.binary: Binary | None = None
        self.launches: list[PlannedLaunch] = []

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
        """Check the launch as the GPU would, and keep it."""
        self.binary = binary
        kernel = self.gpu.device.kernel(binary, entry)
        size = dim3(grid), dim3(block)
        self.gpu.check_size(kernel, *size, shared_bytes)
        self.launches.append(PlannedLaunch(kernel, *size, shared_bytes, tuple(args)))
        return Run((entry,), (), "", 0, binary.source_digest, binary.ptx_digest, binary.defines)

    @contextmanager
    def sequence(self, binary: Binary, entry: str) -> Iterator[None]:
        """Nothing is placed, so nothing moves."""
        yield
