"""Control flow (PTX ISA 9.7.12) and miscellaneous instructions (9.7.19)."""

import struct
from collections.abc import Callable
from functools import partial

import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import Args, Instruction, Label, Sym

from ..device_functions import ALLOCATORS, ASSERT, FREE, PRINT, SET_CONDITION
from ..device_heap import heap_of
from ..findings import trap_words
from ..printf import format_device
from ..wgmma_kind import WARPS, register_count, registers_key
from .access import device_bytes, device_string
from .machine import EXITED, Frame, RunningWarp, Stop
from .program import Code
from .warpgroups import take_step


def _bra(w: RunningWarp, ins: Instruction) -> None:
    w.next_pc[w.mask] = _target(w, ins, "target")


def _target(w: RunningWarp, ins: Instruction, name: str) -> int:
    label = ins.operand(name)
    if not isinstance(label, Label) or label.name not in w.code.labels:
        raise Unsupported(f"branch to {label}", ins.line)
    return w.code.labels[label.name]


def _brx(w: RunningWarp, ins: Instruction) -> None:
    label = ins.operand("targets")
    if not isinstance(label, Label) or label.name not in w.code.function.tables:
        raise Unsupported(f"branch table {label}", ins.line)
    targets = np.array([w.code.labels[name] for name in w.code.function.tables[label.name].targets])
    index = w.src(ins, "index").astype(np.int64)
    outside = w.mask & (index >= len(targets))
    if outside.any():
        w.report("X403", f"branch index is outside its table of {len(targets)} targets", ins, outside)
        raise Stop
    w.next_pc[w.mask] = targets[index[w.mask]]


def leave(w: RunningWarp) -> None:
    """Execute `ret`: return to the caller, or end the thread if there is none."""
    callee = w.code
    for lane in w.lanes_on():
        if not w.stack[lane]:
            w.state[lane] = EXITED
            continue
        frame = w.stack[lane].pop()
        _return_values(w, lane, callee, frame)
        for name, value in frame.registers.items():
            w.files[callee.function.name][name][lane] = value
        w.frame_base[lane] = frame.base
        w.next_pc[lane] = frame.return_pc


def _return_values(w: RunningWarp, lane: int, callee: Code, frame: Frame) -> None:
    results = frame.call.operand("ret")
    assert isinstance(results, Args)
    caller = w.grid.program.owners[frame.return_pc - 1]
    for variable, target in zip(callee.function.returns, results.items, strict=True):
        source = int(w.frame_base[lane]) + callee.frame[variable.name]
        to = _local_address(w, caller, frame.base, target, frame.call)
        _copy_local(w, lane, source, to, variable.size_bytes)


def _local_address(w: RunningWarp, code: Code, base: int, operand: object, ins: Instruction) -> int:
    if not isinstance(operand, Sym):
        raise Unsupported(f"call parameter {operand}", ins.line)
    if operand.name in code.frame:
        return base + code.frame[operand.name] + operand.offset
    return w.grid.layout.symbols[operand.name].address + operand.offset


def _copy_local(w: RunningWarp, lane: int, source: int, to: int, size: int) -> None:
    shift = lane * w.local.lane_bytes
    w.local.data[shift + to : shift + to + size] = w.local.data[shift + source : shift + source + size].copy()


def _call(w: RunningWarp, ins: Instruction) -> None:
    func, args = ins.operand("func"), ins.operand("args")
    if not isinstance(func, Sym) or not isinstance(args, Args):
        raise Unsupported("indirect call", ins.line)
    if func.name in w.grid.program.codes:
        _enter(w, ins, w.grid.program.codes[func.name], args)
    elif func.name == PRINT:
        _vprintf(w, ins, args)
    elif func.name == ASSERT:
        _assertfail(w, ins, args)
    elif func.name in ALLOCATORS:
        _allocate(w, ins, args)
    elif func.name == FREE:
        _free(w, ins, args)
    elif func.name == SET_CONDITION:
        for lane in w.lanes_on():
            handle, value = (_argument(w, lane, ins, item, size) for item, size in zip(args.items, (8, 4), strict=True))
            w.grid.conditions[handle] = value
    else:
        raise Unsupported(f"call of {func.name}, which has no body", ins.line)


def _enter(w: RunningWarp, ins: Instruction, callee: Code, args: Args) -> None:
    caller = w.code
    if callee.function.name not in w.files:
        w.enter(callee)
        w.enter(caller)
    registers = w.files[callee.function.name]
    caller_bytes = caller.frame_bytes if caller.frame_bytes or not caller.function.entry else 0
    for lane in w.lanes_on():
        base = int(w.frame_base[lane])
        top = w.grid.program.frame_bytes(w.grid.layout) if caller.function.entry else base + caller_bytes
        if top + callee.frame_bytes > w.local.lane_bytes:
            w.report("S302", f"call stack exhausted in {callee.function.name}: endless recursion", ins, w.mask)
            raise Stop
        for variable, operand in zip(callee.function.params, args.items, strict=True):
            source = _local_address(w, caller, base, operand, ins)
            _copy_local(w, lane, source, top + callee.frame[variable.name], variable.size_bytes)
        saved = {name: value[lane] for name, value in registers.items()}
        for value in registers.values():
            value[lane] = np.zeros((), value.dtype)
        w.stack[lane].append(Frame(int(w.next_pc[lane]), saved, base, ins))
        w.frame_base[lane] = top
        w.next_pc[lane] = callee.start


