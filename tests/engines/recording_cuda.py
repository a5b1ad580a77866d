"""A stand-in of cuda-core and the driver: checks and records every call, and runs launches on the virtual GPU.

Work is queued and runs when the stream is waited for, as on hardware, so results that are read too early are old.
Every call is bound to the signature in the installed cuda-core and cuda-bindings.
"""

import ctypes
import inspect
import os
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cuda.core as real_core
import numpy as np
from cuda.bindings import driver as real_driver

from weft.core.records import Binary
from weft.engines.cuda_device import CudaDevice, Libraries
from weft.ptx.module import Instruction, Special
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_variables
from weft.vm.memory import GlobalMemory
from weft.vm.program import Program, compile_program

PLAIN_SHARED_BYTES = 48 * 1024
SUCCESS = real_driver.CUresult.CUDA_SUCCESS
FAULT_OF = {
    "M101": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "M104": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "M102": "CUDA_ERROR_MISALIGNED_ADDRESS",
    "X401": "CUDA_ERROR_LAUNCH_FAILED",
    "X402": "CUDA_ERROR_ASSERT",
    "S302": "CUDA_ERROR_LAUNCH_TIMEOUT",
}


@dataclass(frozen=True)
class Call:
    """One call, its arguments by name."""

    name: str
    given: dict[str, Any]


class RecordingCuda:
    """The state of one simulated GPU."""

    def __init__(self, arch: str = "89", *, l2_bytes: int = 1 << 16) -> None:
        self.arch = arch
        self.calls: list[Call] = []
        self.binaries: dict[bytes, Binary] = {}
        self.memory = GlobalMemory()
        self.live: dict[int, int] = {}
        """Address → size of every buffer that was not closed."""
        self.queue: list[Callable[[], None]] = []
        self.fault = SUCCESS
        self.current = False
        self.clock_ms = 0.0
        self.cost_ms: Callable[[str], float] = lambda name: 1.0
        """Time of a kernel launch on the simulated clock."""
        self.mhz: Callable[[int], int] = lambda reading: 2040
        """The simulated clock at its n-th reading."""
        self.on_record: Callable[[], object] = lambda: None
        """Called when an event is put into the stream."""
        self.kernels: dict[int, _Kernel] = {}
        self.streams: dict[int, _Stream] = {}
        self.l2_bytes = l2_bytes

    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def given(self, name: str) -> list[dict[str, Any]]:
        """The arguments of every call of one function."""
        return [call.given for call in self.calls if call.name == name]

    def libraries(self) -> Libraries:
        owner = self

        class Device(_Device):
            recording = owner

            @classmethod
            def get_all_devices(cls) -> tuple[Any, ...]:
                owner.record("Device.get_all_devices", real_core.Device.get_all_devices)
                return (cls(0),)

        class ObjectCode(_ObjectCode):
            recording = owner

        core = types.SimpleNamespace(Device=Device, ObjectCode=ObjectCode, EventOptions=real_core.EventOptions)
        return Libraries(core, _Driver(self))

    def device(self) -> CudaDevice:
        return TellingDevice(self)

    def record(self, name: str, real: Any, /, *args: Any, **options: Any) -> dict[str, Any]:
        given = dict(inspect.signature(real).bind(*args, **options).arguments)
        self.calls.append(Call(name, given))
        return given

    def require_buffer(self, address: int, size: int) -> None:
        holders = [at for at, has in self.live.items() if at <= address and address + size <= at + has]
        assert holders, f"{size} bytes at {address:#x} are in no live buffer"

    def wait(self) -> Any:
        while self.queue and self.fault == SUCCESS:
            self.queue.pop(0)()
        return self.fault


class TellingDevice(CudaDevice):
    """Passes the binary of a cubin to the stand-in, because the virtual GPU cannot run a cubin."""

    def __init__(self, recording: RecordingCuda) -> None:
        self.recording = recording
        super().__init__(0, recording.libraries())

    def _module(self, binary: Binary) -> Any:
        self.recording.binaries[binary.cubin or binary.ptx.encode()] = binary
        return super()._module(binary)


