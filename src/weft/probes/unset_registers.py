"""Variables of a -G build that are read before they are set: which of them have an effect.

In a -G build every use of a variable is still there, and scalars are registers. One that is live at the kernel's start
is read before it is set, on some path. A run that follows it shows whether a thread takes that path, and what the value
reaches. Where that is too much work, the registers get their first values from local memory that nothing wrote, and
the launch runs again with other contents of it (`refill.py`), as for reads of memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.ptx.module import WIDTH, Instruction, Module, Reg
from weft.ptx.parse import parse
from weft.vm.program import Program, compile_program
from weft.vm.runtime.watch import Scene

from .refill import Effect, effect_of_contents
from .taint import follow, runnable
from .taint_labels import UnsetRead

MOST_ALONE = 4
"""Registers that are tested one by one: each costs a compilation."""
_NO_LINE = frozenset({-1})
_MEMORY = "weft_unset"
_OUTCOMES = {Effect.RESULT: ("", "are different"), Effect.WAYS: (Severity.WARNING.value, "are the same")}


def unset_variables(scene: Scene, most_steps: int) -> tuple[Finding, ...]:
    """Return a finding for each place that an unset register's value reaches, in the first, middle and last CTA.

    Optimised code is not checked: there such registers are the compiler's choice.
    """
    registers = scene.source.kernel.liveness.at(0)
    if not registers:
        return ()
    total = prod(scene.launch.grid)
    found: dict[object, Finding] = {}
    undecided: dict[str, tuple[int, UnsetRead | None]] = {}
    left = most_steps
    ways = runnable(scene, sorted({0, total // 2, total - 1}), most_steps)
    unfinished = not ways
    for ctas in ways:
        if left <= 0:
            unfinished = True
            break
        followed = follow(scene, ctas, _NO_LINE, left, registers=frozenset(registers))
        left -= followed.steps
        for line, read in followed.unset.items():
            sink = followed.sinks.get(line)
            if sink is None:
                undecided.setdefault(read.register, (line, read))
                continue
            place = sink.instruction.place
            message = f"read of an uninitialised variable (register {read.register}); its value reaches {sink.what}"
            finding = Finding("I203", message, line, place, read.cta, read.warp, read.lanes, name=read.register)
            found.setdefault(place or line, finding)
        unfinished = unfinished or (not followed.complete and not found)
    if found or not unfinished:
        return tuple(found.values())
    for name, line in _first_reads(scene, registers):
        undecided.setdefault(name, (line, None))
    return tuple(_with_other_values(scene, undecided))


def _first_reads(scene: Scene, registers: Sequence[str]) -> Iterable[tuple[str, int]]:
    """Yield registers with the line of the first instruction in the text that reads them."""
    left = set(registers)
    for ins in scene.source.inlined.body:
        for register in ins.read() if isinstance(ins, Instruction) else ():
            if register.name in left:
                left.discard(register.name)
                yield register.name, ins.line


def _with_other_values(scene: Scene, reads: Mapping[str, tuple[int, UnsetRead | None]]) -> Iterable[Finding]:
    """Yield a finding for each register whose first value changes the launch; for all in one, if there are many."""
    groups = [[name] for name in reads] if len(reads) <= MOST_ALONE else [list(reads)]
    for names in groups:
        effect = effect_of_contents(scene, _with_memory(scene, names))
        if effect is Effect.NOTHING:
            continue
        severity, outcome = _OUTCOMES[effect]
        registers = names[0] if len(names) == 1 else f"{names[0]} or one of {len(names) - 1} others"
        line, read = reads[names[0]]
        ins = scene.source.instruction_at.get(line)
        message = (
            f"read of an uninitialised variable (register {registers}); with other initial values the results "
            f"of the launch {outcome}"
        )
        where = (read.cta, read.warp, read.lanes) if read is not None else ((0, 0, 0), 0, 0)
        yield Finding("I203", message, line, ins.place if ins else None, *where, name=names[0], severity=severity)


def _with_memory(scene: Scene, registers: Sequence[str]) -> Program:
    """Return the kernel's program where registers start with the contents of local memory that nothing wrote."""
    source, function = scene.source, scene.source.inlined
    lines = [f".local .align 8 .b8 {_MEMORY}[{8 * len(registers)}];", ".reg .u16 %byte;"]
    for number, name in enumerate(registers):
        kind, at = function.registers[name], f"[{_MEMORY}+{8 * number}]"
        lines.append(f".reg .{kind} %r{number};")
        if kind == "pred":
            lines.append(f"ld.local.u8 %byte, {at}; setp.ne.u16 %r{number}, %byte, 0;")
        else:
            lines.append(f"ld.local.b{WIDTH[kind]} %r{number}, {at};")
    head = f".version 8.0\n.target {source.module.target}\n.address_size 64\n"
    start = parse(f"{head}.visible .entry start() {{ {' '.join(lines)} ret; }}").functions["start"]
    start.check_supported()
    # An inlined kernel's registers have names that no text may have.
    known = {f"%r{number}": name for number, name in enumerate(registers)} | {"%byte": f"%{_MEMORY}"}
    loads = [_renamed(ins, known) for ins in start.body if isinstance(ins, Instruction)][:-1]
    longer = replace(
        function,
        registers={**function.registers, known["%byte"]: "u16"},
        variables=(*function.variables, *start.variables),
        body=(*loads, *function.body),
    )
    module: Module = replace(source.module, functions={**source.module.functions, function.name: longer})
    return compile_program(module, function.name, mode=source.mode, arch=source.arch_given, cubin=source.cubin)


def _renamed(ins: Instruction, names: Mapping[str, str]) -> Instruction:
    operands = (Reg(names[each.name]) if isinstance(each, Reg) else each for each in ins.operands)
    return replace(ins, operands=tuple(operands))