def _argument(w: RunningWarp, lane: int, ins: Instruction, operand: object, size: int) -> int:
    at = _local_address(w, w.code, int(w.frame_base[lane]), operand, ins) + lane * w.local.lane_bytes
    return int.from_bytes(w.local.data[at : at + size].tobytes(), "little")


def _vprintf(w: RunningWarp, ins: Instruction, args: Args) -> None:
    for lane in w.lanes_on():
        text_at, values_at = (_argument(w, lane, ins, item, 8) for item in args.items)
        text, used = format_device(
            device_string(w, lane, text_at),
            partial(_packed, w, lane, values_at),
            partial(device_string, w, lane),
        )
        w.grid.printed.append(text)
        _return(w, lane, ins, struct.pack("<i", used))


def _return(w: RunningWarp, lane: int, ins: Instruction, value: bytes) -> None:
    """Write the result of a call, if the caller takes it."""
    results = ins.operand("ret")
    if isinstance(results, Args) and results.items:
        at = _local_address(w, w.code, int(w.frame_base[lane]), results.items[0], ins) + lane * w.local.lane_bytes
        w.local.data[at : at + len(value)] = np.frombuffer(value, np.uint8)


def _packed(w: RunningWarp, lane: int, base: int, at: int, size: int) -> bytes:
    return device_bytes(w, lane, base + at, size)


def _assertfail(w: RunningWarp, ins: Instruction, args: Args) -> None:
    lane = next(w.lanes_on())
    message, file, line, function = (
        _argument(w, lane, ins, item, size) for item, size in zip(args.items, (8, 8, 4, 8), strict=False)
    )
    what, where, who = (device_string(w, lane, at).decode(errors="replace") for at in (message, file, function))
    w.report("X402", f"assertion `{what}` failed in {who} at {where}:{line}", ins, w.mask)
    raise Stop


def _allocate(w: RunningWarp, ins: Instruction, args: Args) -> None:
    for lane in w.lanes_on():
        size_bytes, *align = (_argument(w, lane, ins, item, 8) for item in args.items)
        address = heap_of(w.grid.memory).allocate(size_bytes, ins.place, *align)
        _return(w, lane, ins, address.to_bytes(8, "little"))
    w.grid.follow_memory()


def _free(w: RunningWarp, ins: Instruction, args: Args) -> None:
    for lane in w.lanes_on():
        problem = heap_of(w.grid.memory).free(_argument(w, lane, ins, args.items[0], 8), ins.place)
        if problem:
            w.report("M108", problem, ins, np.arange(32) == lane)
    w.grid.follow_memory()


def _ret(w: RunningWarp, ins: Instruction) -> None:
    leave(w)


def _exit(w: RunningWarp, ins: Instruction) -> None:
    w.state[w.mask] = EXITED


def _trap(w: RunningWarp, ins: Instruction) -> None:
    w.report("X401", trap_words(ins), ins, w.mask)
    raise Stop


def _nothing(w: RunningWarp, ins: Instruction) -> None:
    """Do nothing: there is no debugger, no timer, no performance monitor, no launch that runs at the same time."""


def _setmaxnreg(w: RunningWarp, ins: Instruction) -> None:
    """Take registers from the CTA's pool, for the entire warpgroup, or return them; wait if there are not enough."""
    count, grows = register_count(ins), ins.mods["action"] == "inc"
    if w.cta.registers:
        live = [other for other in w.cta.warps if other.live.any()]
        group = [other for other in live if other.number // WARPS == w.number // WARPS] if grows else [w]
        free = w.cta.registers * len(w.cta.warps) - sum(other.registers for other in live)
        needed = sum(count - other.registers for other in group)
        if needed > free and grows:
            w.gives_way, w.missing_registers = True, (32 * needed, 32 * free)
            w.next_pc[w.mask] = w.pc[w.mask]
            return
        if (count < w.registers) if grows else (count > w.registers):
            words = f"the warp has {w.registers} registers per thread, and setmaxnreg asks for {count}"
            w.report("S314", words, ins, w.mask)
        for other in group:
            other.registers = count
        w.cta.fruitless = 0
    take_step(w, ins, (registers_key(ins),))


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {
    "bra": _bra,
    "brkpt": _nothing,
    "brx": _brx,
    "call": _call,
    "griddepcontrol": _nothing,
    "ret": _ret,
    "exit": _exit,
    "trap": _trap,
    "nanosleep": _nothing,
    "pmevent": _nothing,
    "setmaxnreg": _setmaxnreg,
}
