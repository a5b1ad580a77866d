"""A Triton driver for the virtual GPU."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from weft.core.errors import Unsupported

from .device import Device
from .launcher import Loaded, launcher, load

WARP = 32
MOST_THREADS = 1024


class Utils:
    """The driver's functions about devices and binaries that Triton calls."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def load_binary(
        self, name: str, cubin: bytes, shared: int, device: Any
    ) -> tuple[Loaded | None, Loaded, int, int, int]:
        """Return module, function, registers, spilled words (local memory, as CUDA counts it), most threads per CTA.

        The module is None where no hook waits for its end: a kernel with a module calls the driver when it is deleted,
        when the driver may be gone.
        """
        loaded = load(name, cubin)
        registers = max(loaded.facts.registers, 1)
        threads = min(MOST_THREADS, self._device.chip.architecture.registers // registers // WARP * WARP)
        unload_hook = getattr(knobs.runtime, "kernel_unload_hook", None)  # of Triton 3.8
        module = loaded if getattr(unload_hook, "calls", ()) else None
        return module, loaded, loaded.facts.registers, loaded.facts.local_bytes // 4, threads

    def unload_module(self, module: Loaded) -> None:
        """Do nothing: what a kernel needs is dropped with it."""

    def get_device_properties(self, device: Any) -> dict[str, int]:
        """Return properties under Triton's names; clocks in kHz."""
        chip = self._device.chip
        return {
            "max_shared_mem": chip.architecture.shared_bytes_per_block,
            "max_num_regs": chip.architecture.registers,
            "multiprocessor_count": chip.sms,
            "warpSize": WARP,
            "sm_clock_rate": int(chip.boost_ghz * 1e6),
            # Two transfers per clock: bus width and clock are invented, their product is the chip's bandwidth.
            "mem_clock_rate": int(chip.dram_gbs * 1e6 / 2),
            "mem_bus_width": 8,
        }

    def get_current_device(self) -> int:
        return self._device.number

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return self._device.capability

    def is_stream_capturing(self, stream: Any) -> bool:
        return False

    def set_printf_fifo_size(self, size: int) -> None:
        """Do nothing: the output of a kernel is never truncated."""

    def __getattr__(self, name: str) -> Any:
        raise Unsupported(f"the virtual GPU's driver has no {name}")


class VirtualDriver(DriverBase):  # type: ignore[misc]
    """Compiles for the chip of the device and launches on it."""

    launcher_cls = staticmethod(launcher)

    def __init__(self, device: Device, interface: Any, torch_device: Any, benchmarker: Callable[..., Any]) -> None:
        super().__init__()
        self.device = device
        self.utils = Utils(device)
        self._interface, self._torch_device, self._benchmarker = interface, torch_device, benchmarker

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise Unsupported("C++ launchers are not supported: the virtual GPU is launched from Python")

    def get_current_target(self) -> Any:
        major, minor = self.device.capability
        return GPUTarget("cuda", 10 * major + minor, WARP)

    def get_current_device(self) -> int:
        return self.device.number

    def set_current_device(self, device: Any) -> None:
        """Do nothing: there is one device."""

    def get_current_stream(self, device: Any = None) -> int:
        """Return the default stream: launches are complete when they return."""
        return 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return self.device.capability

    def get_active_torch_device(self) -> Any:
        return self._torch_device

    def get_device_interface(self) -> Any:
        return self._interface

    def get_benchmarker(self) -> Callable[..., Any]:
        return self._benchmarker

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return None: estimates include whether they start with an empty L2."""
        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        """Nothing to clear."""

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Sequence[Any]) -> Sequence[Any]:
        return args
