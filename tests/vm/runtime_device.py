"""Runtime functions alone: compiled with llvmlite, called with NumPy arrays on a bare warp record."""

import ctypes
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from weft.vm.context import (
    REPORT_BYTES,
    WARP_ALLOCATIONS,
    WARP_BYTES,
    WARP_COPIES,
    WARP_COPY_CAPACITY,
    WARP_COPY_COUNT,
    WARP_GLOBAL,
    WARP_GLOBAL_BYTES,
    WARP_HOME,
    WARP_OWNERS,
    WARP_SHARED,
    WARP_SHARED_LIMIT,
    WARP_SHARED_OBJECTS,
    WARP_SHARED_OWNERS,
    WARP_WORKER,
    WORKER_BYTES,
    WORKER_REPORT_CAPACITY,
    WORKER_REPORT_COUNT,
    WORKER_REPORTS,
    Field,
)
from weft.vm.ir import Builder, element, module_text
from weft.vm.memory import SHARED_START
from weft.vm.runtime.bounds import build_owners, build_piece
from weft.vm.runtime.copies import COPY_BYTES
from weft.vm.runtime.shape import build_report, symbol

Array = NDArray[Any]
SHARED_BYTES = 8192
SHARED_END = SHARED_START + SHARED_BYTES
GLOBAL_BYTES = 1 << 16
ALL_LANES = 0xFFFFFFFF
REPORTS = 64


class Report(NamedTuple):
    code: int
    site: int
    lanes: int
    address: int


def aligned(size_bytes: int) -> Array:
    """Return zeroed bytes that start at a multiple of 64."""
    raw = np.zeros(size_bytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size_bytes]


def mask_of(lanes: Any) -> int:
    """Return a list of lane numbers as a bit mask."""
    return sum(1 << int(lane) for lane in lanes)


class Device:
    """One warp with its shared and global memory, and some runtime functions to call."""

    def __init__(self, functions: list[Builder], cpu: str) -> None:
        self.functions = {function.name: function for function in functions}
        self.engine = _compile(functions, cpu)
        self.warp, self.worker = aligned(WARP_BYTES), aligned(WORKER_BYTES)
        self.shared, self.memory = aligned(SHARED_START + SHARED_BYTES), aligned(GLOBAL_BYTES)
        # The entire arena is allocation number 1, all of shared memory one array.
        self.owners = np.ones(GLOBAL_BYTES // 256, np.uint32)
        self.shared_owners = np.ones(SHARED_BYTES // 64 + 1, np.uint32)
        self.shared_extents = np.array([[0, 0], [0, SHARED_BYTES]], np.int64)
        self.extents = np.array([[0, 0], [0, GLOBAL_BYTES]], np.int64)
        self.reports, self.queue = aligned(REPORTS * REPORT_BYTES), aligned(48 * COPY_BYTES)
        for record, field, value in (
            (self.warp, WARP_SHARED, self.shared.ctypes.data),
            (self.warp, WARP_SHARED_LIMIT, SHARED_END),
            (self.warp, WARP_GLOBAL, self.memory.ctypes.data),
            (self.warp, WARP_GLOBAL_BYTES, GLOBAL_BYTES),
            (self.warp, WARP_SHARED_OWNERS, self.shared_owners.ctypes.data),
            (self.warp, WARP_SHARED_OBJECTS, self.shared_extents.ctypes.data),
            (self.warp, WARP_OWNERS, self.owners.ctypes.data),
            (self.warp, WARP_ALLOCATIONS, self.extents.ctypes.data),
            (self.warp, WARP_WORKER, self.worker.ctypes.data),
            (self.warp, WARP_HOME, self.worker.ctypes.data),
            (self.warp, WARP_COPIES, self.queue.ctypes.data),
            (self.warp, WARP_COPY_CAPACITY, 48),
            (self.worker, WORKER_REPORTS, self.reports.ctypes.data),
            (self.worker, WORKER_REPORT_CAPACITY, REPORTS),
        ):
            _member(record, field)[0] = value

    def fill(self, rng: np.random.Generator) -> None:
        """Write random bytes to both memories."""
        for memory in (self.shared, self.memory):
            memory[:] = rng.integers(0, 256, memory.size)

    def call(self, name: str, *args: Any) -> Array:
        """Call a function; vectors and pointers are arrays. Returns its 32 values (none: an empty array)."""
        function = self.functions[symbol(name)]
        result = np.zeros(0, np.uint32)
        if function.result != "void":
            result = np.zeros(32, f"uint{element(function.result)[1:]}")
            args = (*args, result)
        values = [arg.ctypes.data if isinstance(arg, np.ndarray) else int(arg) for arg in (self.warp, *args)]
        address = self.engine.get_function_address("call." + function.name)
        # All arguments are integers; a function that takes an i32 ignores the upper half.
        ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * len(values))(address)(*values)
        return result

    def take_reports(self) -> list[Report]:
        """Return the reports made since the last call."""
        count = int(_member(self.worker, WORKER_REPORT_COUNT)[0])
        _member(self.worker, WORKER_REPORT_COUNT)[0] = 0
        words = self.reports.view(np.uint32).reshape(REPORTS, -1)[:count]
        return [Report(row[0], row[1], row[2], row[4] | row[5] << 32) for row in words.tolist()]

    @property
    def queued(self) -> int:
        return int(_member(self.warp, WARP_COPY_COUNT)[0])


def _member(record: Array, field: Field) -> Array:
    dtype = np.uint64 if field.ty in ("ptr", "i64") else np.uint32
    return record[field.at : field.at + np.dtype(dtype).itemsize].view(dtype)


def _entry_point(function: Builder) -> Builder:
    """Return a function with pointers: C cannot pass a <32 x T>. It loads, calls and stores the result."""
    params = [("ptr" if ty[0] == "<" else ty, name) for ty, name in function.params]
    if function.result != "void":
        params.append(("ptr", "result"))
    b = Builder("call." + function.name, "void", params, function.attributes)
    args = [b.load(ty, b.param(name)) if ty[0] == "<" else b.param(name) for ty, name in function.params]
    result = b.call(function.name, function.result, args)
    if function.result != "void":
        b.store(result, b.param("result"))
    b.ret()
    return b


def _compile(functions: list[Builder], cpu: str) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten() if cpu == "host" else ""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name() if cpu == "host" else cpu, features=features, opt=2, jit=True
    )
    everything = [
        build_report(),
        build_owners("owners.global"),
        build_owners("owners.global.words"),
        build_owners("owners.shared"),
        build_piece("piece"),
        *functions,
        *map(_entry_point, functions),
    ]
    module = llvm.parse_assembly(module_text(everything))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