class _Device:
    recording: RecordingCuda

    def __init__(self, device_id: int = 0) -> None:
        assert device_id == 0
        self.device_id = 0
        self.name = "stand-in"
        self.compute_capability = (int(self.recording.arch[:-1]), int(self.recording.arch[-1]))
        limits = {
            "max_shared_memory_per_block_optin": 99 * 1024,
            "max_threads_per_block": 1024,
            "max_grid_dim_x": (1 << 31) - 1,
            "max_grid_dim_y": 65535,
            "max_grid_dim_z": 65535,
            "max_block_dim_x": 1024,
            "max_block_dim_y": 1024,
            "max_block_dim_z": 64,
            "l2_cache_size": self.recording.l2_bytes,
            "max_persisting_l2_cache_size": 1 << 12,
            "multiprocessor_count": 58,
        }
        real = real_core._device.DeviceProperties
        assert all(hasattr(real, name) for name in limits)
        assert all(hasattr(real_core.Device, name) for name in ("name", "device_id", "compute_capability"))
        self.properties = types.SimpleNamespace(**limits)

    def set_current(self, *args: Any) -> None:
        self.recording.record("Device.set_current", real_core.Device.set_current, self, *args)
        self.recording.current = True

    def create_stream(self, *args: Any, **options: Any) -> "_Stream":
        self.recording.record("Device.create_stream", real_core.Device.create_stream, self, *args, **options)
        assert self.recording.current, "set_current comes before create_stream"
        return _Stream(self.recording)

    def create_event(self, *args: Any, **options: Any) -> "_Event":
        given = self.recording.record("Device.create_event", real_core.Device.create_event, self, *args, **options)
        assert given["options"].timing_enabled
        return _Event()

    def allocate(self, *args: Any, **options: Any) -> "_Buffer":
        given = self.recording.record("Device.allocate", real_core.Device.allocate, self, *args, **options)
        assert given["stream"].handle in self.recording.streams and given["size"] > 0
        if given["size"] > 1 << 34:
            raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: the API call failed, no memory")
        return _Buffer(self.recording, given["size"])

    def to_system_device(self, *args: Any) -> "_System":
        self.recording.record("Device.to_system_device", real_core.Device.to_system_device, self, *args)
        return _System(self.recording)


class _System:
    """The GPU as the management library sees it."""

    def __init__(self, recording: RecordingCuda) -> None:
        self.recording = recording

    def get_clock(self, *args: Any) -> "_System":
        given = self.recording.record("system.get_clock", real_core.system.Device.get_clock, self, *args)
        assert given["clock_type"] in set(real_core.system.typing.ClockType)
        return self

    def get_current_mhz(self, *args: Any) -> int:
        real = real_core.system._device.ClockInfo.get_current_mhz
        self.recording.record("ClockInfo.get_current_mhz", real, self, *args)
        return self.recording.mhz(len(self.recording.given("ClockInfo.get_current_mhz")))

    @property
    def current_clock_event_reasons(self) -> list[str]:
        assert hasattr(real_core.system.Device, "current_clock_event_reasons")
        return [real_core.system.typing.ClocksEventReasons.NONE]


class _Stream:
    def __init__(self, recording: RecordingCuda) -> None:
        self.recording = recording
        self.handle = 0x5000 + len(recording.streams)
        recording.streams[self.handle] = self

    def record(self, *args: Any, **options: Any) -> None:
        given = self.recording.record("Stream.record", real_core.Stream.record, self, *args, **options)
        self.recording.queue.append(lambda: given["event"].reach(self.recording.clock_ms))
        self.recording.on_record()


class _Event:
    def __init__(self) -> None:
        self.at: float | None = None

    def reach(self, at: float) -> None:
        self.at = at

    @property
    def is_done(self) -> bool:
        assert hasattr(real_core.Event, "is_done")
        return self.at is not None

    def __sub__(self, other: "_Event") -> float:
        assert self.at is not None and other.at is not None, "an event was read before it was reached"
        return self.at - other.at


class _Buffer:
    def __init__(self, recording: RecordingCuda, size: int) -> None:
        self.recording = recording
        self.handle = recording.memory.allocate(size, "buffer")
        recording.live[self.handle] = size

    def close(self, *args: Any) -> None:
        given = self.recording.record("Buffer.close", real_core.Buffer.close, self, *args)
        assert given["stream"].handle in self.recording.streams
        del self.recording.live[self.handle]


