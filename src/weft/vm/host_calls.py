"""printf, assert, malloc, conditions and WEFT_REGION: a kernel calls the host, which reads arguments and answers."""

import ctypes
import functools
import operator
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3, Finding
from weft.ptx.module import Args, Instruction, Sym

from . import context as c
from .device_functions import ALLOCATORS, FREE, PRINT, SET_CONDITION, called
from .device_heap import heap_of
from .memory import LOCAL_BASE, GlobalMemory
from .printf import format_device
from .regions import DeclaredRegion, Regions

if TYPE_CHECKING:
    from .program import ProgramSource

Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32)
"""Worker, warp, position of the call in the kernel's body, mask of calling lanes."""


class HostCalls:
    """Collects what CTAs print, to show it in CTA order whichever thread ran them."""

    def __init__(self, source: "ProgramSource", memory: GlobalMemory) -> None:
        self.source = source
        self.lock = threading.Lock()
        self.regions: dict[int, Regions] = {}
        """The regions of each worker, by its record's address."""
        self.begin(memory)

    def begin(self, memory: GlobalMemory) -> None:
        """Start a launch: nothing is printed yet."""
        self.memory = memory
        self.lines: list[tuple[int, int, str]] = []
        self.failed: list[Finding] = []
        self.conditions: dict[int, int] = {}
        """Handle → value, as kernels set the conditions of a graph's nodes."""
        self.errors: list[BaseException] = []

    def callback(self, worker: int) -> Any:
        """Return the function that compiled code calls; the caller keeps it alive."""

        def call(_: int, warp: int, position: int, lanes: int) -> None:
            try:
                with self.lock:
                    self._serve(worker, warp, position, lanes)
            except BaseException as error:  # an exception cannot pass through compiled code
                self.errors.append(error)

        return Callback(call)

    def keep_only(self, ctas: npt.NDArray[np.bool_], grid: Dim3) -> None:
        """Discard the output of CTAs other than these, by number."""
        width, height, _ = grid
        self.lines = [row for row in self.lines if ctas[row[0]]]
        self.failed = [each for each in self.failed if ctas[(each.cta[2] * height + each.cta[1]) * width + each.cta[0]]]

    def printed(self) -> str:
        """Return all output, ordered by CTA."""
        if self.errors:
            raise self.errors[0]
        return "".join(text for _, _, text in sorted(self.lines, key=lambda row: row[:2]))

    def findings(self) -> Iterator[Finding]:
        """Yield failed assertions and bad regions: one per line, at the first CTA and warp, with all its lanes."""
        grouped: dict[int, list[Finding]] = {}
        for finding in sorted(self.failed, key=lambda each: (each.cta[::-1], each.warp)):
            grouped.setdefault(finding.ptx_line, []).append(finding)
        for found in grouped.values():
            first = found[0]
            together = [each.lanes for each in found if (each.cta, each.warp) == (first.cta, first.warp)]
            yield replace(first, lanes=functools.reduce(operator.or_, together), count=len(found))

    def _serve(self, worker: int, warp: int, position: int, lanes: int) -> None:
        if position < 0:
            self.regions[worker].clear()
            ctypes.c_uint32.from_address(worker + c.WORKER_REGIONS.at).value = 0
            return
        ins = self.source.kernel.cfg.function.body[position]
        assert isinstance(ins, Instruction)
        if ins.pragma:
            self._declare(worker, warp, ins, lanes)
            return
        symbols = self.source.kernel.layout.symbols
        parameters, results = (
            [symbols[item.name] for item in items if isinstance(item, Sym)]
            for items in (_items(ins, "args"), _items(ins, "ret"))
        )
        name = called(ins)
        for lane in range(32):
            if not lanes >> lane & 1:
                continue
            reader = _LaneMemory(warp, lane, self.memory)
            words = [reader.number(each.address, min(each.size_bytes, 8)) for each in parameters]
            if name == PRINT:
                result = self._print(worker, warp, ins, reader, words).to_bytes(4, "little")
            elif name in ALLOCATORS:
                result = heap_of(self.memory).allocate(words[0], ins.place, *words[1:2]).to_bytes(8, "little")
            elif name == FREE:
                problem = heap_of(self.memory).free(words[0], ins.place)
                if problem:
                    self._found("M108", problem, ins, warp, 1 << lane)
                continue
            elif name == SET_CONDITION:
                self.conditions[words[0]] = words[1]
                continue
            else:
                message = reader.string(words[0]).decode(errors="replace")
                self._found("X402", f"assertion failed: {message}", ins, warp, 1 << lane)
                continue
            for each in results:
                reader.write_local(each.address, result)

    def _print(self, worker: int, warp: int, ins: Instruction, reader: "_LaneMemory", words: list[int]) -> int:
        """Keep what one lane prints; return the number of arguments that were printed."""
        text, used = reader.format(words[0], words[1])
        self.lines.append((_field(worker, c.WORKER_CTA), len(self.lines), text))
        if reader.missed is not None:
            words_of = f"printf reads arguments at {reader.missed:#x}, in no buffer"
            self._found("M101", words_of, ins, warp, 1 << reader.lane)
        return used

    def _declare(self, worker: int, warp: int, ins: Instruction, lanes: int) -> None:
        """Give each lane the address of the region it names."""
        places = (ctypes.c_uint32 * 32).from_address(worker + c.WORKER_REGION_PLACES.at)
        sizes = (ctypes.c_uint32 * 32).from_address(worker + c.WORKER_REGION_BYTES.at)
        asked = list(zip(places, sizes, strict=True))
        by_lane: dict[tuple[int, int], int] = {}
        for lane in range(32):
            if lanes >> lane & 1:
                by_lane[asked[lane]] = by_lane.get(asked[lane], 0) | 1 << lane
        answers: dict[tuple[int, int], DeclaredRegion] = {}
        for (address, size_bytes), who in by_lane.items():
            answers[address, size_bytes], new = self.regions[worker].declare(ins.pragma, address, size_bytes)
            if new and answers[address, size_bytes].problem:
                self._found("M105", answers[address, size_bytes].problem, ins, warp, who)
        for lane, key in enumerate(asked):
            places[lane] = answers[key].address if key in answers else key[0]
        ctypes.c_uint32.from_address(worker + c.WORKER_REGIONS.at).value = 1

    def _found(self, code: str, message: str, ins: Instruction, warp: int, lanes: int) -> None:
        cta = tuple(_field(warp, c.Field(c.WARP_CTAID.at + 4 * axis, "i32")) for axis in range(3))
        self.failed.append(
            Finding(
                code,
                message,
                ptx_line=ins.line,
                place=ins.place,
                cta=(cta[0], cta[1], cta[2]),
                warp=_field(warp, c.WARP_ID),
                lanes=lanes,
            )
        )


