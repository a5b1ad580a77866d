"""The server: it is the GPU. One thread per connected process; each process has its own device memory."""

import math
import mmap
import os
import socket
import threading
import traceback
from collections.abc import Callable, Mapping

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
from weft.vm.launch import run
from weft.vm.launch_spec import LaunchSpec
from weft.vm.memory import GlobalMemory

from .modules import Modules
from .properties import blocks_per_sm, device_record, dynamic_shared_for
from .protocol import VERSION, Answer, Closed, Code, Kind, ProtocolError, Request, receive_request, send_answer
from .records import Function, Options, Refused
from .report import Report

FAULTS: Mapping[str, Code] = {
    "M101": Code.ILLEGAL_ADDRESS,
    "M102": Code.MISALIGNED_ADDRESS,
    "M104": Code.ILLEGAL_ADDRESS,
    "S301": Code.LAUNCH_TIMEOUT,
    "S302": Code.LAUNCH_TIMEOUT,
    "X401": Code.LAUNCH_FAILED,
    "X402": Code.ASSERT,
    "X403": Code.INVALID_PC,
}
"""Finding → the sticky error of the context, as a GPU would show it. Other findings are reported only."""

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


class Client:
    """One process: its memory, modules and functions."""

    def __init__(self, connection: socket.socket, options: Options, report: Report, device: threading.Lock) -> None:
        self.connection, self.options, self.report, self.device = connection, options, report, device
        self.file = os.memfd_create("weft device memory", os.MFD_CLOEXEC)
        os.ftruncate(self.file, options.memory_bytes)
        mapped = mmap.mmap(self.file, options.memory_bytes, flags=mmap.MAP_SHARED)
        self.memory = GlobalMemory(
            arena=np.frombuffer(mapped, np.uint8), discard=lambda at, size: mapped.madvise(mmap.MADV_REMOVE, at, size)
        )
        if options.watch.keeps_written:
            self.memory.keep_written()
        self.modules = Modules(options, report, self.memory)
        self.allocations = 0
        self.model_ns = 0.0
        """The time of all launches so far, if a model is the clock."""
        self.handlers: Mapping[Kind, Callable[[Request], Answer]] = {
            Kind.HELLO: self._hello,
            Kind.ALLOCATE: self._allocate,
            Kind.RELEASE: self._release,
            Kind.LOAD: self.modules.load,
            Kind.UNLOAD: self.modules.unload,
            Kind.FIND_FUNCTION: self.modules.find_function,
            Kind.FIND_SYMBOL: self.modules.find_symbol,
            Kind.LAUNCH: self._launch,
            Kind.OCCUPANCY: self._occupancy,
            Kind.LINK_IMAGES: self.modules.link_images,
            Kind.NOTE: lambda request: Answer(),
            Kind.REFUSE: self._refuse,
        }

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
            self.memory.mark_written(address, size_bytes)
        try:
            return self.handlers[request.kind](request)
        except Refused as refused:
            goes_on = self.options.keep_going
            self.report.refuse(refused.what, refused.why, goes_on=goes_on)
            return Answer(refused.code, blob=f"{refused.what}: {refused.why}".encode(), stop=not goes_on)

    def _hello(self, request: Request) -> Answer:
        if request.arguments[0] != VERSION:
            raise ProtocolError(f"the library speaks version {request.arguments[0]} of the protocol, not {VERSION}")
        by_model = self.options.clock is not None
        return Answer(values=(by_model,), blob=device_record(self.options.chip, self.options.memory_bytes))

    # ---- memory ----

    def _allocate(self, request: Request) -> Answer:
        size_bytes, align, kind, *_ = request.arguments
        self.allocations += 1
        name = f"allocation {self.allocations}"
        try:
            return Answer(values=(self.memory.allocate(size_bytes, name, align=align, written=kind != DEVICE_MEMORY),))
        except DeviceMemoryError:
            return Answer(Code.OUT_OF_MEMORY)

    def _release(self, request: Request) -> Answer:
        try:
            self.memory.free(request.arguments[0])
        except LaunchError:
            return Answer(Code.INVALID_VALUE)
        return Answer()

    # ---- launches ----

    def _launch(self, request: Request) -> Answer:
        number, x, y, z, block, depth, shared_bytes, cooperative = request.arguments
        function = self.modules.functions.get(number)
        if function is None:
            return Answer(Code.INVALID_HANDLE)
        threads = (block & 0xFFFFFFFF, block >> 32, depth)
        options, plan = self.options, function.program.plan
        code = self._too_large(function, (x, y, z), threads, shared_bytes, bool(cooperative))
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
        )
        small = function.instructions.get(spec.grid, SMALL) < SMALL
        clock = options.clock
        try:
            watch = options.watch if clock is None else clock.watch(self.modules.code_of(function))
            outcome = run(
                function.program,
                spec,
                self.memory,
                globals_at=function.module.variables,
                threads=1 if small else options.threads,
                watch=watch,
                chip=options.chip,
            )
            if clock is not None and not outcome.findings:
                self.model_ns += clock.nanoseconds(self.modules.code_of(function), self._shape(function, spec), outcome)
        except (Unsupported, UsageError, ToolMissing) as error:
            raise Refused(f"kernel {function.name}", str(error)) from error
        except ResourceError:
            return Answer(Code.LAUNCH_OUT_OF_RESOURCES)
        except LaunchError as error:
            self.report.say(f"{function.name}: {error}")
            return Answer(Code.INVALID_VALUE)
        function.instructions[spec.grid] = outcome.instructions
        kept = self.report.launched(function.name, outcome.findings)
        return Answer(values=(self._fault(kept), round(self.model_ns)), text=outcome.printed)

    def _shape(self, function: Function, spec: LaunchSpec) -> LaunchShape:
        self.modules.find_resources(function)
        shared_bytes = function.program.plan.layout.static_shared_bytes + spec.shared_bytes
        return LaunchShape(math.prod(spec.block), math.prod(spec.grid), max(function.registers, 1), shared_bytes)

    def _too_large(self, function: Function, grid: Dim3, block: Dim3, shared_bytes: int, cooperative: bool) -> Code:
        """Return the code with which the driver rejects a launch, or SUCCESS."""
        chip, plan = self.options.chip, function.program.plan
        threads = math.prod(block)
        if threads > plan.max_threads:
            return Code.INVALID_VALUE
        total = plan.layout.static_shared_bytes + shared_bytes
        if total > chip.architecture.shared_bytes_per_block:
            return Code.INVALID_VALUE
        if cooperative or threads * MAX_REGISTERS > chip.architecture.registers:
            self.modules.find_resources(function)
        if function.registers:
            try:
                require_registers(chip.architecture, threads, function.registers)
            except ResourceError:
                return Code.LAUNCH_OUT_OF_RESOURCES
        held = blocks_per_sm(chip, threads, function.registers, total) * chip.sms if cooperative else 0
        return Code.COOPERATIVE_LAUNCH_TOO_LARGE if cooperative and math.prod(grid) > held else Code.SUCCESS

    def _fault(self, findings: tuple[Finding, ...]) -> int:
        if not self.options.raises:
            return 0
        errors = (finding.code for finding in findings if finding.level is Severity.ERROR)
        return next((int(FAULTS[code]) for code in errors if code in FAULTS), 0)

    def _occupancy(self, request: Request) -> Answer:
        number, threads, shared_bytes, blocks, *_ = request.arguments
        function = self.modules.functions.get(number)
        if function is None:
            return Answer(Code.INVALID_HANDLE)
        chip, static = self.options.chip, function.program.plan.layout.static_shared_bytes
        self.modules.find_resources(function)
        facts = (function.registers, function.local_bytes)
        if threads > function.program.plan.max_threads:
            return Answer(values=(0, 0, *facts))
        held = blocks_per_sm(chip, threads, function.registers, static + shared_bytes)
        return Answer(values=(held, dynamic_shared_for(chip, blocks, static) if blocks else 0, *facts))

    def _refuse(self, request: Request) -> Answer:
        name, _, why = request.blob.decode(errors="replace").partition("\0")
        raise Refused(name, why)