class _ObjectCode:
    recording: RecordingCuda

    def __init__(self, code: bytes) -> None:
        self.binary = self.recording.binaries[code]
        self.handle = id(self.binary)
        self.globals_at: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        _Driver.modules[self.handle] = self

    @classmethod
    def from_cubin(cls, *args: Any, **options: Any) -> "_ObjectCode":
        given = cls.recording.record("ObjectCode.from_cubin", real_core.ObjectCode.from_cubin, *args, **options)
        assert given["module"][:4] == b"\x7fELF"
        return cls(given["module"])

    @classmethod
    def from_ptx(cls, *args: Any, **options: Any) -> "_ObjectCode":
        given = cls.recording.record("ObjectCode.from_ptx", real_core.ObjectCode.from_ptx, *args, **options)
        assert b".version" in given["module"]
        return cls(given["module"])

    def get_kernel(self, name: str) -> "_Kernel":
        self.recording.record("ObjectCode.get_kernel", real_core.ObjectCode.get_kernel, self, name)
        return _Kernel(self, name)

    def place(self, program: Program) -> dict[str, int]:
        if not self.globals_at:
            self.globals_at = place_variables(program.plan.globals, self.recording.memory)
            self.sizes = {variable.name: variable.size_bytes for variable in program.plan.globals}
        return self.globals_at


class _Kernel:
    def __init__(self, module: _ObjectCode, name: str) -> None:
        self.module, self.name = module, name
        shared = module.binary.shared.get(name, ())
        self.program = compile_program(module.binary.ptx, name, arch=f"sm_{module.recording.arch}", cubin=shared)
        instructions = (item for item in self.program.source.inlined.body if isinstance(item, Instruction))
        read = (operand for item in instructions for operand in item.operands if isinstance(operand, Special))
        self.waits_for_the_grid = any(register.name.startswith("%envreg") for register in read)
        plan = self.program.plan
        self.dynamic_limit = PLAIN_SHARED_BYTES - plan.layout.static_shared_bytes
        attributes = {
            "shared_size_bytes": plan.layout.static_shared_bytes,
            "max_threads_per_block": min(plan.max_threads, 1024),
            "num_regs": module.binary.resources[name].registers,
            "local_size_bytes": module.binary.resources[name].local_bytes,
        }
        real = real_core._module.KernelAttributes
        assert all(hasattr(real, attribute) for attribute in attributes)
        self.attributes = types.SimpleNamespace(**attributes)
        self.handle = 0x9000 + len(module.recording.kernels)
        module.recording.kernels[self.handle] = self