def _items(ins: Instruction, name: str) -> tuple[object, ...]:
    operands = ins.operand(name)
    assert isinstance(operands, Args)
    return operands.items


def _field(record: int, field: c.Field) -> int:
    kind = ctypes.c_uint32 if field.ty == "i32" else ctypes.c_uint64
    return int(kind.from_address(record + field.at).value)


class _LaneMemory:
    """Memory as one lane sees it: generic addresses, local words interleaved."""

    def __init__(self, warp: int, lane: int, memory: GlobalMemory) -> None:
        self.local = _field(warp, c.WARP_LOCAL)
        self.limit = _field(warp, c.WARP_LOCAL_LIMIT)
        self.written = 0
        """Host address of the marks of what was written; 0 if no checker uses them."""
        if _field(_field(warp, c.WARP_WORKER), c.WORKER_LOCAL_BYTES):
            self.written = _field(warp, c.WARP_LOCAL_WRITTEN)
        self.lane, self.memory = lane, memory
        self.missed: int | None = None
        """The last address read that is in no allocation."""

    def read(self, address: int, size: int) -> bytes:
        if LOCAL_BASE <= address < LOCAL_BASE + self.limit:
            return self.read_local(address - LOCAL_BASE, size)
        owner = self.memory.owner(address)
        if owner is not None and address + size <= owner.address + owner.size_bytes:
            return self.memory.read(address, size).tobytes()
        self.missed = address
        return bytes(size)

    def read_local(self, at: int, size: int) -> bytes:
        if at + size > self.limit:
            return bytes(size)
        return bytes(ctypes.c_uint8.from_address(self._place(at + i)).value for i in range(size))

    def write_local(self, at: int, value: bytes) -> None:
        for i, byte in enumerate(value[: max(self.limit - at, 0)]):  # PTX may declare it smaller
            ctypes.c_uint8.from_address(self._place(at + i)).value = byte
            if self.written:
                ctypes.c_uint8.from_address(self._place(at + i) - self.local + self.written).value = 0xFF

    def number(self, at: int, size: int) -> int:
        return int.from_bytes(self.read_local(at, size), "little")

    def format(self, fmt: int, block: int) -> tuple[str, int]:
        """Return printf's text and the number of arguments it used."""
        return format_device(self.string(fmt), lambda at, size: self.read(block + at, size), self.string)

    def string(self, address: int) -> bytes:
        owner = self.memory.owner(address)
        if owner is None:
            return b"<bad pointer>"
        room = owner.address + owner.size_bytes - address
        data = self.memory.read(address, room)
        end = np.flatnonzero(data == 0)
        return data[: end[0]].tobytes() if len(end) else data.tobytes()

    def _place(self, at: int) -> int:
        return self.local + (at >> 2) * 128 + 4 * self.lane + (at & 3)
