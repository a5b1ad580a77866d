"""The server: it is the GPU. One thread per connected process; each process has its own device memory."""

import math
import mmap
import os
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import (
    DeviceMemoryError,
    LaunchError,
    ResourceError,
    ToolMissing,
    Unsupported,
    UsageError,
)
from weft.core.finding_codes import Severity
from weft.core.records import Dim3, Finding
from weft.core.register_file import require_registers
from weft.model.occupancy import MAX_REGISTERS, LaunchShape
from weft.vm.device_heap import heap_in
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GLOBAL_BASE, HEAP_BYTES, Allocation

from .device_memory import DeviceMemory
from .modules import DEVICE_SHIFT, Modules, symbol_of
from .properties import blocks_per_sm, device_record, dynamic_shared_for
from .protocol import VERSION, Answer, Closed, Code, Kind, ProtocolError, Request, receive_request, send_answer
from .records import Function, Options, Refused
from .report import Report
from .tensor_maps import answer_map

FAULTS: Mapping[str, Code] = {
    "M101": Code.ILLEGAL_ADDRESS,
    "M102": Code.MISALIGNED_ADDRESS,
    "M104": Code.ILLEGAL_ADDRESS,
    "M108": Code.LAUNCH_FAILED,
    "S301": Code.LAUNCH_TIMEOUT,
    "S302": Code.LAUNCH_TIMEOUT,
    "X401": Code.LAUNCH_FAILED,
    "X402": Code.ASSERT,
    "X403": Code.INVALID_PC,
}
"""Finding → the sticky error of the context, as a GPU would show it. Other findings are reported only."""

OWN_FAULTS = ("X401", "X402")
"""Traps and failed assertions: the program's own way to fail, also where findings are only reported."""

SMALL = 20_000
"""Below this many warp instructions of a launch, a second host thread costs more than it gains."""

DEVICE_MEMORY = 0
"""The type of an allocation whose bytes are undefined; managed and pinned memory counts as written."""