class _Driver:
    """cuda.bindings.driver: results are tuples that start with a status."""

    CUresult = real_driver.CUresult
    CUfunction = real_driver.CUfunction
    CUfunction_attribute = real_driver.CUfunction_attribute
    modules: dict[int, _ObjectCode] = {}  # noqa: RUF012  (handles of all modules, as in one process)

    def __init__(self, recording: RecordingCuda) -> None:
        self.recording = recording

    def _record(self, name: str, *args: Any) -> dict[str, Any]:
        return self.recording.record(name, getattr(real_driver, name), *args)

    def cuLibraryGetGlobal(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuLibraryGetGlobal", *args)
        module = self.modules[given["library"]]
        entry = next(iter(module.binary.entries.values()))
        places = module.place(compile_program(module.binary.ptx, entry, arch=f"sm_{self.recording.arch}"))
        name = given["name"].decode()
        if name not in places:
            return real_driver.CUresult.CUDA_ERROR_NOT_FOUND, 0, 0
        self.recording.live[places[name]] = module.sizes[name]
        return SUCCESS, real_driver.CUdeviceptr(places[name]), module.sizes[name]

    def cuMemcpyHtoDAsync(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuMemcpyHtoDAsync", *args)
        assert given["hStream"] in self.recording.streams
        self.recording.require_buffer(given["dstDevice"], given["ByteCount"])
        data = ctypes.string_at(given["srcHost"], given["ByteCount"])  # pageable memory is read before the call ends
        self.recording.queue.append(lambda: self.recording.memory.write(given["dstDevice"], data))
        return (SUCCESS,)

    def cuMemcpyDtoHAsync(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuMemcpyDtoHAsync", *args)
        assert given["hStream"] in self.recording.streams
        self.recording.require_buffer(given["srcDevice"], given["ByteCount"])

        def copy() -> None:
            data = self.recording.memory.read(given["srcDevice"], given["ByteCount"])
            ctypes.memmove(given["dstHost"], data.ctypes.data, given["ByteCount"])

        self.recording.queue.append(copy)
        return (SUCCESS,)

    def cuMemcpyDtoDAsync(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuMemcpyDtoDAsync", *args)
        assert given["hStream"] in self.recording.streams
        memory, source, target = self.recording.memory, given["srcDevice"], given["dstDevice"]
        self.recording.require_buffer(source, given["ByteCount"])
        self.recording.require_buffer(target, given["ByteCount"])
        self.recording.queue.append(lambda: memory.write(target, memory.read(source, given["ByteCount"])))
        return (SUCCESS,)

    def cuMemsetD8Async(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuMemsetD8Async", *args)
        assert given["hStream"] in self.recording.streams and 0 <= given["uc"] < 256
        self.recording.require_buffer(given["dstDevice"], given["N"])
        data = np.full(given["N"], given["uc"], np.uint8)
        self.recording.queue.append(lambda: self.recording.memory.write(given["dstDevice"], data))
        return (SUCCESS,)

    def cuKernelSetAttribute(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuKernelSetAttribute", *args)
        kernel = self.recording.kernels[given["kernel"]]
        assert given["attrib"] == self.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        assert given["dev"] == 0
        if given["val"] + kernel.attributes.shared_size_bytes > 99 * 1024:
            return (real_driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
        kernel.dynamic_limit = given["val"]
        return (SUCCESS,)

    def cuLaunchKernel(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuLaunchKernel", *args)
        assert given["extra"] == 0
        return self._launch(given, cooperative=False)

    def cuLaunchCooperativeKernel(self, *args: Any) -> tuple[Any, ...]:
        return self._launch(self._record("cuLaunchCooperativeKernel", *args), cooperative=True)

    def _launch(self, given: dict[str, Any], *, cooperative: bool) -> tuple[Any, ...]:
        if self.recording.fault != SUCCESS:
            return (self.recording.fault,)
        kernel = self.recording.kernels[int(given["f"])]
        given["f"] = kernel.name
        grid = tuple(given[f"gridDim{axis}"] for axis in "XYZ")
        block = tuple(given[f"blockDim{axis}"] for axis in "XYZ")
        plan = kernel.program.plan
        assert given["hStream"] in self.recording.streams
        assert all(type(n) is int and n >= 1 for n in (*grid, *block))
        assert int(np.prod(block)) <= plan.max_threads
        assert cooperative == kernel.waits_for_the_grid, "a grid barrier, and nothing else, is launched cooperatively"
        if given["sharedMemBytes"] > kernel.dynamic_limit:
            return (real_driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
        pointers = ctypes.cast(given["kernelParams"], ctypes.POINTER(ctypes.c_void_p))
        params = bytearray(max((at + size for _, at, size in plan.params), default=0))
        for number, (_, at, size) in enumerate(plan.params):
            params[at : at + size] = ctypes.string_at(pointers[number] or 0, size)
        spec = LaunchSpec(plan.entry, grid, block, bytes(params), given["sharedMemBytes"])
        self.recording.queue.append(lambda: self._execute(kernel, spec))
        return (SUCCESS,)

    def _execute(self, kernel: _Kernel, spec: LaunchSpec) -> None:
        places = kernel.module.place(kernel.program)
        outcome = run(kernel.program, spec, self.recording.memory, globals_at=places)
        self.recording.clock_ms += self.recording.cost_ms(kernel.name)
        os.write(1, outcome.printed.encode())
        if outcome.findings:
            name = FAULT_OF[outcome.findings[0].code]
            self.recording.fault = getattr(real_driver.CUresult, name)

    def cuStreamSynchronize(self, *args: Any) -> tuple[Any, ...]:
        assert self._record("cuStreamSynchronize", *args)["hStream"] in self.recording.streams
        return (self.recording.wait(),)

    def cuGetErrorString(self, *args: Any) -> tuple[Any, ...]:
        given = self._record("cuGetErrorString", *args)
        return SUCCESS, f"text of {given['error'].name}".encode()

    def cuCtxResetPersistingL2Cache(self, *args: Any) -> tuple[Any, ...]:
        self._record("cuCtxResetPersistingL2Cache", *args)
        return (SUCCESS,)