class Server:
    """Accepts processes at a socket until `close`."""

    def __init__(self, listening: socket.socket, options: Options, report: Report) -> None:
        self.options, self.report = options, report
        self.clients: set[threading.Thread] = set()
        self._device = threading.Lock()
        self._listening = listening
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def start(self) -> None:
        """Accept connections from now on; those that came before wait in the queue of the socket."""
        self._accepting.start()

    def close(self) -> None:
        """Accept no more processes, and wait for those that are connected."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        if self._accepting.is_alive():
            self._accepting.join()
        for thread in list(self.clients):
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self.clients.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                Client(connection, self.options, self.report, self._device).serve()
            except (ProtocolError, ConnectionError) as error:
                self.report.say(f"a process was disconnected: {error}")
            except Exception as error:  # the program is stopped: it must not go on with a wrong answer
                traceback.print_exc()
                self.report.refuse(
                    "internal error", f"{type(error).__name__}: {error}: please report it", goes_on=False
                )
        self.clients.discard(threading.current_thread())


@dataclass(frozen=True)
class Device:
    """A device of one process."""

    options: Options
    memory: DeviceMemory
    modules: Modules

    def mark_written(self, address: int, size_bytes: int) -> None:
        """Record what the host wrote, if it is in memory that kernels of this device reach."""
        if self.memory.written is not None and self.memory.owner(address) is not None:
            self.memory.mark_written(address, size_bytes)


class NoDevice(Exception):
    """A request names a device that does not exist."""


class Client:
    """One process: its devices."""

    def __init__(self, connection: socket.socket, options: Options, report: Report, device: threading.Lock) -> None:
        self.connection, self.options, self.report, self.device = connection, options, report, device
        self.file = os.memfd_create("weft device memory", os.MFD_CLOEXEC)
        self.devices = tuple(self._devices())
        self.allocations = 0
        self.model_ns = 0.0
        """The time of all launches so far, if a model is the clock."""
        self.handlers: Mapping[Kind, Callable[[Request], Answer]] = {
            Kind.HELLO: self._hello,
            Kind.ALLOCATE: self._allocate,
            Kind.RELEASE: self._release,
            Kind.LOAD: lambda request: self._device(request.arguments[0]).modules.load(request),
            Kind.UNLOAD: self._unload,
            Kind.FIND_FUNCTION: lambda request: self._home(request.arguments[0]).modules.find_function(request),
            Kind.FIND_SYMBOL: self._find_symbol,
            Kind.LAUNCH: self._launch,
            Kind.OCCUPANCY: self._occupancy,
            Kind.LINK_IMAGES: self.devices[0].modules.link_images,
            Kind.NOTE: lambda request: Answer(),
            Kind.SHOW: self._show,
            Kind.SET_HEAP: self._set_heap,
            Kind.TENSOR_MAP: lambda request: answer_map(request, self._device(request.arguments[1]).options, report),
            Kind.REFUSE: self._refuse,
        }

    def _devices(self) -> Iterator[Device]:
        """Yield the devices: their windows follow each other in one file."""
        options = self.options.devices
        window = options[0].memory_bytes
        os.ftruncate(self.file, window * len(options))
        mapped = mmap.mmap(self.file, window * len(options), flags=mmap.MAP_SHARED)
        arena = np.frombuffer(mapped, np.uint8)
        for number, each in enumerate(options):
            memory = DeviceMemory(
                arena[: window * (number + 1)],
                window * number,
                lambda at, size: mapped.madvise(mmap.MADV_REMOVE, at, size),
            )
            if each.watch.keeps_written:
                memory.keep_written()
            yield Device(each, memory, Modules(each, self.report, memory, number))

    def _device(self, number: int) -> Device:
        if number >= len(self.devices):
            raise NoDevice(number)
        return self.devices[number]

    def _home(self, number: int) -> Device:
        """Return the device of a module or function."""
        return self._device(number >> DEVICE_SHIFT)

    def _at(self, address: int) -> Device:
        """Return the device whose window has an address."""
        number = (address - GLOBAL_BASE) // self.options.memory_bytes
        return self.devices[min(max(number, 0), len(self.devices) - 1)]

    def serve(self) -> None:
        """Answer requests until the process closes its connection."""
        try:
            while True:
                try:
                    request = receive_request(self.connection)
                except Closed:
                    return
                if request.kind is Kind.BYE:
                    return
                files = (self.file,) if request.kind is Kind.HELLO else ()
                with self.device:
                    answer = self.answer(request)
                send_answer(self.connection, answer, files)
        finally:
            os.close(self.file)

    def answer(self, request: Request) -> Answer:
        """Return the answer to one request."""
        for address, size_bytes in request.written:
            for device in self.devices:
                device.mark_written(address, size_bytes)
        try:
            return self.handlers[request.kind](request)
        except NoDevice:
            return Answer(Code.INVALID_HANDLE)
        except Refused as refused:
            goes_on = self.options.keep_going
            self.report.refuse(refused.what, refused.why, goes_on=goes_on)
            return Answer(refused.code, blob=f"{refused.what}: {refused.why}".encode(), stop=not goes_on)

    def _hello(self, request: Request) -> Answer:
        if request.arguments[0] != VERSION:
            raise ProtocolError(f"the library speaks version {request.arguments[0]} of the protocol, not {VERSION}")
        by_model = self.options.clock is not None
        shown = enumerate(each.options for each in self.devices)
        records = (device_record(options.chip, options.memory_bytes, number) for number, options in shown)
        return Answer(values=(by_model,), blob=b"".join(records))

    # ---- memory ----

    def _allocate(self, request: Request) -> Answer:
        size_bytes, align, kind, number, *_ = request.arguments
        self.allocations += 1
        name = f"allocation {self.allocations}"
        # Managed and pinned memory is in the first window, and all devices reach it.
        device = self._device(number if kind == DEVICE_MEMORY else 0)
        try:
            address = device.memory.allocate(size_bytes, name, align=align, written=kind != DEVICE_MEMORY)
        except DeviceMemoryError:
            return Answer(Code.OUT_OF_MEMORY)
        if kind != DEVICE_MEMORY:
            for other in self.devices[1:]:
                other.memory.adopt(Allocation(address, size_bytes, name))
        return Answer(values=(address,))

    def _release(self, request: Request) -> Answer:
        address = request.arguments[0]
        home = self._at(address)
        try:
            home.memory.free(address)
        except LaunchError:
            return Answer(Code.INVALID_VALUE)
        for other in self.devices[1:]:
            if other is not home:
                other.memory.disown(address)
        return Answer()

    def _show(self, request: Request) -> Answer:
        """Let kernels reach a buffer, or not until it is shown again: memory of graphs keeps its address when freed."""
        address, visible, *_ = request.arguments
        memory = self._at(address).memory
        try:
            (memory.restore if visible else memory.withdraw)(address)
        except LaunchError:
            return Answer(Code.INVALID_VALUE)
        return Answer()

    def _set_heap(self, request: Request) -> Answer:
        """Set the size of the heap of malloc, until a launch has used it; 0: free all of it."""
        number, size_bytes, *_ = request.arguments
        memory = self._device(number).memory
        if not size_bytes and (heap := heap_in(memory)) is not None:
            heap.close()
        if memory.heap is not None and memory.heap_bytes != size_bytes:
            return Answer(Code.INVALID_VALUE)
        if size_bytes > self.options.memory_bytes:
            return Answer(Code.OUT_OF_MEMORY)
        memory.heap_bytes = size_bytes or HEAP_BYTES
        return Answer()

    # ---- modules ----

    def _unload(self, request: Request) -> Answer:
        number = request.arguments[0]
        home = self._home(number)
        answer = home.modules.unload(request)
        gone = [address for each in self.devices if each is not home for address in each.modules.drop_twin(number)]
        return replace(answer, blob=answer.blob + struct.pack(f"={len(gone)}Q", *gone))

    def _find_symbol(self, request: Request) -> Answer:
        number, wanted = request.arguments[:2]
        home = self._home(number)
        module = home.modules.modules.get(number)
        if module is None:
            return Answer(Code.INVALID_HANDLE)
        if self._device(wanted) is not home:
            module = self._device(wanted).modules.twin(number, module)
            if module is None:
                return Answer(Code.NO_BINARY_FOR_GPU)
        return symbol_of(module, request.blob.decode(errors="replace"))

    def _function(self, number: int, wanted: int) -> tuple[Device, Function | None]:
        """Return a device and a kernel on it; a library's kernel is compiled for each device that launches it."""
        home = self._home(number)
        function = home.modules.functions.get(number)
        device = self._device(wanted)
        if function is None or device is home:
            return home, function
        loaded = next(key for key, module in home.modules.modules.items() if module is function.module)
        return device, device.modules.twin_function(loaded, function.module, function.name)

    # ---- launches ----

    def _launch(self, request: Request) -> Answer:
        number, x, y, z, block, depth, shared_bytes, cooperative = request.arguments
        device, function = self._function(number, cooperative >> 32)
        if function is None:
            return Answer(Code.INVALID_HANDLE)
        threads = (block & 0xFFFFFFFF, block >> 32, depth & 0xFFFFFFFF)
        cluster = (depth >> 32 & 0xFF, depth >> 40 & 0xFF, depth >> 48 & 0xFF)
        options, plan = device.options, function.program.plan
        code = self._too_large(device, function, (x, y, z), threads, shared_bytes, cooperative=bool(cooperative & 1))
        if code is not Code.SUCCESS:
            return Answer(code)
        spec = LaunchSpec(
            plan.entry,
            (x, y, z),
            threads,
            request.blob,
            shared_bytes,
            options.mode,
            options.max_steps,
            registers=function.registers,
            sms=options.chip.sms,
            cluster=cluster,
        )
        small = function.instructions.get(spec.grid, SMALL) < SMALL
        clock = options.clock
        try:
            watch = options.watch if clock is None else clock.watch(device.modules.code_of(function))
            outcome = run(
                function.program,
                spec,
                device.memory,
                globals_at=function.module.variables,
                threads=1 if small else options.threads,
                watch=watch,
                chip=options.chip,
            )
            if clock is not None and not outcome.findings:
                shape = self._shape(device, function, spec)
                self.model_ns += clock.nanoseconds(device.modules.code_of(function), shape, outcome)
        except (Unsupported, UsageError, ToolMissing) as error:
            raise Refused(f"kernel {function.title}", str(error)) from error
        except DeviceMemoryError:  # for the heap of malloc
            return Answer(Code.OUT_OF_MEMORY)
        except ResourceError:
            return Answer(Code.LAUNCH_OUT_OF_RESOURCES)
        except LaunchError as error:
            self.report.say(f"{function.title}: {error}")
            return Answer(Code.INVALID_VALUE)
        function.instructions[spec.grid] = outcome.instructions
        kept = self.report.launched(function.title, outcome.findings)
        conditions = b"".join(struct.pack("=QQ", *pair) for pair in outcome.conditions.items())
        return Answer(values=(self._fault(kept), round(self.model_ns)), text=outcome.printed, blob=conditions)

    def _shape(self, device: Device, function: Function, spec: LaunchSpec) -> LaunchShape:
        device.modules.find_resources(function)
        shared_bytes = function.program.plan.layout.static_shared_bytes + spec.shared_bytes
        return LaunchShape(math.prod(spec.block), math.prod(spec.grid), max(function.registers, 1), shared_bytes)

    def _too_large(
        self, device: Device, function: Function, grid: Dim3, block: Dim3, shared_bytes: int, *, cooperative: bool
    ) -> Code:
        """Return the code with which the driver rejects a launch, or SUCCESS."""
        chip, plan = device.options.chip, function.program.plan
        threads = math.prod(block)
        if threads > plan.max_threads:
            return Code.INVALID_VALUE
        total = plan.layout.static_shared_bytes + shared_bytes
        if total > chip.architecture.shared_bytes_per_block:
            return Code.INVALID_VALUE
        if cooperative or threads * MAX_REGISTERS > chip.architecture.registers:
            device.modules.find_resources(function)
        if function.registers:
            try:
                require_registers(chip.architecture, threads, function.registers)
            except ResourceError:
                return Code.LAUNCH_OUT_OF_RESOURCES
        held = blocks_per_sm(chip, threads, function.registers, total) * chip.sms if cooperative else 0
        return Code.COOPERATIVE_LAUNCH_TOO_LARGE if cooperative and math.prod(grid) > held else Code.SUCCESS

    def _fault(self, findings: tuple[Finding, ...]) -> int:
        raised = FAULTS if self.options.raises else OWN_FAULTS
        errors = (finding.code for finding in findings if finding.level is Severity.ERROR)
        return next((int(FAULTS[code]) for code in errors if code in raised), 0)

    def _occupancy(self, request: Request) -> Answer:
        number, threads, shared_bytes, blocks, wanted, *_ = request.arguments
        device, function = self._function(number, wanted)
        if function is None:
            return Answer(Code.INVALID_HANDLE)
        chip, static = device.options.chip, function.program.plan.layout.static_shared_bytes
        device.modules.find_resources(function)
        facts = (function.registers, function.local_bytes)
        if threads > function.program.plan.max_threads:
            return Answer(values=(0, 0, *facts))
        held = blocks_per_sm(chip, threads, function.registers, static + shared_bytes)
        return Answer(values=(held, dynamic_shared_for(chip, blocks, static) if blocks else 0, *facts))

    def _refuse(self, request: Request) -> Answer:
        name, _, why = request.blob.decode(errors="replace").partition("\0")
        raise Refused(name, why)
